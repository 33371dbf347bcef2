"""What a study says beyond its points: published figures, a search and its gain, settings to take over, a ladder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dlio_torch.analysis.repeats import Spread
from dlio_torch.report.html.study.metrics import Metric


@dataclass(frozen=True)
class PublishedPoint:
    """A point of a published figure beside ours.

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
    """A published series and our points of it.

    Args:
        title: of the figure (``"Fig. 11 a: HDF5 chunk size, Cosmic Tagger"``); series of one title share a figure.
        axis: what changes along the abscissa: the swept key, or words.
        points: in the order of the abscissa.
        published_label: what was published (``"I/O time"``).
        published_unit: its unit, as :attr:`dlio_torch.report.html.study.metrics.Metric.unit`.
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
    """A published sentence, and what our points say to it.

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
    """Runs of the default beside runs of the recommended setting, one pair after the other.

    Args:
        metric: key of what is compared.
        pairs: default's and recommended's value of each pair, in the order of time.
        gain: relative gain (0.25: 25 % better), positive where the recommended setting is better.
        low: lower end of its interval of uncertainty, ``None`` where there are too few pairs.
        high: upper end.
        how: what the gain and the interval are (``"median of the paired ratios; 95 % interval by bootstrap"``).
    """

    metric: str
    pairs: tuple[tuple[float, float], ...]
    gain: float
    low: float | None
    high: float | None
    how: str


@dataclass(frozen=True)
class Code:
    """Something to copy: what it is and its text."""

    title: str
    text: str


@dataclass(frozen=True)
class Recommendation:
    """Settings to take over.

    Args:
        settings: key and value of each.
        blocks: the same as command line, as YAML, as arguments of the user's own code.
        point: number of the point, ``None`` where it is none of the table's.
        note: what is to be said with it.
    """

    settings: tuple[tuple[str, str], ...]
    blocks: tuple[Code, ...] = ()
    point: int | None = None
    note: str = ""


@dataclass(frozen=True)
class Search:
    """How a search went.

    Args:
        sampler: how settings were drawn.
        budget: what it was allowed (``"20 min"``, ``"40 trials"``).
        stopped: why it ended.
        importance: share of each key in the scatter of the metric, ``None`` where it was not computed.
        importance_how: by which method.
        storage: how to open it in Optuna's dashboard.
        grid_size: points of the full grid, ``None`` where there is none.
        chosen: number of the point that the search found best and confirmed, ``None`` where there is none.
    """

    sampler: str = ""
    budget: str = ""
    stopped: str = ""
    importance: Mapping[str, float] | None = None
    importance_how: str = ""
    storage: str = ""
    grid_size: int | None = None
    chosen: int | None = None


@dataclass(frozen=True)
class Rung:
    """A step of a ladder that removes one cost after the other.

    Args:
        name: what it is called (``"as configured"``, ``"without decoding and preprocessing"``).
        left: what is left of the run, ``""`` for the first (``"finished samples"``).
        value: the metric.
        steps: seconds per step with its spread, ``None`` where not measured.
        note: what is to be said with it.
        parts: seconds per step by part (``"fetch"``, ``"compute"``, ``"other"``), where measured.
        over_first: how many times as good as the first rung, of runs of the same round; ``None``: not measured.
        over_above: the same over the rung above that was measured.
    """

    name: str
    left: str
    value: Spread | None
    steps: Spread | None = None
    note: str = ""
    parts: Mapping[str, float] = field(default_factory=dict)
    over_first: float | None = None
    over_above: float | None = None


@dataclass(frozen=True)
class Ladder:
    """What each cost could gain at the most.

    Args:
        metric: what the rungs are measured in.
        rungs: from the run as configured to the one without any cost.
        words: whether the loader is the bottleneck at all, one sentence each.
        how: how rungs are made and measured.
    """

    metric: Metric
    rungs: tuple[Rung, ...]
    words: tuple[str, ...] = ()
    how: str = ""
