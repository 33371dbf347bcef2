"""Findings of a study besides its points: published figures, search and gain, recommended settings, ladder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dlio_torch.analysis.repeats import Spread
from dlio_torch.study.metrics import Metric
from dlio_torch.study.strategies.ladder.effects import Effect
from dlio_torch.study.strategies.search.confirmation import PairedGain


@dataclass(frozen=True)
class PublishedPoint:
    """A point of a published figure and the measured point of this study.

    Args:
        value: of the axis, as the study writes it.
        published: what the publication shows, ``None`` where it has no such point.
        measured: ours, ``None`` where it was not measured or failed.
        label: what the publication calls this value; ``""`` where it is the same.
    """

    value: str
    published: float | None
    measured: Spread | None
    label: str = ""


@dataclass(frozen=True)
class PublishedFigure:
    """A published series and the measured points of this study.

    Args:
        title: of the figure (``"Fig. 11 a: HDF5 chunk size, Cosmic Tagger"``); series of one title share a figure.
        axis: what changes along the abscissa: the swept key, or words.
        points: in the order of the abscissa.
        published_label: what was published (``"I/O time"``).
        published_unit: its unit, as :attr:`dlio_torch.study.metrics.Metric.unit`.
        published_better: its direction; decides how it is normalised.
        measured_label: what we measured (``"throughput"``).
        measured_unit: its unit.
        measured_better: its direction.
        reference: value of the axis at which both are set to 1; ``""``: the first that both have.
        source: where the published values are from, and how they were read (``"read off the figure"``).
        system: what they were measured on.
        series: name of the line where a figure has several (``"gzip 4"``).
        words: where the trends agree and where they do not, one sentence each.
    """

    title: str
    axis: str
    points: tuple[PublishedPoint, ...]
    published_label: str
    published_unit: str
    published_better: Literal["higher", "lower"]
    measured_label: str
    measured_unit: str
    measured_better: Literal["higher", "lower"]
    reference: str = ""
    source: str = ""
    system: str = ""
    series: str = ""
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Statement:
    """A published statement, and its verdict by the measured points.

    Args:
        text: the sentence.
        verdict: ``"agrees"``, ``"partly"``, ``"contradicts"``, ``"within noise"``, ``"cannot be told"`` or ``"not
            measured"``.
        words: why, with figures.
        source: where it is from.
    """

    text: str
    verdict: str
    words: str = ""
    source: str = ""


@dataclass(frozen=True)
class Confirmation:
    """Confirmation of a gain: pairs of trials of the default and of the recommended setting.

    Args:
        metric: key of the metric that is compared.
        gain: the pairs and their gain.
        method: definition of gain and interval (``"median of the paired ratios; 95 % interval by bootstrap"``).
    """

    metric: str
    gain: PairedGain
    method: str = ""


@dataclass(frozen=True)
class CodeBlock:
    """A block of text to copy, with its title."""

    title: str
    text: str


@dataclass(frozen=True)
class Recommendation:
    """Recommended settings.

    Args:
        settings: key and value of each.
        blocks: the same as command line, as YAML, as arguments of the user's own code.
        point: number of the point, ``None`` where it is none of the table's.
        note: what is to be said with it.
    """

    settings: tuple[tuple[str, str], ...]
    blocks: tuple[CodeBlock, ...] = ()
    point: int | None = None
    note: str = ""


@dataclass(frozen=True)
class SearchSummary:
    """Summary of the course of a search.

    Args:
        sampler: how settings were drawn.
        budget: what it was allowed (``"20 min"``, ``"40 trials"``).
        stopped: why it ended.
        importance: share of each key in the scatter of the metric, ``None`` where it was not computed.
        importance_how: by which method.
        grid_size: points of the full grid, ``None`` where there is none.
        chosen: number of the point that the search found best and confirmed, ``None`` where there is none.
    """

    sampler: str = ""
    budget: str = ""
    stopped: str = ""
    importance: Mapping[str, float] | None = None
    importance_how: str = ""
    grid_size: int | None = None
    chosen: int | None = None


@dataclass(frozen=True)
class LadderSummary:
    """Summary of a ladder: the maximum gain of removing each cost.

    Args:
        metric: quantity of the bars; each effect has its values in ``step``.
        effects: from the run as configured to the one without any cost.
        sentences: whether the loader is the bottleneck at all, and the evidence.
        method: how rungs are made and measured.
    """

    metric: Metric
    effects: tuple[Effect, ...]
    sentences: tuple[str, ...] = ()
    method: str = ""
