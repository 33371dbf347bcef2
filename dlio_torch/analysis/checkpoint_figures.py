"""Computes what a run or the verb ``checkpoint`` says about its saves and about reading them back.

Definitions, over the saves that all saving ranks completed::

    time of a part       that of the slowest rank, of the ranks whose layout tells it (stall, plan, stage, write, fsync;
                         durable: from the begin of the save until its files are complete)
    bytes                sum over ranks
    bytes_per_s          bytes / durable_s: all bytes over the time of the slowest rank
    unflushed_...        bytes / the longest durable_s - fsync_s of a rank: the rate of the same save without its flush
    per_rank             means over the saves of one rank; its rate is its bytes over its own time until durable

A restore is described likewise, with its whole time in the place of ``durable_s``.  Statistics are taken over saves
(restores).  ``None`` (JSON ``null``) means not measured; ``why`` gives the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dlio_torch.analysis.distribution import distribution
from dlio_torch.checkpoint.save_times import RestoreTimes, SaveTimes

SAVE_PARTS = ("plan_s", "stage_s", "write_s", "fsync_s")
"""Parts of a save that a layout may tell, in their order."""
RESTORE_PARTS = ("metadata_s", "plan_s", "read_s", "copy_s")
"""Parts of a restore that a layout may tell, in their order."""

_UNTOLD = "the layout has no such part, or its library does not tell: "


def checkpoint_figures(
    saves_of_ranks: Sequence[Sequence[SaveTimes]], restores_of_ranks: Sequence[Sequence[RestoreTimes]]
) -> dict[str, Any]:
    """Parts ``checkpoints.save`` and ``checkpoints.restore`` of ``summary.json``.

    Args:
        saves_of_ranks: saves of each rank in the order of ranks; empty for a rank that does not save.
        restores_of_ranks: restores of each rank likewise, each rank's in the same order.

    Returns:
        ``save`` and ``restore``, plain values.
    """
    saves = list(_complete_saves(saves_of_ranks))
    restores = list(zip(*(rank for rank in restores_of_ranks if rank), strict=False))
    return {
        "save": {
            "count": len(saves),
            **_times(saves, ("stall_s", "durable_s")),
            **_times(saves, SAVE_PARTS),
            **_amounts(saves, "durable_s"),
            "unflushed_bytes_per_s": distribution(_unflushed_rates(saves)),
            "per_rank": _per_rank(saves_of_ranks, "durable_s", ("stall_s", "fsync_s")),
            "why": _why(saves, SAVE_PARTS, "no save was measured"),
        },
        "restore": {
            "count": len(restores),
            "duration_s": _times(restores, ("seconds",))["seconds"],
            **_times(restores, RESTORE_PARTS),
            **_amounts(restores, "seconds"),
            "per_rank": _per_rank(restores_of_ranks, "seconds", ()),
            "why": _why(restores, RESTORE_PARTS, "no checkpoint was read"),
        },
    }


def _complete_saves(saves_of_ranks: Sequence[Sequence[SaveTimes]]) -> Iterator[tuple[SaveTimes, ...]]:
    """The times of all saving ranks for each step that all of them saved."""
    by_step = [{times.step: times for times in rank} for rank in saves_of_ranks if rank]
    for step in by_step[0] if by_step else ():
        if all(step in rank for rank in by_step):
            yield tuple(rank[step] for rank in by_step)


def _times(events: Sequence[Sequence[Any]], names: Sequence[str]) -> dict[str, dict[str, float] | None]:
    """Statistics of the times of the slowest rank, by name."""
    slowest = {name: [_slowest(event, name) for event in events] for name in names}
    return {name: distribution([value for value in times if value is not None]) for name, times in slowest.items()}


def _slowest(event: Sequence[Any], name: str) -> float | None:
    """Largest of the ranks' times; ``None`` if no rank tells it."""
    return max((value for rank in event if (value := getattr(rank, name)) is not None), default=None)


def _amounts(events: Sequence[Sequence[Any]], whole: str) -> dict[str, dict[str, float] | None]:
    """Statistics of bytes, and of bytes over the whole time of the slowest rank; all ranks."""
    sizes = [sum(rank.bytes for rank in event) for event in events]
    spent = [_slowest(event, whole) for event in events]
    rates = [size / seconds for size, seconds in zip(sizes, spent, strict=True) if seconds]
    return {"bytes": distribution(sizes), "bytes_per_s": distribution(rates)}


def _unflushed_rates(saves: Sequence[Sequence[SaveTimes]]) -> list[float]:
    """Bytes of all ranks over the time of the slowest rank without flushing, of the saves whose ranks all tell it."""
    rates = []
    for ranks in saves:
        spent = [rank.durable_s - rank.fsync_s for rank in ranks if rank.fsync_s is not None]
        if len(spent) == len(ranks) and max(spent) > 0:
            rates.append(sum(rank.bytes for rank in ranks) / max(spent))
    return rates


def _per_rank(events_of_ranks: Sequence[Sequence[Any]], whole: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each rank that has events: means of bytes, times and rate."""
    rows = []
    for rank, events in enumerate(events_of_ranks):
        if events:
            rates = [event.bytes / getattr(event, whole) for event in events if getattr(event, whole)]
            rows.append(
                {
                    "rank": rank,
                    "bytes": _mean([event.bytes for event in events]),
                    **{name: _mean(_known(events, name)) for name in names},
                    "duration_s" if whole == "seconds" else whole: _mean([getattr(event, whole) for event in events]),
                    "bytes_per_s": _mean(rates),
                }
            )
    return rows


def _known(events: Sequence[Any], name: str) -> list[float]:
    return [value for event in events if (value := getattr(event, name)) is not None]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _why(events: Sequence[Sequence[Any]], parts: Sequence[str], nothing: str) -> str | None:
    """Reason for what was not measured; ``None`` if all was."""
    if not events:
        return nothing
    untold = [part for part in parts if all(_slowest(event, part) is None for event in events)]
    return f"{_UNTOLD}{', '.join(untold)}" if untold else None
