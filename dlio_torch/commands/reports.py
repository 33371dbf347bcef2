"""The verbs report and compare: they evaluate recordings of runs and programs."""

from __future__ import annotations

import sys
from pathlib import Path

from dlio_torch.analysis.run_recording import open_recording, run_folder
from dlio_torch.commands.command_line import Command
from dlio_torch.commands.common import as_json
from dlio_torch.config.schema import OutputConfig
from dlio_torch.dist.launcher import Launch
from dlio_torch.errors import ConfigError, PreconditionError, ThresholdMissed
from dlio_torch.files.atomic_file import replaced
from dlio_torch.files.output_file import refuse_existing
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.run_directory import run_state
from dlio_torch.run_directory.run_dir import RunDir


def main(command: Command, launch: Launch) -> int:
    """Run the verb on the first rank; returns the exit code."""
    if launch.rank != 0:
        return 0
    if command.verb == "report":
        return _report(command)
    return _compare(command)


def _report(command: Command) -> int:
    if len(command.words) > 1 or (command.words and command.settings):
        raise ConfigError(
            f"report: {' '.join((*command.words, *command.settings))} (command line): exactly one path is needed",
            hint="name a run directory (report runs/<recipe>/<time>), a folder written by trace, or a log; without a "
            "path the newest run is reported",
        )
    output = _output(command, "json" if "--json" in command.flags else "html")
    path = Path(command.words[0]) if command.words else _newest(command)
    _say_if_early(path, "", command)
    if "--json" in command.flags:
        from dlio_torch.iotrace.figures.call_selection import data_only
        from dlio_torch.iotrace.figures.io_metrics import analyse

        text = as_json(analyse(data_only(open_recording(path))))
        if output is None:
            print(text, end="")
            return 0
        with replaced(output) as file:
            file.write(text.encode("utf-8"))
        print(f"report: {output}")
        return 0
    from dlio_torch.node.node_directory import NodeDirectory, is_node
    from dlio_torch.report.html import report_run
    from dlio_torch.study.store import is_study

    if is_study(path):
        from dlio_torch.study.session import write_page

        print(f"report: {write_page(path, output)}")
        return 0
    if is_node(path):
        from dlio_torch.node.node_page import write_node_page

        node = NodeDirectory(path.expanduser().absolute())
        print(f"report: {write_node_page(node.read(), node.path, output or node.report)}")
        return 0
    print(f"report: {report_run(path, output)}")
    return 0


def _newest(command: Command) -> Path:
    """The newest result below ``output.root``, which is named on stderr.

    Raises:
        PreconditionError: there is none.
    """
    from dlio_torch.commands.newest_run import newest

    root = Path(command.settings[-1].partition("=")[2] if command.settings else OutputConfig().root).expanduser()
    result = newest(root, studies="--json" not in command.flags)
    if result is None:
        raise PreconditionError(
            f"report: no run below output.root={root}", hint="give a path: report PATH, or output.root=DIR"
        )
    kind, path = result
    print(f"newest {kind}: {path}", file=sys.stderr, flush=True)
    return path


def _say_if_early(path: Path, side: str, command: Command) -> None:
    """Print a line if a run ended early: its figures cover only a part of the run."""
    folder = run_folder(path.expanduser().absolute())
    state = run_state.read(RunDir(folder).state) if folder.is_dir() else None
    why = state.why_early() if state is not None else None
    if why is not None:
        stream = sys.stderr if "--json" in command.flags else sys.stdout
        print(f"{side}ended early: {why}", file=stream)


def _output(command: Command, suffix: str) -> Path | None:
    """Returns the file named by ``--output``, or ``None``.

    Raises:
        ConfigError: it is a folder, its folder is not there, or it exists and ``--force`` is missing.
    """
    value = command.value("--output")
    if value is None:
        return None
    path = Path(value).expanduser().absolute()
    if path.is_dir() or value.endswith("/"):
        raise ConfigError(
            f"--output {value} (command line): the path is a folder, and a file is written",
            hint=f"give a file name: {path / 'report'}.{suffix}",
        )
    if not path.parent.is_dir():
        raise ConfigError(
            f"--output {value} (command line): there is no folder {path.parent}",
            hint=f"make the folder {path.parent} first, or name a file in another folder",
        )
    refuse_existing(path, f"--output {value}", force="--force" in command.flags)
    return path


def _compare(command: Command) -> int:
    from dlio_torch.iotrace.fidelity.compare_recordings import compare
    from dlio_torch.iotrace.fidelity.components import check, parse_limits
    from dlio_torch.iotrace.fidelity.pairing import mappings
    from dlio_torch.report.comparison_text import print_comparison, to_json

    if len(command.words) != 2:
        raise ConfigError(
            f"compare: {len(command.words)} paths (command line): compare needs exactly two paths",
            hint="name two recordings, for example: compare runs/x/1 application.darshan",
        )
    # Mistakes in the flags are told before the work is done.
    repeats = _repeats(command.all_values("--repeat"))
    storage = command.value("--storage")
    if storage not in (None, "same", "other"):
        raise ConfigError(
            f"--storage {storage} (command line): the value is neither same nor other",
            hint="write --storage same or --storage other",
        )
    files = mappings(command.all_values("--files"))
    limits = command.all_values("--fail")
    parse_limits(limits)
    a, b = (open_recording(Path(word)) for word in command.words)
    for side, word in zip("AB", command.words, strict=True):
        _say_if_early(Path(word), f"{side} ", command)
    utilisations, figures = (_of_sides(a, b, name) for name in ("utilisation", "figures"))
    if not limits and len(figures) == 2 and any(recording.kind == "run" and not recording.sees for recording in (a, b)):
        _show_figures(command, figures)
        return 0
    comparison = compare(
        a,
        b,
        files=files or None,
        per_rank="--per-rank" in command.flags,
        scale_free="--scale-free" in command.flags,
        same_storage=None if storage is None else storage == "same",
        repeats_a=[open_recording(path) for path in repeats["A"]],
        repeats_b=[open_recording(path) for path in repeats["B"]],
    )
    if "--json" in command.flags:
        print(as_json(to_json(comparison, utilisations, figures)), end="")
    else:
        print_comparison(comparison, sys.stdout, utilisations, figures)
    missed = check(comparison, limits)
    if missed:
        sys.stdout.flush()
        raise ThresholdMissed("; ".join(missed), hint="see the components above")
    return 0


def _of_sides(a: Recording, b: Recording, name: str) -> dict[str, dict[str, float]]:
    """A fact of the sides ``a`` and ``b`` that have it."""
    return {side: facts[name] for side, facts in (("a", a.facts), ("b", b.facts)) if facts.get(name)}


def _show_figures(command: Command, figures: dict[str, dict[str, float]]) -> None:
    """Show the figures of two runs, one of which recorded no call."""
    from dlio_torch.report.figure_comparison import figures_json, print_figures

    if "--json" in command.flags:
        print(as_json(figures_json(command.words, figures)), end="")
    else:
        print_figures(command.words, figures, sys.stdout)


def _repeats(values: list[str]) -> dict[str, list[Path]]:
    """Reads the further recordings of each side from the values ``A=PATH`` and ``B=PATH``."""
    recordings: dict[str, list[Path]] = {"A": [], "B": []}
    for value in values:
        side, _, path = value.partition("=")
        if side not in recordings or not path:
            raise ConfigError(
                f"--repeat {value} (command line): the value does not say which side the recording belongs to",
                hint="write --repeat A=PATH or B=PATH",
            )
        recordings[side].append(Path(path))
    return recordings
