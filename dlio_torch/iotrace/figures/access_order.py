"""Order of accesses to a file: sequential and consecutive shares, and jumps between accesses.

Accesses are reads and writes that did not fail and whose file and offset are known.  They are followed in
order of their start, reads and writes apart, in groups::

    process   (layer, rank, pid, file, direction), as Darshan follows them
    stream    (layer, rank, pid, tid, file, direction), so that threads that read one file do not break
              each other's order

With ``end`` = offset + bytes of the previous access of the group::

    sequential    offset >= end       (Darshan: offset > last byte)
    consecutive   offset == end       (Darshan: offset == last byte + 1); these are sequential, too
    share         number of such accesses / number of accesses, first ones included
    jump          offset - end; the first access of a group has none

Before the first access of a group ``end`` is 1, because Darshan's last byte starts at 0 (POSIX_RECORD_READ
in darshan-posix.c): a first access at offset 0 is neither, one behind it is sequential.  An access of zero bytes
moves ``end`` to its offset.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlio_torch.iotrace.events.call_names import CLASSES, READ, WRITE, class_codes
from dlio_torch.iotrace.figures.row_groups import codes_of, group

Per = Literal["process", "stream"]

_FIRST_END = 1
_KEYS = ("layer", "rank", "pid", "tid", "file")


@dataclass(frozen=True)
class Shares:
    """Sequential and consecutive shares of accesses, from 0 to 1; None without accesses.

    Args:
        accesses: how many the shares are of.
        sequential: share of sequential accesses.
        consecutive: share of consecutive accesses.
    """

    accesses: int
    sequential: float | None
    consecutive: float | None


class Followed:
    """The accesses of an event table, grouped by process or stream, in order of time.

    Args:
        frame: an event table, sorted or not; rows that are no accesses are left out.
        per: what is followed.

    Raises:
        ValueError: ``per`` is neither.
    """

    def __init__(self, frame: pd.DataFrame, per: Per = "process") -> None:
        if per not in ("process", "stream"):
            raise ValueError(f"per={per!r} is not a way to group accesses; it must be process or stream")
        names = [name for name in _KEYS if name != "tid" or per == "stream"]
        classes = class_codes(frame)
        placed = (classes == CLASSES.index(READ)) | (classes == CLASSES.index(WRITE))
        placed &= (frame["offset"].to_numpy() >= 0) & (frame["bytes"].to_numpy() >= 0)
        placed &= codes_of(frame["file"]) >= 0
        rows = np.flatnonzero(placed)
        groups = group([classes[rows], *(codes_of(frame[name])[rows] for name in names)])
        order, self._first = groups.sort(frame["start_ns"].to_numpy()[rows], stable=True)
        self._keys: pd.DataFrame = frame[names].iloc[rows[groups.representative]].reset_index(drop=True)
        self._keys["class"] = np.array(CLASSES, dtype=object)[classes[rows[groups.representative]]]
        self._keys["accesses"] = groups.counts()
        rows = rows[order]
        offset = frame["offset"].to_numpy()[rows]
        end = offset + frame["bytes"].to_numpy()[rows]
        end[1:] = end[:-1]
        end[self._first] = _FIRST_END
        self.rows: NDArray[np.int64] = rows
        """Index of each access in the event table."""
        self.jump: NDArray[np.int64] = np.subtract(offset, end, out=offset)
        """Jump of each access: its offset minus the end of the preceding access, bytes."""

    @property
    def first(self) -> NDArray[np.int64]:
        """Indices in :attr:`rows` of each group's first access."""
        return self._first

    @property
    def sequential(self) -> NDArray[np.bool_]:
        """Whether each access is sequential."""
        rows: NDArray[np.bool_] = self.jump >= 0
        return rows

    @property
    def consecutive(self) -> NDArray[np.bool_]:
        """Whether each access is consecutive."""
        rows: NDArray[np.bool_] = self.jump == 0
        return rows

    def counts(self) -> pd.DataFrame:
        """Number of accesses by group, as :func:`follow` returns them."""
        table = self._keys.copy()
        for name, flags in (("sequential", self.sequential), ("consecutive", self.consecutive)):
            table[name] = np.add.reduceat(flags, self._first, dtype=np.int64) if flags.size else np.zeros(0, np.int64)
        ordered: pd.DataFrame = table.sort_values(
            [name for name in (*_KEYS, "class") if name in table], ignore_index=True
        )
        return ordered

    def jumps(self) -> NDArray[np.int64]:
        """Jumps of the accesses, as :func:`jumps` returns them."""
        return np.delete(self.jump, self._first)


def follow(frame: pd.DataFrame, per: Per = "process") -> pd.DataFrame:
    """Counts the sequential and consecutive accesses of each group.

    Returns:
        Columns layer, rank, pid, tid (per stream only), file (categorical), class, accesses, sequential,
        consecutive; sorted by the first ones.
    """
    return Followed(frame, per).counts()


def shares(frame: pd.DataFrame, per: Per = "process") -> dict[str, Shares]:
    """Sequential and consecutive shares of the reads, of the writes, and of both (``all``)."""
    return shares_of(follow(frame, per))


def shares_of(counts: pd.DataFrame) -> dict[str, Shares]:
    """Sequential and consecutive shares from rows that :func:`follow` returned."""
    chosen = {READ: counts[counts["class"] == READ], WRITE: counts[counts["class"] == WRITE], "all": counts}
    return {name: _shares(rows) for name, rows in chosen.items()}


def jumps(frame: pd.DataFrame, per: Per = "stream") -> NDArray[np.int64]:
    """Jumps: offset minus end of the preceding access, bytes; group by group, in order of time."""
    return Followed(frame, per).jumps()


def _shares(rows: pd.DataFrame) -> Shares:
    accesses = int(rows["accesses"].sum())
    if not accesses:
        return Shares(0, None, None)
    return Shares(accesses, int(rows["sequential"].sum()) / accesses, int(rows["consecutive"].sum()) / accesses)
