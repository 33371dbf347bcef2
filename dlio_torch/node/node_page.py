"""HTML page of a measured node: one picture of the limits against the demand, and the tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlio_torch.node.node_text import (
    COMBINATION_COLUMNS,
    LIMIT_COLUMNS,
    combination_rows,
    limit_rows,
    unmeasured,
    unmeasured_combinations,
)
from dlio_torch.report.html.html_page import Page, write_html
from dlio_torch.report.html.page_blocks import Facts, Figure, Notes, Section, Table
from dlio_torch.report.html.svg import to_svg
from dlio_torch.report.html.theme import BLACK, BLUE, SKY, VERMILLION, canvas, legend, log_ticks
from dlio_torch.units import format_duration, format_number, format_rate, format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_METHOD = (
    "Samples per second of the whole node that each resource gives, on a logarithmic axis, measured alone and with all "
    "resources in use at the same time; the line is the demand of all accelerators: samples of a batch / seconds of "
    "compute of a step * accelerators. A bar that ends left of the line is a limit."
)
_SETTINGS = (
    "Each combination is a run of the recipe on one rank at the step time of one accelerator; median of its runs. au "
    "is the requested compute time over the elapsed time."
)
_ALONE, _SHARED = "alone", "all at the same time"


def write_node_page(record: Mapping[str, Any], folder: Path, target: Path) -> Path:
    """Writes the page.

    Args:
        record: content of ``node.json``.
        folder: directory of the measurement.
        target: the file.

    Returns:
        ``target``.

    Raises:
        MissingPackageError: the extra ``report`` is not installed.
        PreconditionError: the file cannot be written.
    """
    return write_html(lambda: _page(record, folder), target)


def _page(record: Mapping[str, Any], folder: Path) -> Page:
    host, variant = record["environment"]["host"], record["accelerator"]
    subtitle = f"measured with the recipe {record['recipe']}{f' ({variant})' if variant else ''}"
    sections = (
        Section("limits", "Limits and demand", tuple(_limit_blocks(record))),
        Section("combinations", "Loader settings", tuple(_combination_blocks(record))),
        Section("setup", "Demand and node", (Facts(tuple(_facts(record))),)),
    )
    return Page(f"Node {host}", subtitle, record["verdict"]["sentence"], sections, str(folder))


def _limit_blocks(record: Mapping[str, Any]) -> Iterator[Figure | Table | Notes]:
    svg = _picture(record)
    if svg:
        yield Figure(svg, "Limits of the node and the demand of its accelerators", _METHOD, "measured")
    rows = tuple(limit_rows(record))
    ways = "; ".join(f"{limit['name']}: {limit['method']}" for limit in record["limits"] if limit["method"])
    yield Table("Limits", ("<<limit", *LIMIT_COLUMNS), rows, ways)
    yield from _missing(unmeasured(record))


def _missing(unmeasured_parts: Iterable[tuple[str, str]]) -> Iterator[Notes]:
    """Notes on what was not measured; none if there is nothing."""
    lines = tuple(f"{name} was not measured: {why}" for name, why in unmeasured_parts)
    if lines:
        yield Notes(lines)


def _combination_blocks(record: Mapping[str, Any]) -> Iterator[Table | Notes]:
    texts = ("<<" + name for name in COMBINATION_COLUMNS[:1])
    rows = tuple(combination_rows(record))
    yield Table("Throughput", (*texts, *COMBINATION_COLUMNS[1:]), rows, " ".join((_SETTINGS, *record["left_out"])))
    yield from _missing(unmeasured_combinations(record))


def _facts(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    demand, requests, cpu = record["demand"], record["storage_requests"], record["environment"]["cpu"]
    rate = demand["samples_per_s"]
    yield "accelerators", f"{demand['accelerators']} ({demand['source']})"
    yield "batch of one accelerator", f"{demand['batch_size']} samples in {format_duration(demand['step_s'])}"
    yield "demand", demand["why"] if rate is None else f"{format_number(rate)} samples/s"
    if rate is not None:
        yield "demand in stored bytes", format_rate(demand["stored_bytes_per_s"])
    if requests["latency_s"] is not None:
        yield "latency of a small read", f"{format_duration(requests['latency_s'])} ({requests['latency_how']})"
        yield "small reads", f"{format_number(requests['requests_per_s'])} requests/s ({requests['rate_how']})"
    yield "processor", f"{cpu['model'] or cpu['machine']}, {format_number(cpu['cores_usable'])} usable cores"
    memory = record["environment"]["memory"]["total_bytes"]
    if memory is not None:
        yield "memory", format_size(memory)
    yield "system load", f"{record['load']['before']:.1f} before, {record['load']['after']:.1f} after"
    yield "measured at", f"{record['measured_at']}, in {format_duration(record['elapsed_s'])}"


def _picture(record: Mapping[str, Any]) -> str:
    """The limits as bars on a logarithmic axis with the demand as a line; empty if nothing was measured."""
    limits = [limit for limit in record["limits"] if limit["samples_per_s"]]
    if not limits:
        return ""
    shared = {limit["name"]: limit["samples_per_s"] for limit in record["limits_together"]}
    rate = record["demand"]["samples_per_s"]
    tips: dict[str, str] = {}
    with canvas(1.1 + 0.42 * len(limits)) as (figure, [axes]):
        for row, limit in enumerate(limits):
            pairs = ((_ALONE, BLUE, limit["samples_per_s"]), (_SHARED, SKY, shared.get(limit["name"])))
            for place, (state, colour, value) in enumerate(pairs):
                if value:
                    _bar(axes, row + 0.36 * (place - 0.5), value, colour, f"{limit['name']}-{place}")
                    tips[f"{limit['name']}-{place}"] = f"{limit['name']}, {state}: {format_number(value)} samples/s"
        _axes(axes, [limit["name"] for limit in limits], rate)
        entries = [(_ALONE, BLUE), (_SHARED, SKY), *([("demand", VERMILLION)] if rate else [])]
        legend(figure, entries)
        return to_svg(figure, "node", record["verdict"]["sentence"], tips)


def _bar(axes: Axes, place: float, value: float, colour: str, identifier: str) -> None:
    [bar] = axes.barh([place], [value], 0.34, color=colour, zorder=2, log=True)
    bar.set_gid(identifier)
    axes.annotate(
        format_number(value), (value, place), (4, 0), textcoords="offset points", va="center", fontsize=8.5, color=BLACK
    )


def _axes(axes: Axes, names: list[str], rate: float | None) -> None:
    if rate:
        axes.axvline(rate, color=VERMILLION, lw=1.6, zorder=3)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0, labelcolor=BLACK)
    axes.set_ylim(len(names) - 0.5, -0.5)
    low, high = axes.get_xlim()
    low, high = min(low, rate or low) / 2, max(high, rate or high) * 3
    axes.set_xlim(low, high)
    log_ticks(axes.xaxis, low, high)
    axes.set_xlabel("samples/s of the node")
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
