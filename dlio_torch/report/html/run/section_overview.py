"""Builds the top of the page: the verdict, the picture, the key figures, what to change, and notes on missing data."""

from __future__ import annotations

from dlio_torch.report.html.page_blocks import NOT_MEASURED, Block, Notes, Section, Tiles
from dlio_torch.report.html.run.key_figures import call_tiles, run_tiles
from dlio_torch.report.html.run.mean_step import mean_step_figure
from dlio_torch.report.html.run.section_advice import change_list
from dlio_torch.report.html.run.view import View
from dlio_torch.report.html.theme import clean
from dlio_torch.report.run_verdict import verdict
from dlio_torch.train.steps import TIMED
from dlio_torch.units import format_duration, format_rate, format_size, percent

_MOST_NOTES = 12
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
    summary = view.summary
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
    return command if len(command) <= _MOST_LETTERS else f"{command[:_MOST_LETTERS]}…"


def sentence(view: View) -> str:
    """The verdict as a sentence; for a run that ended early, it begins with the reason."""
    early = view.recording.facts.get("ended_early")
    return _judged(view) if early is None else f"The run ended early: {early}. {_judged(view)}"


def _judged(view: View) -> str:
    if view.summary is not None:
        return verdict(view.summary)
    if len(view.moves):
        return _io_sentence(view)
    counters = view.recording.counters
    if counters is not None and len(counters):
        read = counters["bytes_read"].clip(lower=0).sum()
        written = counters["bytes_written"].clip(lower=0).sum()
        return (
            f"The program's counters contain {format_size(int(read))} read and {format_size(int(written))} written "
            f"in {counters['file'].nunique()} files; single calls were not recorded."
        )
    if view.steps is not None and len(view.steps):
        waited = float(view.steps["fetch_ns"].sum()) * 1e-9
        spent = float(view.steps[[f"{part}_ns" for part in TIMED]].sum().sum()) * 1e-9
        return (
            f"The run did not finish: of its {len(view.steps)} recorded steps' time, {format_duration(waited)} "
            f"({percent(waited / spent) if spent else NOT_MEASURED}) was waiting for data."
        )
    return "The recording holds no data for a verdict."


def _io_sentence(view: View) -> str:
    rates = view.bandwidth
    sizes = view.sizes["all"]
    order = view.order["all"]
    spent, runtime, share = view.io_time, view.recording.runtime_s, view.io_share
    who = f"{view.ranks} ranks" if view.ranks > 1 else "The program"
    text = f"{who} read {format_size(rates['read'].bytes)} and wrote {format_size(rates['write'].bytes)}"
    text += f" within {format_duration(runtime)}" if runtime else ""
    files = view.moves["file"].nunique()
    text += f" in {files} file{'' if files == 1 else 's'}"
    if view.counted_words:
        text += f", and by counters without recorded calls {view.counted_words}"
    text += f"; {'at least one of them' if view.ranks > 1 else 'it'} was in an I/O call for "
    text += format_duration(spent.global_s)
    text += f" ({percent(share[0])} of the {share[1]})" if share else ""
    if rates["all"].bytes_per_s is not None:
        text += f", moving {format_rate(rates['all'].bytes_per_s)}"
    if sizes.median is not None:
        text += f"; half of the transfers are of {format_size(sizes.median)} or less"
    if order.sequential is not None:
        text += f", {percent(order.sequential)} {view.placed_words or 'of them'} are sequential"
    return f"{text}."


def overview(view: View) -> Section:
    """Builds the first screen: the picture, the key figures, what to change, and notes on missing data."""
    figure = mean_step_figure(view)
    blocks: list[Block] = [figure] if figure is not None else []
    tiles = run_tiles(view) if view.summary is not None else call_tiles(view)
    blocks += [Tiles(tiles)] if tiles else []
    changes = change_list(view)
    blocks += [changes] if changes is not None else []
    notes = [*view.missing, *view.recording.notes]
    if len(notes) > _MOST_NOTES:
        notes[_MOST_NOTES:] = [f'and {len(notes) - _MOST_NOTES} more notes in the section "Missing data"']
    if notes:
        blocks.append(Notes([clean(note) for note in notes]))
    return Section("overview", "", blocks)
