"""What the page of a study is made from: plain data that a sweep, a search or a ladder fills in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dlio_torch.analysis.repeats import Spread
from dlio_torch.report.html.study.findings import (
    Code,
    Confirmation,
    Ladder,
    PublishedFigure,
    PublishedPoint,
    Recommendation,
    Rung,
    Search,
    Statement,
)
from dlio_torch.report.html.study.metrics import (
    AU,
    DEVICE_SHARE,
    FETCH,
    FETCH_SHARE,
    METRICS,
    RATE,
    STEP,
    STORAGE_LIMIT,
    STORAGE_RATE,
    STORAGE_SHARE,
    THROUGHPUT,
    Direction,
    Metric,
)

__all__ = [
    "AU",
    "DEVICE_SHARE",
    "FETCH",
    "FETCH_SHARE",
    "METRICS",
    "NO_MEANING",
    "RATE",
    "STEP",
    "STORAGE_LIMIT",
    "STORAGE_RATE",
    "STORAGE_SHARE",
    "THROUGHPUT",
    "Axis",
    "Code",
    "Confirmation",
    "Direction",
    "Ladder",
    "Metric",
    "PublishedFigure",
    "PublishedPoint",
    "Recommendation",
    "Rung",
    "Search",
    "Spread",
    "Statement",
    "StorageLimit",
    "StudyData",
    "Trial",
]

NO_MEANING = "-"
"""The value of an option that has no meaning at a point (``prefetch_factor`` without workers)."""


@dataclass(frozen=True)
class Axis:
    """A swept option.

    Args:
        key: its dotted name.
        values: its values as they stand on the command line, in the order of the study; empty where a search
            drew them.
        default: the value that it has without the study, ``None`` where it is not known.
        compared: whether its values answer the same question; ``False``: they are different workloads, of which none
            is better than another.
    """

    key: str
    values: tuple[str, ...] = ()
    default: str | None = None
    compared: bool = True


@dataclass(frozen=True)
class Trial:
    """One run of one point.

    Args:
        point: number of its point; all repeats of a setting share it.
        repeat: which repeat, from 1.
        settings: the value of every axis' key, as on the command line; :data:`NO_MEANING` where it has none.
        figures: value of each metric by its key; ``None`` or absent: not measured.
        failed: whether it left no figures.
        error: one line that says why.
        exit_code: of its process, ``None`` where it had none (killed, timed out).
        started_s: seconds from the start of the study's first trial; ``None``: only the order is known.
        wall_s: seconds from its start to its end.
        directory: of its run, relative to the study's or absolute; ``""`` where there is none.
        cache: the state of the page cache in a few words (``"cold: verified"``); ``""`` where it was not looked at.
        warnings: what makes its figures doubtful (``"the data set fits in memory: RAM was measured"``).
    """

    point: int
    repeat: int
    settings: Mapping[str, str]
    figures: Mapping[str, float | None] = field(default_factory=dict)
    failed: bool = False
    error: str = ""
    exit_code: int | None = None
    started_s: float | None = None
    wall_s: float | None = None
    directory: str = ""
    cache: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class StorageLimit:
    """What the storage below the data can do at the most, by measurement.

    Args:
        label: what was done (``"random reads of 256 KiB, 4 jobs"``).
        bytes_per_s: the rate that was reached.
        how: tool and arguments, whether past the page cache, on which directory.
    """

    label: str
    bytes_per_s: float
    how: str = ""


@dataclass(frozen=True)
class StudyData:
    """Everything on the page of a study.

    Args:
        kind: what made it.
        title: a few words; the name of the study.
        path: its directory.
        axes: the swept options.
        trials: finished and failed ones in the order of time.
        description: a sentence on what it asks.
        answer: the one sentence that answers it; ``""``: made from the points.
        metrics: of the trials, in the order of the table.
        objective: key of the metric by which points are ranked.
        settings: what all trials share, as dotlist.
        scaled: what the scale changed of the experiment, one line each.
        planned: number of trials that were planned, ``None`` where open.
        ranks: of each run.
        limits: of the storage, by measurement.
        warnings: what the reader must know, one sentence each.
        missing: what could not be read or was left out, one sentence each.
        environment: content of ``environment.json`` of a run, ``None`` where there is none.
        config: further things to fold away (study.yaml, a resolved configuration): title and text.
        published: published figures beside ours.
        statements: published sentences and what our points say to them.
        remarks: what else is to be said about the publication (why its optimum is an artefact).
        search: how the search went.
        confirmation: of the recommended setting.
        recommendation: settings to take over.
        ladder: what each cost could gain.
    """

    kind: Literal["sweep", "tune", "headspace"]
    title: str
    path: Path
    axes: tuple[Axis, ...] = ()
    trials: tuple[Trial, ...] = ()
    description: str = ""
    answer: str = ""
    metrics: tuple[Metric, ...] = METRICS
    objective: str = THROUGHPUT.key
    settings: tuple[str, ...] = ()
    scaled: tuple[str, ...] = ()
    planned: int | None = None
    ranks: int = 1
    limits: tuple[StorageLimit, ...] = ()
    warnings: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    environment: Mapping[str, Any] | None = None
    config: tuple[Code, ...] = ()
    published: tuple[PublishedFigure, ...] = ()
    statements: tuple[Statement, ...] = ()
    remarks: tuple[str, ...] = ()
    search: Search | None = None
    confirmation: Confirmation | None = None
    recommendation: Recommendation | None = None
    ladder: Ladder | None = None
