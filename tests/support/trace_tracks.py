"""Tracks of a merged trace: whether a viewer can draw their slices."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

Slice = tuple[Decimal, Decimal, str]
"""Start, end (exact, in microseconds) and name."""


def tracks(path: Path) -> dict[tuple[int, int], list[Slice]]:
    """The slices of each process and thread, in order of time; of those that begin together the longest first."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        events = json.load(file, parse_float=Decimal, parse_int=Decimal)["traceEvents"]
    found: dict[tuple[int, int], list[Slice]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            found[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"], event["name"]))
    return {track: sorted(slices, key=lambda one: (one[0], -one[1])) for track, slices in found.items()}


def overlaps(path: Path) -> list[str]:
    """Pairs of slices of one track that neither nest nor follow each other, one line each."""
    found = []
    for track, slices in tracks(path).items():
        open_slices: list[Slice] = []
        for one in slices:
            while open_slices and open_slices[-1][1] <= one[0]:
                open_slices.pop()
            if open_slices and one[1] > open_slices[-1][1]:
                found.append(f"{track}: {open_slices[-1]} and {one}")
            open_slices.append(one)
    return found
