"""Builds the section on checkpoints: parts of saves and restores, bytes, rates, slowed steps and memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dlio_torch.report.checkpoint_text import rates_text, slowdown_text, unflushed_rate_text
from dlio_torch.report.html.bar_figure import bar_figure
from dlio_torch.report.html.page_blocks import NOT_MEASURED, UNKNOWN, Block, Facts, Figure, Section, Table
from dlio_torch.report.html.theme import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, YELLOW, time_unit
from dlio_torch.units import counted, format_duration, format_rate, format_size

_MOST_RANKS = 32
_STATISTICS = ("mean", "min", "median", "p95", "max")
_WHOLE = {"save": "durable_s", "restore": "duration_s"}
_PARTS = {
    "save": ("stall_s", "plan_s", "stage_s", "write_s", "fsync_s", "durable_s"),
    "restore": ("metadata_s", "plan_s", "read_s", "copy_s", "duration_s"),
}
_RANK_TIMES = {"save": ("stall_s", "fsync_s", "durable_s"), "restore": ("duration_s",)}
_NAMES = {
    "stall_s": "training stands still",
    "plan_s": "plan",
    "stage_s": "stage",
    "write_s": "write",
    "fsync_s": "flush",
    "durable_s": "until durable",
    "metadata_s": "metadata",
    "read_s": "read",
    "copy_s": "copy",
    "duration_s": "whole restore",
}
_REST = "rest"
_COLOURS = {
    "metadata": SKY,
    "plan": PURPLE,
    "stage": GREEN,
    "write": ORANGE,
    "flush": VERMILLION,
    "read": BLUE,
    "copy": YELLOW,
    _REST: GREY,
}
_STACKED = {part: name for part, name in _NAMES.items() if name in _COLOURS}
_METHOD = (
    "Mean over saves (restores); each part is that of its slowest rank. Rest: time until the save is durable (time of "
    "the restore) that no part explains. "
)
_NOTE = "Times of the slowest rank, over {count}{among}. "
_MEASURED = " that began in measured steps"  # of a run that trains


def checkpoint_sections(summary: Mapping[str, Any] | None) -> list[Section]:
    """The section of a run that saved or restored; none for other runs, and for older ones without such figures."""
    figures = {} if summary is None else summary["checkpoints"]
    kinds = [kind for kind in _WHOLE if (figures.get(kind) or {}).get("count")]
    if not kinds:
        return []
    blocks: list[Block] = [_figure(figures, kinds), Facts(list(_facts(figures)))]
    for kind in kinds:
        blocks.append(_times(kind, figures[kind], _MEASURED if "measured" in figures else ""))
    blocks += [_ranks(kind, figures[kind]["per_rank"]) for kind in kinds]
    return [Section("checkpoints", "Checkpoints", blocks)]


def _figure(figures: Mapping[str, Any], kinds: Sequence[str]) -> Figure:
    """Parts of a save and of a restore, as stacked bars."""
    stacks = {kind: _stack(figures[kind], kind) for kind in kinds}
    factor, unit = time_unit(max(sum(stack.values()) for stack in stacks.values()))
    names = [name for name in _COLOURS if any(name in stack for stack in stacks.values())]
    svg = bar_figure(
        kinds,
        {name: [stacks[kind].get(name, 0.0) * factor for kind in kinds] for name in names},
        _COLOURS,
        axis=f"time ({unit})",
        name="checkpoint-parts",
        description="Parts of a save and of a restore",
        texts={name: [format_duration(stacks[kind].get(name, 0.0)) for kind in kinds] for name in names},
        ends=[format_duration(figures[kind][_WHOLE[kind]]["mean"]) for kind in kinds],
    )
    method = _METHOD + " ".join(f"{kind}: {why}." for kind in kinds if (why := figures[kind]["why"]))
    return Figure(svg, "Parts of a save and of a restore", method.strip(), "Exact.")


def _stack(part: Mapping[str, Any], kind: str) -> dict[str, float]:
    """Mean seconds of the parts that were measured, and of the rest."""
    stack = {_STACKED[name]: part[name]["mean"] for name in _PARTS[kind] if name in _STACKED and part[name]}
    rest = part[_WHOLE[kind]]["mean"] - sum(stack.values())
    return {**stack, _REST: rest} if rest > 0 else stack


def _facts(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for kind, label in (("save", "a checkpoint"), ("restore", "a restore")):
        part = figures.get(kind) or {}
        if part.get("count"):
            yield label, f"{format_size(part['bytes']['mean'])} at {rates_text(part)}"
            if rate := unflushed_rate_text(part):
                yield "flush of a checkpoint", f"{format_duration(part['fsync_s']['mean'])}; {rate}"
    if figures.get("slowdown") is not None:
        yield "steps beside saves", slowdown_text(figures)
    else:
        yield "steps beside saves", f"{NOT_MEASURED}: {figures.get('slowdown_why')}"
    peak = figures.get("peak_host_bytes")
    why = f"{NOT_MEASURED}: {figures.get('peak_host_why')}"
    yield "memory that saves hold at most", why if peak is None else format_size(peak)


def _times(kind: str, part: Mapping[str, Any], among: str) -> Table:
    """Statistics of each part."""
    rows = []
    for name in _PARTS[kind]:
        stats = part[name]
        # A summary of an older version has no smallest time.
        texts = [format_duration(stats[each]) if each in stats else UNKNOWN for each in _STATISTICS] if stats else []
        cells = texts or [NOT_MEASURED, *[""] * (len(_STATISTICS) - 1)]
        rows.append([_NAMES[name], *cells])
    note = (
        _NOTE.format(count=counted(part["count"], "save"), among=among)
        if kind == "save"
        else "Times of the slowest rank. "
    )
    return Table(f"Time of a {kind}", ("<part", *_STATISTICS), rows, note + (f"{part['why']}." if part["why"] else ""))


def _ranks(kind: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Means of each rank's saves or restores."""
    times = _RANK_TIMES[kind]
    cells = [
        [
            f"rank {row['rank']}",
            format_size(row["bytes"]),
            *(UNKNOWN if row.get(name) is None else format_duration(row[name]) for name in times),
            UNKNOWN if row["bytes_per_s"] is None else format_rate(row["bytes_per_s"]),
        ]
        for row in rows[:_MOST_RANKS]
    ]
    left = f" {len(rows) - _MOST_RANKS} more ranks are not shown." if len(rows) > _MOST_RANKS else ""
    heads = ("<rank", "bytes", *(_NAMES[name] for name in times), "rate")
    return Table(f"{kind.capitalize()}s of each rank", heads, cells, f"Means over the {kind}s of a rank.{left}")
