"""Composition of a configuration from Python, and checks of the arguments of this package's functions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dlio_torch.config.arguments import refuse_repeated, split_argument
from dlio_torch.config.layers import COMMAND_LINE
from dlio_torch.config.schema import Config
from dlio_torch.errors import ConfigError

if TYPE_CHECKING:
    from dlio_torch.config.compose import Composed

_EXAMPLE = 'overrides=["scale=tiny", "train.epochs=2"]'


def compose(recipe: str | Path | None = None, overrides: Sequence[str] = (), *, world_size: int = 1) -> Config:
    """Composes a configuration, as the command line does.

    Args:
        recipe: name of a shipped recipe, or path of a YAML file; ``None``: the recipe ``custom``, which reads the data
            of ``dataset.path``.
        overrides: ``group=choice`` and ``group.key=value`` texts, for example ``["scale=tiny", "train.epochs=2"]``.
        world_size: ranks that will share the data.

    Raises:
        ConfigError: a setting or an argument is wrong.
        DataError: ``dataset=auto``, and the data cannot be inspected.
    """
    return _composed(recipe, overrides, world_size).config


def _composed(recipe: str | Path | None, overrides: Sequence[str], world_size: int) -> Composed:
    from dlio_torch.config import compose as composition
    from dlio_torch.formats.core.registry import available

    check_count("world_size", world_size)
    arguments = settings(recipe, overrides)
    try:
        refuse_repeated([split_argument(argument) for argument in arguments])
        return composition.compose(arguments, world_size=world_size, formats=available())
    except ConfigError as error:
        if COMMAND_LINE not in error.message:
            raise
        raise ConfigError(error.message.replace(f"({COMMAND_LINE})", "(argument)"), hint=error.hint) from None


def settings(recipe: str | Path | None, overrides: Sequence[str]) -> list[str]:
    """The ``key=value`` texts of a recipe and overrides.

    Raises:
        ConfigError: one of them has a wrong type.
    """
    if recipe is not None and not isinstance(recipe, (str, Path)):
        raise ConfigError(
            f"recipe={recipe!r}: expected a name or a path, not {_type(recipe)}", hint='write recipe="minimal"'
        )
    if isinstance(overrides, (str, bytes)) or not isinstance(overrides, Sequence):
        raise ConfigError(
            f"overrides={overrides!r}: expected a list of texts, not {_type(overrides)}", hint=f"write {_EXAMPLE}"
        )
    for entry in overrides:
        if not isinstance(entry, str):
            raise ConfigError(f"overrides: {entry!r} is no text but {_type(entry)}", hint=f"write {_EXAMPLE}")
    return [*([] if recipe is None else [f"recipe={recipe}"]), *overrides]


def chosen(
    config: Config | None, recipe: str | Path | None, overrides: Sequence[str], *, world_size: int = 1
) -> Composed:
    """The configuration that a function of this package was called with, and what is known of its origin.

    Raises:
        ConfigError: an argument or a setting is wrong, or both a configuration and parts of one were given.
    """
    from dlio_torch.config.compose import Composed

    if config is None:
        return _composed(recipe, overrides, world_size)
    if not isinstance(config, Config):
        raise ConfigError(
            f"config={config!r}: expected the configuration that compose() returns, not {_type(config)}",
            hint='write compose(recipe="minimal"), or give recipe= and overrides= by name',
        )
    if recipe is not None or overrides:
        raise ConfigError(
            "a configuration, and recipe= or overrides= as well",
            hint="give the configuration alone, or compose(recipe=..., overrides=[...])",
        )
    return Composed(config, {}, [])


def check_count(name: str, value: object, least: int = 1) -> None:
    """Raise if an argument is not a whole number from ``least`` on.

    Raises:
        ConfigError: it is not.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{name}={value!r}: expected a whole number", hint=f"give {least} or more")


def check_rank(rank: int, world_size: int) -> None:
    """Raise if ``rank`` is no number of one of ``world_size`` ranks.

    Raises:
        ConfigError: it is not.
    """
    check_count("world_size", world_size)
    check_count("rank", rank, 0)
    if rank >= world_size:
        raise ConfigError(
            f"rank={rank}, but world_size={world_size}", hint="ranks count from 0: give a rank below world_size"
        )


def _type(value: object) -> str:
    return type(value).__name__
