"""Arguments of the verb ``checkpoint``: numbers of saves and loads beside options of a run, and the plan they give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from dlio_torch.config.arguments import split_argument
from dlio_torch.config.compose import Composed, compose
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.registry import available
from dlio_torch.preflight.checkpoint_plan import CheckpointPlan, plan_checkpoints
from dlio_torch.study.study_arguments import check_keys
from dlio_torch.study.verb_keys import KEYS

_VERB = "checkpoint"
_MOST = 100_000
_LAST = "checkpoint.after_last"


def checkpoint_plan(arguments: Sequence[str], world_size: int, *, cwd: Path | None = None) -> CheckpointPlan:
    """Composes the configuration of the verb ``checkpoint``, and plans its saves and loads; nothing is written.

    Args:
        arguments: of the command line.
        world_size: number of ranks that a launcher starts.
        cwd: folder that relative paths start from; None: the current one.

    Raises:
        ConfigError: a mistake in the arguments, or the recipe has no checkpoints.
    """
    composed = compose_checkpoints(arguments, world_size, cwd=cwd)
    given = dict(map(split_argument, arguments))
    saves, loads = _count("saves", given, 1), _count("loads", given, 0)
    return plan_checkpoints(composed, saves, loads, 1 if composed.config.dist.backend == "single" else world_size)


def compose_checkpoints(arguments: Sequence[str], world_size: int, *, cwd: Path | None = None) -> Composed:
    """Composes the configuration that arguments of the verb ``checkpoint`` describe.

    A layout needs no interval here, so that one save is requested.

    Args:
        arguments: of the command line.
        world_size: number of ranks that a launcher starts.
        cwd: folder that relative paths start from; None: the current one.

    Raises:
        ConfigError: a mistake in the keys or in the options of a run.
    """
    given = dict(map(split_argument, arguments))
    check_keys(given, _VERB)
    options = {_LAST: "true"} | {key: text for key, text in given.items() if key not in KEYS[_VERB]}
    return compose(
        [f"{key}={text}" for key, text in options.items()], cwd=cwd, world_size=world_size, formats=available()
    )


def _count(key: str, given: Mapping[str, str], least: int) -> int:
    text = given.get(key, KEYS[_VERB][key].default)
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and least <= int(text) <= _MOST):
        reads = "; loads read what the saves have written" if key == "saves" else ""
        raise ConfigError(
            f"{key}={text} (command line): expected a number from {least} to {_MOST}{reads}",
            hint=f"write a number, for example {key}=10",
        )
    return int(text)
