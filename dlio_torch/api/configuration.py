"""Composition of a configuration from Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dlio_torch.config.arguments import refuse_repeated, split_argument
from dlio_torch.config.schema import Config


def compose(recipe: str | Path | None = None, overrides: Sequence[str] = (), *, world_size: int = 1) -> Config:
    """Composes a configuration, as the command line does.

    Args:
        recipe: name of a shipped recipe, or path of a YAML file; ``None``: the recipe ``custom``, which reads the data
            of ``dataset.path``.
        overrides: ``group=choice`` and ``group.key=value`` texts, for example ``["scale=tiny", "train.epochs=2"]``.
        world_size: ranks that will share the data.

    Raises:
        ConfigError: a setting is wrong.
        DataError: ``dataset=auto``, and the data cannot be inspected.
    """
    from dlio_torch.config import compose as composition
    from dlio_torch.formats.core.registry import available

    arguments = [*([] if recipe is None else [f"recipe={recipe}"]), *overrides]
    refuse_repeated([split_argument(argument) for argument in arguments])
    return composition.compose(arguments, world_size=world_size, formats=available()).config


def chosen(config: Config | None, recipe: str | Path | None, overrides: Sequence[str]) -> Config:
    """The configuration that a function of this package was called with.

    Raises:
        TypeError: both a configuration and parts of one were given.
        ConfigError: a setting is wrong.
    """
    if config is None:
        return compose(recipe, overrides)
    if recipe is not None or overrides:
        raise TypeError("give a configuration, or recipe= and overrides=, not both: compose(recipe, overrides)")
    return config
