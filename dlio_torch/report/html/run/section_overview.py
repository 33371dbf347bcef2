"""Builds the top of the page: the verdict, the picture, the key figures, what to change, and notes on missing data."""

from __future__ import annotations

from dlio_torch.report import standalone_text
from dlio_torch.report.html.page_blocks import NOT_MEASURED, Block, Notes, Section, Tiles
from dlio_torch.report.html.run.io_time_figure import KINDS, io_time_figure, seconds_by_kind
from dlio_torch.report.html.run.key_figures import call_tiles, run_tiles, unfinished_tiles
from dlio_torch.report.html.run.mean_step import mean_step_figure
from dlio_torch.report.html.run.section_advice import change_list
from dlio_torch.report.html.run.view import View
from dlio_torch.report.html.theme import clean
from dlio_torch.report.run_verdict import verdict
from dlio_torch.train.steps import TIMED
from dlio_torch.units import format_duration, format_size, percent

_MOST_NOTES = 12
_LITTLE = 0.05  # share of the time
_MOST_LETTERS = 160  # of a command
_KINDS = {
    "run": "run of dlio_torch",
    "trace": "recorded program",
    "darshan": "Darshan log",
    "dftracer": "DFTracer trace",
    "strace": "strace log",
}


def title(view: View) -> str:
    """The heading of the page."""
    summary = view.summary or view.standalone
    if summary is not None:
        return f"{summary['recipe'] or 'run'}, scale {summary['scale']}"
    if view.recording.kind == "trace" and view.command_line:
        return _cut(view.command_line)
    return view.recording.path.name or str(view.recording.path)


def subtitle(view: View) -> str:
    """One line that says what kind of recording the page is about."""
    parts = [_KINDS[view.recording.kind]]
    if view.ranks:
        parts.append(f"{view.ranks} rank{'' if view.ranks == 1 else 's'}")
    if view.summary is not None and view.summary.get("description"):
        parts.append(str(view.summary["description"]))
    if view.recording.kind == "trace":
        parts.append(str(view.recording.path))
    elif view.command_line:
        parts.append(_cut(view.command_line))
    return " · ".join(parts)


def _cut(command: str) -> str:
    command = " ".join(command.split())  # a program in quotes may have lines
    return command if len(command) <= _MOST_LETTERS else f"{command[:_MOST_LETTERS]}…"


def sentence(view: View) -> str:
    """The verdict as a sentence; for a run that ended early, it begins with the reason."""
    early = view.recording.facts.get("ended_early")
    return _judged(view) if early is None else f"The run ended early: {early}. {_judged(view)}"


def _judged(view: View) -> str:
    if view.summary is not None:
        return verdict(view.summary)
    if view.standalone is not None:
        figures = view.standalone["checkpoints"]
        return " ".join([standalone_text.verdict(figures), *map(_as_sentence, standalone_text.warnings(figures))])
    if len(view.moves):
        return _call_verdict(view)
    counters = view.recording.counters
    if counters is not None and len(counters):
        read = counters["bytes_read"].clip(lower=0).sum()
        written = counters["bytes_written"].clip(lower=0).sum()
        return (
            f"The program's counters contain {format_size(int(read))} read and {format_size(int(written))} written "
            f"in {counters['file'].nunique()} files; single calls were not recorded"
            f"{_first_findings(view)}."
        )
    if view.steps is not None and len(view.steps):
        waited = float(view.steps["fetch_ns"].sum()) * 1e-9
        spent = float(view.steps[[f"{part}_ns" for part in TIMED]].sum().sum()) * 1e-9
        return (
            f"The run did not finish: of its {len(view.steps)} recorded steps' time, {format_duration(waited)} "
            f"({percent(waited / spent) if spent else NOT_MEASURED}) was waiting for data."
        )
    return "The recording holds no data for a verdict."


def _as_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _call_verdict(view: View) -> str:
    """The share of the time in I/O calls, the kind of call with most of it, and the first findings."""
    share, times = view.io_share, seconds_by_kind(view)
    spent = format_duration(view.io_time.global_s)
    who = "at least one rank is" if view.ranks > 1 else "the program is"
    text = f"{who} in an I/O call for {spent}"
    if share is not None:
        text += f", {percent(share[0])} of the {share[1]}"
        small = share[0] < _LITTLE
        text = f"I/O {'does not limit' if small else 'takes much of'} the time of this program: {text}"
    if times is not None:
        kind, part = times.largest
        text += f"; {KINDS[kind]} calls take {percent(part)} of the time in calls"
    return f"{text[0].upper()}{text[1:]}{_first_findings(view)}."


def _first_findings(view: View) -> str:
    return "".join(f"; {finding.text}" for finding in view.findings[:2])


def overview(view: View) -> Section:
    """Builds the first screen: the picture, the key figures, what to change, and notes on missing data."""
    figure = mean_step_figure(view) or (io_time_figure(view) if view.recording.kind != "run" else None)
    blocks: list[Block] = [figure] if figure is not None else []
    tiles = run_tiles(view) if view.summary is not None else unfinished_tiles(view) or call_tiles(view)
    blocks += [Tiles(tiles)] if tiles else []
    changes = change_list(view)
    blocks += [changes] if changes is not None else []
    notes = [*view.missing, *view.recording.notes]
    if len(notes) > _MOST_NOTES:
        notes[_MOST_NOTES:] = [f'and {len(notes) - _MOST_NOTES} more notes in the section "Missing data"']
    if notes:
        blocks.append(Notes([clean(note) for note in notes]))
    return Section("overview", "", blocks)
