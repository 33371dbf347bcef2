"""Stall attribution: what the producer of a batch did during each wait of the trainer for it.

A *wait* is a span ``fetch`` of the trainer, from asking for a batch to having it.  Its ``offset`` is the
number of the batch that came; the span ``batch`` of the same number tells the thread that made it, and
when (:mod:`dlio_torch.data.dataset.provenance`).  That thread's time within the wait is cut into

=============  ==========================================================================================
preprocess     inside the thread's spans of that name
collate        inside those of that name
device         inside spans ``read`` or ``open``, the thread asleep: storage had not delivered yet
page_cache     inside them, the thread at work in the kernel: data are copied out of the page cache
decode         inside spans ``decode``; and inside ``read`` or ``open``, the thread at work in the library:
               decompressing, parsing, copying
read           inside them, where the three cannot be told apart
starved        the thread could have run, and the kernel had no core for it; also of the transfer, the
               share of time that the rank's producers waited for a core then
hand_over      after the batch was finished: pickling, shared memory, queues, pinning, waking the trainer
not_started    before the batch was begun: the worker was starting, or not yet asked for it
unexplained    the rest: between the spans of a batch, or asleep without a device at work (a lock)
=============  ==========================================================================================

No time counts twice, and the parts of a wait add up to it.  Where the trainer's own thread makes the batch
(``num_workers=0``), all of its wait that is outside the batch is transfer.  While threads read one
after another (spans ``turn``), the reads of the thread whose turn it is count for those that wait for theirs.

Positions are exact; how time inside ``read`` divides is estimated, as the kernel's figures (spans
``asleep``, ``run_delay``, ``kernel``) are for a whole batch.  With a run delay of D in a batch of length T,
the share D/T of each of its moments counts as starved.  With A of it asleep and R inside reads, the share
min(A/R, 1 - D/T) of each moment of a read counts as device, if any device delivered anything since the
start of the thread's batch before (readahead goes on behind the call that began it); else as unexplained.
Of the reads' time at work, page cache is what lies inside I/O calls, where these were recorded; else the
share of kernel time in the rank's time at work outside preprocessing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlio_torch.analysis.cache import counts_device
from dlio_torch.analysis.producers import Floats, Producer, producers_of
from dlio_torch.iotrace.events.call_names import IO_LAYERS
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.figures.intervals import Ints
from dlio_torch.iotrace.figures.row_groups import group
from dlio_torch.units import percent

PARTS = (
    "device", "page_cache", "decode", "read", "preprocess", "collate",
    "hand_over", "starved", "not_started", "unexplained",
)  # fmt: skip
ESTIMATED = ("device", "page_cache", "decode", "starved")
"""Parts that are estimated from figures of whole batches."""


def attribute(recording: Recording, device_counted: bool | None = None) -> pd.DataFrame | None:
    """Attributes the waits of all training steps to causes, the :data:`PARTS`.

    Args:
        recording: a run.
        device_counted: whether the kernel counts what the data's device delivers (it does not for network
            file systems: there any sleep inside a read is a wait for storage).  None: as the run's
            ``environment.json`` says, else that it does.

    Returns:
        A row per rank and step, or None where waits or the making of batches were not recorded: ``rank``, ``step``,
        ``start_ns``, ``wait_s``; ``pid`` and ``tid`` of the thread that made the batch (-1: not known);
        ``idle_s``, how long that thread had nothing to do before it began the batch (NaN: not known): what
        reading further ahead could have saved of the wait, at most; and the parts in seconds, which add up
        to ``wait_s``.  NaN: not measured.
    """
    spans = recording.spans
    waits = spans[spans["op"] == "fetch"].sort_values(["rank", "step", "start_ns"], kind="stable")
    batches = spans[spans["op"] == "batch"].drop_duplicates(["rank", "offset"])
    if not len(waits) or not len(batches):
        return None
    if device_counted is None:
        device_counted = _counts_device(recording)
    merged = waits.merge(batches, on=["rank", "offset"], how="left", suffixes=("", "_made"))
    start, end = merged["start_ns"].to_numpy(), merged["end_ns"].to_numpy()
    ready = merged["end_ns_made"].fillna(-1).to_numpy(np.int64)
    by_trainer = ((merged["pid"] == merged["pid_made"]) & (merged["tid"] == merged["tid_made"])).to_numpy()
    made_by = merged[["rank", "pid_made", "tid_made"]].fillna(-1).to_numpy(np.int64)
    parts = {part: np.full(len(merged), np.nan) for part in PARTS}
    idle = np.full(len(merged), np.nan)
    producers = producers_of(spans, _calls(recording), device_counted)
    groups = group(list(made_by.T))
    for some in np.split(np.argsort(groups.codes, kind="stable"), np.cumsum(groups.counts())[:-1]):
        producer = producers.get(tuple(made_by[some[0]]))
        if producer is None:
            continue
        for part, values in _cut(producer, start[some], end[some], ready[some], by_trainer[some]).items():
            parts[part][some] = values
        idle[some] = np.where(by_trainer[some], np.nan, producer.idle_before(ready[some]))
    wait = end - start
    # Whole nanoseconds, rounded down, so that the rest is exact and never negative.
    whole = {part: np.floor(values) for part, values in parts.items()}
    whole["unexplained"] = wait - sum(np.nan_to_num(values) for part, values in whole.items() if part != "unexplained")
    table: pd.DataFrame = pd.DataFrame(
        {
            "rank": merged["rank"].to_numpy(),
            "step": merged["step"].to_numpy(),
            "start_ns": start,
            "wait_s": wait * 1e-9,
            "pid": made_by[:, 1],
            "tid": made_by[:, 2],
            "idle_s": idle * 1e-9,
            **{part: whole[part] * 1e-9 for part in PARTS},
        }
    )
    return table


_PHRASES: Mapping[str, str] = {
    "device": "waiting for the storage device",
    "page_cache": "copying out of the page cache",
    "decode": "decoding in the file format's library",
    "read": "reading (device, page cache and decoding cannot be told apart)",
    "preprocess": "preprocessing",
    "collate": "collation",
    "hand_over": "the transfer of finished batches to the trainer",
    "starved": "workers that had work but no CPU core",
    "not_started": "batches that no worker had begun (workers were starting, or the batch was requested too late)",
    "unexplained": "something that was not recorded",
}


def summary(waits: pd.DataFrame | None, warmup_steps: int = 0) -> dict[str, Any]:
    """Sums the parts of :func:`attribute` over steps and ranks, as plain values for JSON.

    Args:
        waits: what :func:`attribute` gave.
        warmup_steps: first steps that are left out.

    Returns:
        ``steps`` (waits counted), ``wait_s``, ``parts`` (seconds) and ``shares`` (of ``wait_s``) by part, None
        where not measured; ``ahead_s``, the most that reading further ahead could have saved; ``largest``, the
        largest part, None where there was no wait; ``estimated``, the parts that are estimates; ``sentence``.
    """
    rows = waits[waits["step"] > warmup_steps] if waits is not None else None
    if rows is None or not len(rows):
        sentence = (
            "The causes of waits were not recorded." if waits is None else "No measured step: all steps were warm-up."
        )
        nothing: dict[str, None] = dict.fromkeys(PARTS)
        return {
            "steps": 0, "wait_s": None, "parts": nothing, "shares": nothing, "ahead_s": None,
            "largest": None, "estimated": list(ESTIMATED), "sentence": sentence,
        }  # fmt: skip
    total = float(rows["wait_s"].sum())
    parts = {part: _total(rows[part]) for part in PARTS}
    shares = {part: None if value is None or not total else value / total for part, value in parts.items()}
    known = {part: value for part, value in parts.items() if value}
    largest = max(known, key=lambda part: known[part], default=None)
    ahead = rows[["idle_s", "wait_s"]].min(axis=1, skipna=False)
    if largest is None:
        sentence = f"None of the {len(rows)} measured step{'' if len(rows) == 1 else 's'} waited for data."
    else:
        sentence = (
            f"{len(rows)} steps waited {_seconds(total)} for data; the largest cause, {_seconds(known[largest])} "
            f"({percent(known[largest] / total, 0)}), was {_PHRASES[largest]}."
        )
    return {
        "steps": len(rows),
        "wait_s": total,
        "parts": parts,
        "shares": shares,
        "ahead_s": None if ahead.isna().all() else float(ahead.sum()),
        "largest": largest,
        "estimated": list(ESTIMATED),
        "sentence": sentence,
    }


def _total(seconds: pd.Series[float]) -> float | None:
    """Sum of a part; None if the part is known only for waits in which it cannot occur."""
    known = float(seconds.sum())
    return None if known == 0 and seconds.isna().any() else known


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def _counts_device(recording: Recording) -> bool:
    environment = recording.facts.get("environment")
    mounts = environment.get("mounts") if isinstance(environment, dict) else None
    data = mounts.get("data") if isinstance(mounts, dict) else None
    if not isinstance(data, dict) or not {"device", "file_system"} <= data.keys():
        return True
    return counts_device(data)


def _calls(recording: Recording) -> pd.DataFrame:
    frame = recording.events.frame
    calls: pd.DataFrame = frame[frame["layer"].isin(IO_LAYERS).to_numpy()]
    return calls


def _cut(producer: Producer, start: Ints, end: Ints, ready: Ints, by_trainer: NDArray[np.bool_]) -> dict[str, Floats]:
    """Cuts the waits for the batches of one producer thread into parts, ns; see :func:`attribute`."""
    until = np.clip(ready, start, end)
    pieces = producer.segments(start, until)
    parts = {}
    for part, values in producer.cut(pieces).items():
        known = ~np.isnan(values)
        sums = np.bincount(pieces.wait, np.where(known, values, 0), start.size)
        # A wait without any piece took no time of this kind; one whose pieces do not tell has an unknown part.
        measured = np.bincount(pieces.wait, known, start.size) > 0
        none = np.bincount(pieces.wait, minlength=start.size) == 0
        parts[part] = np.where(measured | none, sums, np.nan)
    inside = np.bincount(pieces.wait, pieces.end - pieces.start, start.size)
    outside = until - start - inside
    after = end - until
    crowded = np.where(by_trainer, 0.0, producer.core_demand.share(until, end)) * after
    parts["starved"] += crowded
    parts["hand_over"] = after - crowded + np.where(by_trainer, outside, 0)
    parts["not_started"] = np.where(by_trainer, 0.0, outside)
    return parts
