"""Content of the page of a study, as plain data that a grid, a search or a ladder provides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dlio_torch.study.metrics import METRICS, THROUGHPUT, Metric
from dlio_torch.study.model import Axis, Trial
from dlio_torch.study.page.findings import (
    CodeBlock,
    Confirmation,
    LadderSummary,
    PublishedFigure,
    Recommendation,
    SearchSummary,
    Statement,
)


@dataclass(frozen=True)
class StorageLimit:
    """Measured limit of the storage of the data.

    Args:
        label: what was done (``"random reads of 256 KiB, 4 jobs"``).
        bytes_per_s: the rate that was reached.
        tool: program and arguments, whether past the page cache, on which directory.
    """

    label: str
    bytes_per_s: float
    tool: str = ""


@dataclass(frozen=True)
class StudyData:
    """All data on the page of a study.

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
    config: tuple[CodeBlock, ...] = ()
    published: tuple[PublishedFigure, ...] = ()
    statements: tuple[Statement, ...] = ()
    remarks: tuple[str, ...] = ()
    search: SearchSummary | None = None
    confirmation: Confirmation | None = None
    recommendation: Recommendation | None = None
    ladder: LadderSummary | None = None
