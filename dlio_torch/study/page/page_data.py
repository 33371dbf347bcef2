"""Content of the page of a study, as plain data that a grid, a search or a ladder provides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dlio_torch.study.metrics import METRICS, THROUGHPUT, Metric
from dlio_torch.study.model import Axis, Trial
from dlio_torch.study.published.comparison import PublishedFigure, Statement
from dlio_torch.study.strategies.ladder.effects import Effect
from dlio_torch.study.strategies.search.confirmation import PairedGain
from dlio_torch.study.strategies.search.copy_blocks import CopyBlocks


@dataclass(frozen=True)
class SearchSummary:
    """Summary of the course of a search.

    Args:
        budget: what it was allowed (``"20 min"``, ``"40 trials"``).
        stopped: why it ended.
        importance: share of each key in the scatter of the metric, ``None`` where it was not computed.
        grid_size: points of the full grid.
        chosen: number of the point that the search found best and confirmed, ``None`` where there is none.
    """

    budget: str = ""
    stopped: str = ""
    importance: Mapping[str, float] | None = None
    grid_size: int = 0
    chosen: int | None = None


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
        warnings: what the reader must know, one sentence each.
        missing: what could not be read or was left out, one sentence each.
        environment: content of ``environment.json`` of a run, ``None`` where there is none.
        config: further things to fold away (study.yaml, a resolved configuration): title and text.
        published: published figures beside ours.
        statements: published sentences and what our points say to them.
        remarks: what else is to be said about the publication (why its optimum is an artefact).
        search: how the search went.
        confirmation: of the point that the search chose.
        recommendation: settings to take over.
        recommended: number of their point, ``None`` where there is none.
        ladder: effects of the rungs, from the run as configured to the one without any cost.
        evidence: of the answer, one sentence each.
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
    warnings: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    environment: Mapping[str, Any] | None = None
    config: tuple[tuple[str, str], ...] = ()
    published: tuple[PublishedFigure, ...] = ()
    statements: tuple[Statement, ...] = ()
    remarks: tuple[str, ...] = ()
    search: SearchSummary | None = None
    confirmation: PairedGain | None = None
    recommendation: CopyBlocks | None = None
    recommended: int | None = None
    ladder: tuple[Effect, ...] = ()
    evidence: tuple[str, ...] = ()
