"""The verb node: measures what this machine can feed, and which part of it is the first limit.

Mistakes in the arguments are found before anything is imported that takes time, printed or written.
"""

from __future__ import annotations

import sys

from dlio_torch.commands.command_line import Command
from dlio_torch.commands.common import as_json, refuse_launcher, refuse_other_keys
from dlio_torch.dist.launcher import Launch
from dlio_torch.errors import ConfigError, MissingPackageError
from dlio_torch.files.atomic_file import replace_text
from dlio_torch.files.output_file import yaml_output

_MOST_ACCELERATORS = 1024
_LEAST_S, _MOST_S = 0.05, 60.0


def main(command: Command, launch: Launch) -> int:
    """Measure the node and print the result; returns the exit code.

    Raises:
        DlioError: a mistake in the arguments, too little space, or nothing could be measured.
    """
    refuse_launcher(command, launch)
    refuse_other_keys(command)
    output = yaml_output(command.value("--output"), "system", force="--force" in command.flags)
    accelerators, seconds = _accelerators(command), _seconds(command)

    from dlio_torch.node.node_directory import NodeDirectory
    from dlio_torch.node.node_measurement import measure_node
    from dlio_torch.node.node_page import write_node_page
    from dlio_torch.node.node_plan import plan_node
    from dlio_torch.node.node_request import NodeRequest
    from dlio_torch.node.node_text import print_node
    from dlio_torch.node.system_file import system_text
    from dlio_torch.study.session import say

    plan = plan_node(NodeRequest(command.settings, accelerators, seconds))
    if "--dry-run" in command.flags:
        print("\n".join(plan.lines()))
        return 0
    quiet = "--quiet" in command.flags
    for line in () if quiet else plan.lines():
        say(line)
    directory = NodeDirectory.create(plan.config.output.root, plan.config.recipe)
    record = measure_node(plan, directory, _ignore if quiet else say)
    if "--json" in command.flags:
        print(as_json({**record, "directory": str(directory.path)}), end="")
    else:
        print_node(record, sys.stdout)
    if output is not None:
        replace_text(output, system_text(record, output.stem))
        say(f"system: {output}")
    try:
        say(f"report: {write_node_page(record, directory.path, directory.report)}")
    except MissingPackageError as error:
        say(f"report.html was not written: {error}")
    return 0


def _accelerators(command: Command) -> int | None:
    text = command.value("--accelerators")
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 6 and 0 < int(text) <= _MOST_ACCELERATORS):
        raise ConfigError(
            f"--accelerators {text} (command line): expected a number from 1 to {_MOST_ACCELERATORS}",
            hint="write the number of accelerators of the node, for example --accelerators 8",
        )
    return int(text)


def _seconds(command: Command) -> float:
    from dlio_torch.node.node_request import SECONDS
    from dlio_torch.units import parse_duration

    text = command.value("--seconds")
    if text is None:
        return SECONDS
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise ConfigError(f"--seconds {text} (command line): {error}", hint="for example --seconds 3") from None
    if not _LEAST_S <= seconds <= _MOST_S:
        raise ConfigError(
            f"--seconds {text} (command line): the time must be from {_LEAST_S:g} s to {_MOST_S:g} s",
            hint="for example --seconds 3",
        )
    return seconds


def _ignore(line: str) -> None:
    """Print no progress."""
