"""Tables of the I/O of a recording per file, per rank and per process.

Which calls count says :mod:`dlio_torch.iotrace.figures.call_selection`, what the columns mean
:mod:`dlio_torch.iotrace.figures.group_figures`.  A row whose ``source`` is ``counters`` is coarse
(:mod:`dlio_torch.iotrace.figures.counter_sums`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd

from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.figures import counter_sums
from dlio_torch.iotrace.figures.access_order import Followed
from dlio_torch.iotrace.figures.call_selection import select
from dlio_torch.iotrace.figures.group_figures import COUNTED, FLOATS, INTEGERS, figures
from dlio_torch.iotrace.figures.row_groups import codes_of, group

_OF_A_FILE = ("distinct_bytes_read", "distinct_bytes_written", "reuse")
_FILE_COLUMNS = ("layer", "file", "source", *(name for name in (*INTEGERS, *FLOATS) if name != "files"))
_RANK_COLUMNS = ("source", *(name for name in (*INTEGERS, *FLOATS) if name not in ("ranks", *_OF_A_FILE)))


def files(
    recording: Recording, *, layers: str | Sequence[str] | None = None, followed: Followed | None = None
) -> pd.DataFrame:
    """Table with one row per layer and file, the most bytes first.

    Args:
        recording: its events, and its counters: files that only these know get rows of their own, and
            classes of calls that the events lack are counted from them.
        layers: as in :func:`dlio_torch.iotrace.figures.call_selection.select`.
        followed: the accesses of these calls per process, where the caller has them already.

    Returns:
        Columns layer; file (None: calls whose file is not known); source, ``events`` or ``counters``; and
        the figures.
    """
    frame = select(recording, layers=layers)
    groups = group((codes_of(frame["layer"]), codes_of(frame["file"])))
    table = figures(frame, groups, followed or Followed(frame), recording.sees, one_file=True)
    for name in ("layer", "file"):
        words = np.array([*frame[name].cat.categories, None], dtype=object)
        table[name] = pd.Series(words[codes_of(frame[name])[groups.representative]], dtype=object)
    table["source"] = "events"
    if recording.counters is not None:
        table = _with_counters(table, counter_sums.by_file(recording.counters, layers))
    moved = table["bytes_read"].fillna(0) + table["bytes_written"].fillna(0)
    order = np.argsort(-moved.to_numpy(dtype=np.int64), kind="stable")
    ordered: pd.DataFrame = table.iloc[order][list(_FILE_COLUMNS)].reset_index(drop=True)
    return ordered


def ranks(
    recording: Recording,
    *,
    layers: str | Sequence[str] | None = None,
    per: Literal["rank", "process"] = "rank",
    followed: Followed | None = None,
) -> pd.DataFrame:
    """Table with one row per rank, or per process, in this order; arguments as of :func:`files`.

    A recording without calls gives what its counters tell of single ranks, and nothing of processes.

    Returns:
        Columns rank; per process also pid and role (None where the source does not name it); source,
        ``events`` or ``counters``; and the figures but for those that belong to one file.

    Raises:
        ValueError: ``per`` is neither.
    """
    if per not in ("rank", "process"):
        raise ValueError(f"per={per!r} is not a kind of row; it must be rank or process")
    frame = select(recording, layers=layers)
    if not len(frame) and recording.counters is not None and per == "rank":
        sums = counter_sums.by_rank(recording.counters, layers).assign(source="counters")
        coarse_table: pd.DataFrame = sums[["rank", *_RANK_COLUMNS]]
        return coarse_table
    keys = ["rank"] if per == "rank" else ["rank", "pid"]
    groups = group([frame[key].to_numpy() for key in keys])
    table = figures(frame, groups, followed or Followed(frame), recording.sees, one_file=False)
    table["source"] = "events"
    keys_of_groups = frame[keys].iloc[groups.representative].reset_index(drop=True)
    if per == "process":
        roles = {(process.rank, process.pid): process.role for process in recording.events.processes}
        named = [
            roles.get(key) for key in zip(keys_of_groups["rank"].tolist(), keys_of_groups["pid"].tolist(), strict=True)
        ]
        keys_of_groups["role"] = pd.Series(named, dtype=object)
    ordered: pd.DataFrame = keys_of_groups.join(table[list(_RANK_COLUMNS)]).sort_values(keys, ignore_index=True)
    return ordered


def _with_counters(table: pd.DataFrame, sums: pd.DataFrame) -> pd.DataFrame:
    """Adds counts that the events lack, then files that are only in the counters."""
    keys = ["layer", "file"]
    known = table[keys].merge(sums, on=keys, how="left")
    for name in (*COUNTED, "bytes_read", "bytes_written"):
        table[name] = table[name].fillna(known[name])
    new = sums.merge(table[keys], on=keys, how="left", indicator=True)["_merge"].to_numpy() == "left_only"
    parts = [part for part in (table, sums[new].assign(source="counters")) if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else table
