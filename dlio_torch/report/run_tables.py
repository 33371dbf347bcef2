"""Prints the tables and the verdict of a run on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.table import Table

from dlio_torch.analysis.step_metrics import PARTS, SHARES
from dlio_torch.report.advice_text import draw_advice
from dlio_torch.report.cache_text import epochs_text, storage_text
from dlio_torch.report.expect import ExpectRow
from dlio_torch.report.io_text import draw_io
from dlio_torch.report.mpiio_text import mpiio_text
from dlio_torch.report.ranks_text import horovod_text
from dlio_torch.report.run_verdict import cache_state, percent, verdict
from dlio_torch.report.stage_text import stage_words
from dlio_torch.report.terminal import NOT_MEASURED, write
from dlio_torch.report.trace_text import trace_ends
from dlio_torch.units import format_duration, format_rate, format_size

_MOST_RANKS = 16
_LABELS = {
    "fetch": "fetch (waiting for data)",
    "copy": "copy to the GPU",
    "compute": "compute (emulated)",
    "allreduce": "allreduce",
    "checkpoint": "checkpoint",
    "other": "other (time of dlio_torch itself)",
    "between_epochs": "between epochs",
}


def print_report(
    summary: Mapping[str, Any],
    *,
    stream: TextIO,
    run_dir: Path | str | None = None,
    expect: Sequence[ExpectRow] = (),
) -> None:
    """Writes the tables and the verdict of a run.

    Args:
        summary: what :func:`dlio_torch.analysis.step_metrics.summarise` gave.
        stream: where to.
        run_dir: the run directory, named on the last line.
        expect: rows of :func:`dlio_torch.report.expect.compare`.
    """

    def draw(console: Console) -> None:
        console.print()
        console.print(_title(summary), style="bold")
        console.print(_facts(summary))
        if summary["step"]["duration_s"] is not None:
            console.print(_steps(summary))
        if summary.get("posix") is not None:
            draw_io(console, summary["posix"])
        if len(summary["ranks"]) > 1:
            console.print(_ranks(summary["ranks"]))
        if expect:
            console.print(_expected(expect, summary.get("published_on")))
        console.print(verdict(summary), style="bold")
        if summary.get("advice") is not None:
            draw_advice(console, summary["advice"])
        for warning in (summary.get("cache") or {}).get("warnings", ()):
            console.print(f"warning: {warning}")
        for line in trace_ends(summary):
            console.print(f"warning: {line}")
        if run_dir is not None:
            console.print(f"Results: {run_dir}", soft_wrap=True)  # a path stays on one line, to be copied

    write(stream, draw)


def _title(summary: Mapping[str, Any]) -> str:
    ranks = summary["world_size"]
    return f"{summary['recipe'] or 'run'}, scale {summary['scale']}, {ranks} rank{'s' if ranks != 1 else ''}"


def _facts(summary: Mapping[str, Any]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    train, warmup, evaluation = summary["train"], summary["warmup"], summary["eval"]
    if train["elapsed_s"] is None:
        table.add_row("measured", f"nothing: {train['why']}")
    else:
        table.add_row(
            "measured",
            f"{train['steps']} steps of each rank, {train['samples']} samples in "
            f"{format_duration(train['elapsed_s'])} ({warmup['steps']} warm-up steps left out)",
        )
        table.add_row(
            "throughput",
            f"{train['samples_per_s']:.4g} samples/s, {train['mib_per_s']:.4g} MiB/s of tensors "
            f"({format_size(train['bytes'])} delivered)",
        )
    if (resumed := summary.get("resumed")) is not None:
        table.add_row(
            "resumed",
            f"after step {resumed['step']} of epoch {resumed['epoch']}, from checkpoint {resumed['checkpoint_step']} "
            f"of {resumed['run']}",
        )
    settings = (summary.get("ranks_by") or {}).get("settings")
    if settings:
        table.add_row("Horovod", horovod_text(settings))
    table.add_row("accelerator utilisation", _utilisation(summary))
    if summary["compute_error"] is not None:
        error = summary["compute_error"]
        table.add_row(
            "compute time error",
            f"median {_signed(error['median_s'])}, 95 % of steps within {format_duration(error['p95_abs_s'])}, "
            f"largest {format_duration(error['max_abs_s'])}; {100 * error['relative_total']:+.2f} % of the requested "
            "compute time in all",
        )
    copies = summary.get("copies")
    if copies is not None:
        took = format_duration(copies["duration_s"]["median"])
        device = summary.get("gpu") or "the GPU"
        table.add_row("copies", f"{format_rate(copies['bytes_per_s'])} to {device}, {took} (median)")
    if summary["checkpoints"]["measured"]:
        saved = summary["checkpoints"]
        table.add_row("checkpoints", f"{saved['measured']}, {format_duration(saved['duration_s']['mean'])} each")
    if evaluation["steps"]:
        rate = evaluation["samples_per_s"]
        table.add_row(
            "evaluation",
            f"{evaluation['steps']} steps of each rank, {evaluation['samples']} samples"
            + ("" if rate is None else f", {rate:.4g} samples/s"),
        )
    if summary.get("stage") is not None:
        table.add_row("staged", stage_words(summary["stage"]))
    stalls = summary.get("stalls")
    if stalls is not None and stalls["largest"] is not None:
        table.add_row("causes of waits", stalls["sentence"])
    if summary.get("mpi_io") is not None:
        table.add_row("MPI-IO", mpiio_text(summary["mpi_io"]))
    table.add_row("page cache", cache_state(summary))
    cache, storage = summary.get("cache"), summary.get("storage")
    epochs = None if cache is None else epochs_text(cache)
    if epochs is not None:
        table.add_row("", epochs)
    if storage is not None and storage["share_of_most"] is not None:
        table.add_row("storage limit", storage_text(storage))
    return table


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
            "-" if row["samples_per_s"] is None else f"{row['samples_per_s']:.4g}",
            "-" if row["au"] is None else percent(row["au"]),
            *("-" if row[f"{part}_s"] is None else format_duration(row[f"{part}_s"]) for part in parts),
        )
    if len(rows) > _MOST_RANKS:
        table.caption = f"and {len(rows) - _MOST_RANKS} more ranks in summary.json"
    return table


def _expected(rows: Sequence[ExpectRow], published: Mapping[str, Any] | None) -> Table:
    conditions = f" (on {published['system']}, {published['world_size']} ranks)" if published else ""
    title = f"published{conditions} and measured"
    table = Table(box=box.SIMPLE, title=title, title_justify="left", title_style="none")
    table.add_column("figure", overflow="fold")
    for name in ("published", "measured", "ratio", "tolerance", "alike"):
        table.add_column(name, justify="right")
    table.add_column("source", overflow="fold")
    for row in rows:
        table.add_row(
            row.metric,
            f"{row.published:.4g}",
            "-" if row.measured is None else f"{row.measured:.4g}",
            "-" if row.ratio is None else f"{row.ratio:.3g}",
            f"{row.tolerance:.3g}",
            row.alike,
            row.source,
        )
    return table


def _signed(seconds: float) -> str:
    return f"{'+' if seconds > 0 else ''}{format_duration(seconds)}"
