"""Builds the top of the page: the verdict, the key figures, and notes on missing data."""

from __future__ import annotations

from dlio_torch.report.html.page_blocks import NOT_MEASURED, Block, Notes, Section, Tiles
from dlio_torch.report.html.run.view import View
from dlio_torch.report.html.theme import clean
from dlio_torch.report.run_verdict import verdict
from dlio_torch.report.stage_text import stage_words
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
    """Builds the block of key figures and of notes on missing data."""
    tiles = _run_tiles(view) if view.summary is not None else []
    tiles += _io_tiles(view)
    blocks: list[Block] = [Tiles(tiles)] if tiles else []
    notes = [*view.missing, *view.recording.notes]
    if len(notes) > _MOST_NOTES:
        notes[_MOST_NOTES:] = [f'and {len(notes) - _MOST_NOTES} more notes in the section "Missing data"']
    if notes:
        blocks.append(Notes([clean(note) for note in notes]))
    return Section("overview", "", blocks)


def _run_tiles(view: View) -> list[tuple[str, str, str]]:
    summary = view.summary
    assert summary is not None
    au, train, step = summary["au"], summary["train"], summary["step"]
    tiles = [
        (
            NOT_MEASURED if au["mean"] is None else percent(au["mean"]),
            "accelerator utilisation",
            str(au["why"])
            if au["mean"] is None
            else (f"requested compute time / elapsed time, compute.mode={summary['compute']['mode']}"),
        )
    ]
    if train["elapsed_s"] is not None:
        rate = format_rate(train["mib_per_s"] * 2**20)
        tiles.append((f"{train['samples_per_s']:.4g}", "samples/s, all ranks", f"{rate} of tensors"))
        duration, fetch = step["duration_s"], step["fetch_s"]
        tiles.append(
            (
                format_duration(duration["mean"]),
                ("mean time of a step"),
                (f"95 % of the steps take at most {format_duration(duration['p95'])}"),
            )
        )
        share = summary["shares"]["fetch"]
        waited = f"{percent(share)} of the elapsed time" if share is not None else NOT_MEASURED
        tiles.append((format_duration(fetch["mean"]), "mean wait for data per step", waited))
    if summary.get("stage") is not None:
        tiles.append(
            (format_size(summary["stage"]["bytes"]), ("copied to node-local storage"), stage_words(summary["stage"]))
        )
    io = summary["io"]
    if io["rchar_bytes"] is not None:
        device = io["read_bytes"]
        tiles.append(
            (
                format_size(io["rchar_bytes"]),
                "bytes read in all epochs, from any file",
                f"as the kernel counts for all ranks and workers; the device delivered {_measured(device)}",
            )
        )
    return tiles


def _measured(size: int | None) -> str:
    return NOT_MEASURED if size is None else format_size(size)


def _io_tiles(view: View) -> list[tuple[str, str, str]]:
    if not len(view.calls):
        return []
    tiles = []
    spent, share = view.io_time, view.io_share
    remark = ("union of the calls' intervals over all ranks") + (
        f", {percent(share[0])} of the {share[1]}" if share else ""
    )
    if spent.mean_per_rank_s is not None:
        remark += f"; {format_duration(spent.mean_per_rank_s)} per rank on average, summed over its calls"
    if view.recording.runtime_s is not None and view.summary is None:
        tiles.append((format_duration(view.recording.runtime_s), "run time", "of the recorded program"))
    tiles.append((format_duration(spent.global_s), "time in I/O calls", remark))
    for kind, figures in view.bandwidth.items():
        if kind == "all" or not figures.calls:
            continue
        rate = NOT_MEASURED if figures.bytes_per_s is None else format_rate(figures.bytes_per_s)
        done = "read" if kind == "read" else "written"
        if view.counted_only or view.recording.kind == "run":
            done += " by recorded calls" + (" on data files" if view.recording.kind == "run" else "")
        tiles.append((format_size(figures.bytes), done, f"{figures.calls:,} calls, {rate} during I/O time"))
    for layer, moved in view.counted_only.items():
        for size, done in zip(moved, ("read", "written"), strict=True):
            if size:
                tiles.append(
                    (
                        format_size(size),
                        f"{done} through {layer}",
                        ("known from counters: single calls were not recorded"),
                    )
                )
    sizes = view.sizes["all"]
    if sizes.median is not None and sizes.mean is not None:
        tiles.append((format_size(sizes.median), "median transfer size", f"mean {format_size(round(sizes.mean))}"))
    order = view.order["all"]
    if order.sequential is not None and order.consecutive is not None:
        remark = f"{percent(order.consecutive)} consecutive, per file"
        tiles.append((percent(order.sequential), "sequential", f"{remark}, {view.placed_words}".rstrip(", ")))
    return tiles
