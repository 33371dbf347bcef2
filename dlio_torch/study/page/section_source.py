"""Section on page cache and storage: source of the bytes, and limit of the storage."""

from __future__ import annotations

from collections.abc import Sequence

from dlio_torch.analysis.cache import WARM
from dlio_torch.report.html.page_blocks import UNKNOWN, Block, Figure, Section, Table
from dlio_torch.report.html.svg import to_svg
from dlio_torch.report.html.theme import BLACK, GREY, SKY, VERMILLION, clean, panels, size_unit
from dlio_torch.study.metrics import DEVICE_SHARE, STORAGE_LIMIT, STORAGE_RATE, STORAGE_SHARE
from dlio_torch.study.page.marks import cut, handle, legend_of
from dlio_torch.study.page.page_sentences import status, warned
from dlio_torch.study.page.point_trials import PointTrials
from dlio_torch.study.page.points import StudyView
from dlio_torch.study.values import text_of
from dlio_torch.units import percent

_MOST_BARS = 24
_FIGURES = (
    ("from the device", DEVICE_SHARE),
    ("rate of reading", STORAGE_RATE),
    ("storage limit", STORAGE_LIMIT),
    ("share of limit", STORAGE_SHARE),
)


def source_section(study: StudyView) -> Section | None:
    """Builds the section on the sources of the bytes of each setting; ``None`` if they were not recorded."""
    blocks: list[Block] = []
    points = [point for point in study.ranked if STORAGE_RATE.key in point.spreads]
    if points:
        caption = (
            f"Length of a bar: {'median ' if study.repeated else ''}rate at which the device delivered bytes; "
            f"for a setting that the page cache served (up to {percent(WARM)} of its bytes from the device), "
            "rate at which read calls returned bytes. In the table, from the device: share of the bytes read "
            "that the device delivered (kernel counts of /proc/PID/io), without read-ahead beyond these bytes."
        )
        if any(STORAGE_LIMIT.key in point.spreads for point in points):
            caption += " Limit: the measured rate of plain reads in the same directory, without any loader."
        left = len(points) - _MOST_BARS
        caption += f" The best {_MOST_BARS} of {len(points)} settings are shown." if left > 0 else ""
        svg = _figure(study, points[:_MOST_BARS], "sources")
        blocks.append(Figure(svg, "Rate of reading from device or page cache", caption, status(study)))
    if (table := _table(study)) is not None:
        blocks.append(table)
    return Section("storage", "Page cache and storage", blocks) if blocks else None


def _figure(study: StudyView, points: Sequence[PointTrials], name: str) -> str:
    """Draws a bar per point: the rate from the device, or from the page cache, with the limits of the storage.

    Args:
        study: for names.
        points: those to show, each with a rate of reading.
        name: unique on the page.
    """
    rates = [point.spreads[STORAGE_RATE.key].median for point in points]
    local = [point.spreads.get(STORAGE_LIMIT.key) for point in points]
    largest = max([*rates, *(item.median for item in local if item is not None)])
    factor, unit = size_unit(largest)
    tips: dict[str, str] = {}
    device_known = [point.spreads.get(DEVICE_SHARE.key) for point in points]
    with panels(1, 1, 1.15 + 0.3 * len(points)) as (figure, [axes]):
        for index, (point, rate) in enumerate(zip(points, rates, strict=True)):
            share, limit = device_known[index], local[index]
            colour, result = GREY, "source not measured"
            if share is not None:
                colour = VERMILLION if share.median > WARM else SKY
                result = f"{percent(share.median)} of the bytes read came from the device"
            [bar] = axes.barh([index], [rate * factor], 0.68, color=colour, zorder=2)
            bar.set_gid(f"bar-{index}")
            tips[f"bar-{index}"] = f"{study.label(point.settings)}: {text_of(rate, 'B/s')}; {result}"
            if limit is not None:
                axes.plot([limit.median * factor], [index], marker="|", color=BLACK, markersize=15, markeredgewidth=2)
        axes.set_yticks(range(len(points)), [cut(study.label(point.settings), 52) or "as set" for point in points])
        axes.tick_params(axis="y", length=0, labelcolor=BLACK)
        axes.set_ylim(len(points) - 0.5, -0.5)
        axes.set_xlim(0, largest * factor * 1.04)
        axes.set_xlabel(f"rate of reading, all ranks ({unit}/s)")
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        entries = []
        if any(item is not None and item.median > WARM for item in device_known):
            entries.append(handle("from the device", marker="s", color=VERMILLION, markersize=9))
        if any(item is not None and item.median <= WARM for item in device_known):
            entries.append(handle("from the page cache", marker="s", color=SKY, markersize=9))
        if any(item is None for item in device_known):
            entries.append(handle("source not measured", marker="s", color=GREY, markersize=9))
        if any(item is not None for item in local):
            entries.append(handle("storage limit for these reads", marker="|", markersize=12, markeredgewidth=2))
        legend_of(figure, entries)
        return to_svg(figure, name, "Rate of reading of each setting, from the device or the page cache", tips)


def _table(study: StudyView) -> Table | None:
    """Builds a table with one row per setting; columns without values are left out."""
    columns: list[tuple[str, list[str]]] = [
        ("<<setting", [study.label(point.settings) or "as set" for point in study.points]),
        ("<<page cache", [_joined([trial.cache for trial in point.trials]) for point in study.points]),
    ]
    for name, metric in _FIGURES:
        spreads = [point.spreads.get(metric.key) for point in study.points]
        columns.append((name, ["" if spread is None else text_of(spread.median, metric.unit) for spread in spreads]))
    # What all trials are warned of stands at the top of the page.
    everywhere = {kind for kind, (_, count) in warned(study.data.trials).items() if count == len(study.data.trials)}
    columns.append(("<warning", [_warnings(point, everywhere) for point in study.points]))
    kept = [columns[0], *((name, cells) for name, cells in columns[1:] if any(cells))]
    if len(kept) == 1:
        return None
    rows = [[cells[index] or UNKNOWN for _, cells in kept] for index in range(len(study.points))]
    if any("<warning" in name for name, _ in kept):
        rows = [[*row[:-1], kept[-1][1][index]] for index, row in enumerate(rows)]
    return Table(
        "Of each setting", tuple(name for name, _ in kept), rows, "Medians of the repeats." if study.repeated else ""
    )


def _warnings(point: PointTrials, elsewhere: set[str]) -> str:
    result = warned(point.trials)
    return _joined([text for kind, (text, _) in result.items() if kind not in elsewhere])


def _joined(texts: list[str]) -> str:
    return clean("; ".join(dict.fromkeys(text for text in texts if text)))
