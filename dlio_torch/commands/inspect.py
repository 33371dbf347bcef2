"""The verb inspect: says what existing data hold, and the settings that read them."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from dlio_torch.commands.command_line import Command
from dlio_torch.commands.common import as_json
from dlio_torch.config.arguments import split_argument
from dlio_torch.config.fields import lookup
from dlio_torch.config.layers import COMMAND_LINE, unknown
from dlio_torch.dist.launcher import Launch
from dlio_torch.errors import ConfigError, DlioError, PreconditionError
from dlio_torch.files.atomic_file import replace_text
from dlio_torch.files.output_file import yaml_output

if TYPE_CHECKING:
    from dlio_torch.formats.core.inspection import Inspection
    from dlio_torch.report.inspection_text import DataAmount

_FORMAT = "dataset.format"
_OF_GENERATED = ("dataset.root", "dataset.num_files", "dataset.num_files_eval", "dataset.num_subfolders")
"""Options without effect on existing data."""


def main(command: Command, launch: Launch) -> int:
    """Inspect and print on the first rank; returns the exit code.

    Raises:
        ConfigError: a mistake in the arguments.
        DataError: the data cannot be read.
    """
    if launch.rank != 0:
        return 0
    settings = _settings(command)
    if len(command.words) != 1:
        raise ConfigError(
            f"inspect: {' '.join(command.words) or 'nothing'} (command line): exactly one path is needed",
            hint="name a file, a folder or a quoted pattern: inspect PATH",
        )
    from dlio_torch.formats.core.inspection import answered, inspect_path
    from dlio_torch.report.inspection_text import print_inspection, recipe_text, to_json

    output = yaml_output(command.value("--output"), "recipe", force="--force" in command.flags)
    inspection = answered(inspect_path(command.words[0], settings.get(_FORMAT, "")), settings)
    amount = _amount(inspection, settings)
    if "--json" in command.flags:
        print(as_json(to_json(inspection, amount)), end="")
    else:
        print_inspection(inspection, amount, sys.stdout)
    if output is not None:
        replace_text(output, recipe_text(inspection, amount))
        print(f"recipe: {output}", file=sys.stderr)
    if amount.problem:
        raise PreconditionError(amount.problem)
    return 0


def _settings(command: Command) -> dict[str, str]:
    """The settings of the command line, options of ``dataset`` alone.

    Raises:
        ConfigError: an unknown option, or one of another group.
    """
    for word in command.words:  # a path may hold "=", too
        key, equals, value = word.partition("=")
        if equals and lookup(key.split(".")) is not None and not os.path.lexists(word):
            raise ConfigError(
                f"{key}={value} (command line): inspect takes options of dataset only, such as dataset.format=hdf5",
                hint="remove it, or use it with the verb run",
            )
    settings = dict(split_argument(setting) for setting in command.settings)
    for key, value in settings.items():
        if lookup(key.split(".")) is None:
            raise unknown(tuple(key.split(".")), value, COMMAND_LINE)
        if key == "dataset.path":
            raise ConfigError(
                f"{key}={value} (command line): inspect takes the path as a word", hint=f"write inspect {value}"
            )
        if key in _OF_GENERATED:
            raise ConfigError(
                f"{key}={value} (command line): only generated data have this option, and inspect reads existing data",
                hint=f"remove {key}",
            )
    return settings


def _amount(inspection: Inspection, settings: dict[str, str]) -> DataAmount:
    """Counts samples and bytes as a run does; a data set with open questions is only listed."""
    from dlio_torch.config.compose import compose
    from dlio_torch.data.engines.registry import format_of
    from dlio_torch.formats.core.registry import available
    from dlio_torch.preflight.data_location import locate_data
    from dlio_torch.report.inspection_text import DataAmount

    if inspection.description.questions:
        return DataAmount(inspection.files)
    answers = [f"{key}={value}" for key, value in settings.items()]
    path = f"dataset.path={inspection.path}"
    try:
        options = replace(inspection, given={}).settings()
        composed = compose([path, "train.batch_size=1", *answers], formats=available(), data_options=options)
        config = composed.config
        data = locate_data(config, format_of(config))
    except DlioError as error:
        return DataAmount(inspection.files, problem=str(error))
    manifest = data.manifests["train"]
    return DataAmount(manifest.num_files, manifest.num_samples, data.bytes)
