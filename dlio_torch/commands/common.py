"""Functions that several verbs share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from dlio_torch.errors import ConfigError

if TYPE_CHECKING:
    from dlio_torch.commands.command_line import Command
    from dlio_torch.config.compose import Composed
    from dlio_torch.dist.launcher import Launch


def composed(command: Command, launch: Launch) -> Composed:
    """Composes the configuration that a command line describes.

    Raises:
        ConfigError: it is wrong.
    """
    from dlio_torch.config.compose import compose
    from dlio_torch.formats.core.registry import available

    refuse_other_keys(command)
    return compose(command.settings, world_size=launch.world_size, formats=available())


def refuse_other_keys(command: Command) -> None:
    """Refuse keys of other verbs.

    Raises:
        ConfigError: names the verbs that have the key.
    """
    from dlio_torch.config.arguments import split_argument
    from dlio_torch.config.fields import lookup
    from dlio_torch.study.verb_keys import verbs_of

    for argument in command.settings:
        key, _ = split_argument(argument)
        if (verbs := verbs_of(key)) and lookup(key.split(".")) is None:
            raise ConfigError(
                f"{argument} (command line): the verb {command.verb} has no such key",
                hint=f"use the key with {', '.join(verbs)}, or remove the argument",
            )


def refuse_launcher(command: Command, launch: Launch) -> None:
    """Refuse to run a study as one of several ranks.

    Raises:
        ConfigError: a launcher started this process with others.
    """
    if launch.world_size > 1:
        raise ConfigError(
            f"{command.verb} (command line): a launcher started this command as {launch.world_size} ranks, and a "
            "study needs a single process",
            hint=(
                "start the command without a launcher and set ranks=<n>; the study starts the ranks of each run itself"
            ),
        )


def holds_study(output: str | None, run: Composed) -> bool:
    """Whether the folder ``output=`` already holds a study.

    Args:
        output: as given; None: a new folder below ``output.root``.
        run: configuration of a run.

    Raises:
        PreconditionError: it holds something else, or cannot be used.
    """
    from dlio_torch.run_directory.results_folder import check_results_folder
    from dlio_torch.study.store import is_study

    exists = output is not None and is_study(Path(output))
    if output is None:
        root = Path(run.config.output.root)
        check_results_folder(root, "output.root", run.sources["output.root"], empty=False)
    else:
        check_results_folder(Path(output), "output", "command line", empty=not exists)
    return exists


def as_json(value: object) -> str:
    """Formats ``value`` as the JSON that ``--json`` prints."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
