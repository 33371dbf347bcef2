"""Prints the verdict, the key figures and the tables of a run on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, TypeGuard

from rich import box
from rich.console import Console
from rich.table import Table

from dlio_torch.analysis.step_metrics import PARTS, SHARES
from dlio_torch.report.advice_text import draw_advice
from dlio_torch.report.cache_text import epochs_text, storage_text
from dlio_torch.report.checkpoint_text import checkpoint_rows
from dlio_torch.report.expect import ExpectRow, figure_text
from dlio_torch.report.goodput_text import goodput_rows
from dlio_torch.report.io_text import draw_io
from dlio_torch.report.loader_io_text import loader_io_rows
from dlio_torch.report.mpiio_text import mpiio_text
from dlio_torch.report.ranks_text import horovod_text
from dlio_torch.report.run_verdict import BUSY, cache_state, level, verdict
from dlio_torch.report.stage_text import stage_words
from dlio_torch.report.terminal import NOT_MEASURED, unbroken, write
from dlio_torch.report.trace_text import trace_ends
from dlio_torch.report.utilisation_text import limits_text
from dlio_torch.report.workers_text import workers_rows
from dlio_torch.units import counted, format_duration, format_number, format_rate, format_size, percent

_MOST_RANKS = 16
_WORTH_A_LINE = 0.001  # share of the time
_COLOURS = {"good": "green", "fair": "yellow", "poor": "red", "": ""}
_LABELS = {
    "fetch": "waiting for data",
    "copy": "copy to the GPU",
    "compute": "emulated compute",
    "allreduce": "allreduce",
    "checkpoint": "checkpoints",
    "other": "dlio_torch itself",
    "between_epochs": "between epochs",
}


def print_report(
    summary: Mapping[str, Any],
    *,
    stream: TextIO,
    run_dir: Path | str | None = None,
    expect: Sequence[ExpectRow] = (),
    verbose: bool = False,
) -> None:
    """Writes the verdict of a run, its key figures, advice and warnings.

    Args:
        summary: what :func:`dlio_torch.analysis.step_metrics.summarise` gave.
        stream: where to.
        run_dir: the run directory, named on the last line.
        expect: rows of :func:`dlio_torch.report.expect.compare`.
        verbose: all tables: parts of a step, ranks, published figures.
    """

    def draw(console: Console) -> None:
        console.print()
        console.print(_title(summary), style="dim")
        console.print(unbroken(verdict(summary)), style=f"bold {_COLOURS[level(summary)]}".strip())
        console.print()
        console.print(_key_figures(summary, expect, verbose=verbose))
        if verbose and summary["step"]["duration_s"] is not None:
            console.print(_steps(summary))
        if summary.get("posix") is not None:
            draw_io(console, summary["posix"])
        if verbose and len(summary["ranks"]) > 1:
            console.print(_ranks(summary["ranks"]))
        if verbose and expect:
            console.print(_expected(expect, summary.get("published_on")))
        console.print()
        if summary.get("advice") is not None:
            draw_advice(console, summary["advice"])
        for warning in (*(summary.get("cache") or {}).get("warnings", ()), *trace_ends(summary)):
            console.print(f"warning: {warning}", style="yellow")
        if run_dir is not None:
            console.print(f"Results: {run_dir}", soft_wrap=True)  # a path stays on one line, to be copied

    write(stream, draw)


def _title(summary: Mapping[str, Any]) -> str:
    return f"{summary['recipe'] or 'run'}, scale {summary['scale']}, {counted(summary['world_size'], 'rank')}"


def _key_figures(summary: Mapping[str, Any], expect: Sequence[ExpectRow], *, verbose: bool) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _rows(summary, verbose=verbose):
        table.add_row(name, unbroken(text))
    if expect and not verbose:
        table.add_row("published figures", unbroken(_published(expect, summary.get("published_on"))))
    return table


def _rows(summary: Mapping[str, Any], *, verbose: bool) -> Iterator[tuple[str, str]]:
    """Names and texts of the key figures; figures that say nothing are left out unless ``verbose``."""
    train, warmup, evaluation = summary["train"], summary["warmup"], summary["eval"]
    yield "accelerator utilisation", _utilisation(summary)
    if limits := limits_text(summary, hints=(summary["au"]["mean"] or BUSY) < BUSY, reasons=verbose):
        yield "limits of utilisation", limits
    if train["elapsed_s"] is None:
        yield "measured", f"nothing: {train['why']}"
    else:
        rate = format_rate(train["mib_per_s"] * 2**20)
        size = format_size(train["bytes"])
        yield "throughput", f"{format_number(train['samples_per_s'])} samples/s, {rate} of tensors ({size} delivered)"
        yield (
            "measured",
            f"{counted(train['steps'], 'step')} of each rank, {counted(train['samples'], 'sample')} in "
            f"{format_duration(train['elapsed_s'])} ({counted(warmup['steps'], 'warm-up step')} left out)",
        )
    if summary["step"]["duration_s"] is not None:
        yield "time of a step", _parts(summary)
    stalls, waits = summary.get("stalls"), summary["shares"].get("fetch") or 0.0
    if stalls is not None and stalls["largest"] is not None and (verbose or waits >= _WORTH_A_LINE):
        yield "causes of waits", stalls["sentence"]
    yield "page cache", cache_state(summary)
    cache, storage = summary.get("cache"), summary.get("storage")
    if cache is not None and (epochs := epochs_text(cache)) is not None:
        yield "", epochs
    if storage is not None and storage["share_of_most"] is not None:
        yield "storage limit", storage_text(storage)
    if (resumed := summary.get("resumed")) is not None:
        yield (
            "resumed",
            f"after step {resumed['step']} of epoch {resumed['epoch']}, from checkpoint {resumed['checkpoint_step']} "
            f"of {resumed['run']}",
        )
    settings = (summary.get("ranks_by") or {}).get("settings")
    if settings:
        yield "Horovod", horovod_text(settings)
    error = summary["compute_error"]
    if error is not None and (verbose or abs(error["relative_total"]) >= _WORTH_A_LINE):
        yield (
            "compute time error",
            f"median {_signed(error['median_s'])}, 95 % of steps within {format_duration(error['p95_abs_s'])}, "
            f"largest {format_duration(error['max_abs_s'])}; {100 * error['relative_total']:+.2f} % of the requested "
            "compute time in all",
        )
    copies = summary.get("copies")
    if copies is not None:
        took = format_duration(copies["duration_s"]["median"])
        yield "copies", f"{format_rate(copies['bytes_per_s'])} to {summary.get('gpu') or 'the GPU'}, {took} (median)"
    if (decoding := summary.get("device_decoding") or {}).get("samples"):
        rate, took = format_number(decoding["samples_per_s"]), format_duration(decoding["duration_s"]["median"])
        yield "decoded on the GPU", f"{rate} samples/s, {took} a batch (median), a part of the copies"
    if (ahead := summary.get("copies_ahead")) is not None:
        yield "copies ahead", _copies_ahead(ahead, summary.get("gpu") or "the GPU")
    yield from checkpoint_rows(summary)
    if summary.get("goodput") is not None:
        yield from goodput_rows(summary["goodput"])
    if evaluation["steps"]:
        speed = evaluation["samples_per_s"]
        yield (
            "evaluation",
            f"{counted(evaluation['steps'], 'step')} of each rank, {counted(evaluation['samples'], 'sample')}"
            + ("" if speed is None else f", {format_number(speed)} samples/s"),
        )
    yield from workers_rows(summary, verbose=verbose)
    if summary.get("stage") is not None:
        yield "staged", stage_words(summary["stage"])
    yield from loader_io_rows(summary)
    if summary.get("mpi_io") is not None:
        yield "MPI-IO", mpiio_text(summary["mpi_io"])


def _copies_ahead(ahead: Mapping[str, Any], gpu: str) -> str:
    if ahead["bytes_per_s"] is None:
        return f"{counted(ahead['batches'], 'batch', 'batches')} to {gpu}"
    took = format_duration(ahead["duration_s"]["median"])
    return (
        f"{format_rate(ahead['bytes_per_s'])} to {gpu}, {took} (median), "
        f"{percent(ahead['hidden_share'])} of their time hidden behind other work of the steps"
    )


def _parts(summary: Mapping[str, Any]) -> str:
    """Mean duration of a step, and what it was spent on; parts that took none of it are left out."""
    shares = {part: summary["shares"].get(part) or 0.0 for part in SHARES}
    largest = sorted((part for part in SHARES if shares[part] >= 0.0005), key=lambda part: -shares[part])
    spent = ", ".join(f"{_LABELS[part]} {percent(shares[part])}" for part in largest)
    return f"{format_duration(summary['step']['duration_s']['mean'])}: {spent}"


def _published(rows: Sequence[ExpectRow], published: Mapping[str, Any] | None) -> str:
    """How many published figures this run has, and which it has not."""
    alike, other, scaled, unmeasured = (
        [row for row in rows if row.alike == word] for word in ("yes", "no", "scaled", "not measured")
    )
    system = f" on {published['system']}" if _is_known(published) else ""
    text = f"{len(alike)} of {counted(len(alike) + len(other), 'measured figure')} as published{system}"
    if other:
        named = (f"{row.metric} {_shown(row, row.measured)} (published {_shown(row, row.published)})" for row in other)
        text += f"; different: {', '.join(named)}"
    left = [f"{len(scaled)} changed by the scale"] if scaled else []
    left += [f"{len(unmeasured)} not measured"] if unmeasured else []
    return f"{text}; {', '.join(left)} (-v lists all)" if left else f"{text} (-v lists all)"


def _is_known(published: Mapping[str, Any] | None) -> TypeGuard[Mapping[str, Any]]:
    return published is not None and published["system"] != "unknown"


def _shown(row: ExpectRow, value: float | None) -> str:
    return figure_text(row.metric, value)


def _utilisation(summary: Mapping[str, Any]) -> str:
    au = summary["au"]
    if au["mean"] is None:
        return f"{NOT_MEASURED}: {au['why']}"
    text = f"{percent(au['mean'])} of an emulated accelerator (compute.mode={summary['compute']['mode']})"
    return text if len(summary["ranks"]) == 1 else f"{text}, rank with the lowest {percent(au['min'])}"


def _steps(summary: Mapping[str, Any]) -> Table:
    table = Table(box=box.SIMPLE, title="time of a step", title_justify="left", title_style="none")
    table.add_column("part")
    for name in ("mean", "median", "p95", "max", "share"):
        table.add_column(name, justify="right")
    for part in SHARES:
        share = summary["shares"].get(part)
        stats = summary["step"][f"{part}_s"] if part in PARTS else None
        if share is None or (part == "between_epochs" and share < 0.0005):
            continue
        cells = [format_duration(stats[name]) if stats else "" for name in ("mean", "median", "p95", "max")]
        table.add_row(_LABELS[part], *cells, percent(share))
    table.add_section()
    whole = summary["step"]["duration_s"]
    table.add_row("whole step", *(format_duration(whole[name]) for name in ("mean", "median", "p95", "max")), "")
    return table


def _ranks(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE, title="ranks (times: mean of a step)", title_justify="left", title_style="none")
    copies = ("copy",) if any(row.get("copy_s") is not None for row in rows) else ()
    parts = ("fetch", *copies, "compute", "allreduce", "other")
    for name in ("rank", "steps", "samples/s", "utilisation", *parts):
        table.add_column(name, justify="right")
    for row in rows[:_MOST_RANKS]:
        table.add_row(
            str(row["rank"]),
            str(row["steps"]),
            "-" if row["samples_per_s"] is None else format_number(row["samples_per_s"]),
            "-" if row["au"] is None else percent(row["au"]),
            *("-" if row[f"{part}_s"] is None else format_duration(row[f"{part}_s"]) for part in parts),
        )
    if len(rows) > _MOST_RANKS:
        table.caption = f"and {len(rows) - _MOST_RANKS} more ranks in summary.json"
    return table


def _expected(rows: Sequence[ExpectRow], published: Mapping[str, Any] | None) -> Table:
    conditions = ""
    if _is_known(published):
        conditions = f" (on {published['system']}, {counted(published['world_size'], 'rank')})"
    title = f"published{conditions} and measured"
    table = Table(box=box.SIMPLE, title=title, title_justify="left", title_style="none")
    table.add_column("figure", no_wrap=True)
    for name in ("published", "measured", "ratio", "tolerance", "alike"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("source", overflow="fold")
    for row in rows:
        table.add_row(
            row.metric,
            _shown(row, row.published),
            _shown(row, row.measured),
            "-" if row.ratio is None else f"{row.ratio:.3g}",
            percent(row.tolerance),
            row.alike,
            row.source,
        )
    return table


def _signed(seconds: float) -> str:
    return f"{'+' if seconds > 0 else ''}{format_duration(seconds)}"
