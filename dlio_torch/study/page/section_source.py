"""Section on page cache and storage: source of the bytes, and limit of the storage."""

from __future__ import annotations

from dlio_torch.analysis.cache import WARM
from dlio_torch.report.html.page_blocks import UNKNOWN, Block, Facts, Figure, Section, Table
from dlio_torch.report.html.theme import clean
from dlio_torch.report.run_verdict import percent
from dlio_torch.study.metrics import DEVICE_SHARE, STORAGE_LIMIT, STORAGE_RATE, STORAGE_SHARE
from dlio_torch.study.page.page_sentences import warned
from dlio_torch.study.page.points import PointTrials, StudyView
from dlio_torch.study.page.section_axes import status
from dlio_torch.study.page.source_figure import MOST_BARS, source_figure
from dlio_torch.study.values import text_of
from dlio_torch.units import format_rate

_FIGURES = (
    ("from the device", DEVICE_SHARE),
    ("rate of reading", STORAGE_RATE),
    ("storage limit", STORAGE_LIMIT),
    ("share of limit", STORAGE_SHARE),
)


def source_section(study: StudyView) -> Section | None:
    """Builds the section on the sources of the bytes of each setting; ``None`` if they were not recorded."""
    limits = study.data.limits
    facts = [(clean(limit.label), f"{format_rate(limit.bytes_per_s)}. {clean(limit.tool)}".strip()) for limit in limits]
    blocks: list[Block] = [Facts(facts)] if facts else []
    points = [point for point in study.ranked if STORAGE_RATE.key in point.spreads]
    if points:
        caption = (
            f"Length of a bar: {'median ' if study.repeated else ''}rate at which the device delivered bytes; "
            f"for a setting that the page cache served (up to {percent(WARM)} of its bytes from the device), "
            "rate at which read calls returned bytes. In the table, from the device: share of the bytes read "
            "that the device delivered (kernel counts of /proc/PID/io), without read-ahead beyond these bytes."
        )
        if limits or any(STORAGE_LIMIT.key in point.spreads for point in points):
            caption += " Limit: the measured rate of plain reads in the same directory, without any loader."
        left = len(points) - MOST_BARS
        caption += f" The best {MOST_BARS} of {len(points)} settings are shown." if left > 0 else ""
        svg = source_figure(study, points[:MOST_BARS], limits, "sources")
        blocks.append(Figure(svg, "Rate of reading from device or page cache", caption, status(study)))
    if (table := _table(study)) is not None:
        blocks.append(table)
    return Section("storage", "Page cache and storage", blocks) if blocks else None


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
