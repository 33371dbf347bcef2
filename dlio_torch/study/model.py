"""The model of a study: axes that vary, points that combine their values, trials that measure points."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from dlio_torch.config.arguments import split_argument

NOT_APPLICABLE = "-"
"""Value of an axis at a point at which the option has no meaning (``loader.prefetch_factor`` without workers)."""
RANKS = "ranks"
"""Key of the axis for the number of ranks, which is no option of a run: a launcher starts the ranks."""
OBJECTIVE = "train.samples_per_s"
"""Figure by which points are ranked if a study names none."""
TrialVerb = Literal["run", "checkpoint"]
FIGURES_OF: Mapping[TrialVerb, tuple[str, ...]] = {
    "run": (OBJECTIVE,),
    "checkpoint": (
        "checkpoints.save.bytes_per_s.mean",
        "checkpoints.save.durable_s.mean",
        "checkpoints.restore.bytes_per_s.mean",
        "checkpoints.save.stall_s.mean",
        "checkpoints.peak_host_bytes",
    ),
}
"""Verb of the trials -> figures of a study that names none."""


@dataclass(frozen=True)
class Axis:
    """An option, or the number of ranks, that varies in a study, with its values.

    Attributes:
        key: a dotted option (``loader.num_workers``), a group whose fragments are chosen (``dataset``), ``ranks``, or
            a name of the study if ``settings`` say which arguments each value stands for.
        values: the values in the order of the study; empty if a search draws them.
        settings: the ``key=value`` arguments of each value; ``None``: ``<key>=<value>``.
        compared: whether one value can be better than another; ``False``: the values are different workloads.
        default: value without the study; ``None``: not known. It is not stored.
    """

    key: str
    values: tuple[str, ...] = ()
    settings: Mapping[str, tuple[str, ...]] | None = None
    compared: bool = True
    default: str | None = None

    def arguments(self, value: str) -> tuple[str, ...]:
        """Arguments of a run for ``value``; empty for the number of ranks and for a value without meaning."""
        if value == NOT_APPLICABLE or self.key == RANKS:
            return ()
        return (f"{self.key}={value}",) if self.settings is None else self.settings[value]


@dataclass(frozen=True)
class Study:
    """A study as it was requested.

    Attributes:
        name: name of the folder of its results.
        title: a few words.
        settings: ``key=value`` arguments of every run, including the recipe.
        axes: what varies; the first axis is the slowest.
        repeats: runs of each point.
        ranks: processes of a run, unless ranks are an axis.
        timeout_s: longest time of a run.
        start: ``warm``: trials are forked by a process that has imported torch; ``fresh``: each imports it.
        failures: failed runs after which a point is given up.
        figures: dotted names in ``summary.json``; points are ranked by the first.
        better: direction of the first figure.
        description: the question, a paragraph.
        sources: publications that the study rests on.
        definition: text of the study file; ``""`` without a study file.
        written: argument -> line of the study file that holds it, for messages.
        verb: verb of the command line that a trial is.
        scaled: what the scale changed, one line each, once the points are known.
    """

    name: str
    title: str
    settings: tuple[str, ...]
    axes: tuple[Axis, ...] = ()
    repeats: int = 3
    ranks: int = 1
    timeout_s: float = 3600.0
    start: Literal["warm", "fresh"] = "warm"
    failures: int = 1
    figures: tuple[str, ...] = (OBJECTIVE,)
    better: Literal["higher", "lower"] = "higher"
    description: str = ""
    sources: tuple[str, ...] = ()
    definition: str = field(default="", repr=False)
    written: Mapping[str, str] = field(default_factory=dict, repr=False)
    scaled: tuple[str, ...] = ()
    verb: TrialVerb = "run"

    @property
    def identity(self) -> tuple[object, ...]:
        """Identity of the study: two studies with the same identity can share a directory and its trials."""
        axes = [(axis.key, axis.values, None if axis.settings is None else dict(axis.settings)) for axis in self.axes]
        return self.settings, axes, self.ranks, self.verb


@dataclass(frozen=True)
class Point:
    """One combination of values.

    Attributes:
        number: from 1, in the order of the grid.
        values: key and value of each axis, :data:`NOT_APPLICABLE` if the axis has no meaning here.
        settings: all ``key=value`` arguments of a run.
        ranks: processes of a run.
        fresh: whether its trials cannot start warm.
        verb: verb of the command line that a trial is.
    """

    number: int
    values: tuple[tuple[str, str], ...]
    settings: tuple[str, ...]
    ranks: int = 1
    fresh: bool = False
    verb: TrialVerb = "run"

    @property
    def label(self) -> str:
        """The values of the point in one line."""
        return " ".join(f"{key}={value}" for key, value in self.values if value != NOT_APPLICABLE) or "as configured"


@dataclass(frozen=True)
class Trial:
    """One run of a point.

    Attributes:
        settings: its ``key=value`` arguments.
        point: number of its point.
        repeat: number of the run of its point, from 1.
        values: key and value of each axis.
        ranks: its processes.
        status: ``failed`` if the exit code is not 0.
        exit_code: 124 after the time limit, 128 + n if signal n killed it.
        error: one line that says why it failed.
        directory: run directory, relative to the study's directory if it lies inside; ``""``: there is none.
        start: ``warm`` if a process that had imported torch started it.
        started: UTC, ISO 8601.
        figures: value of each figure by its dotted name; ``None``: not measured.
        cache: state of the page cache that was requested; ``""``: none.
        warnings: reasons to doubt the figures.
    """

    settings: tuple[str, ...] = ()
    point: int = 0
    repeat: int = 1
    values: tuple[tuple[str, str], ...] = ()
    ranks: int = 1
    status: Literal["done", "failed"] = "done"
    exit_code: int = 0
    error: str | None = None
    directory: str = ""
    start: Literal["fresh", "warm"] = "fresh"
    started: str = ""
    figures: Mapping[str, float | None] = field(default_factory=dict)
    cache: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether the trial failed and left no figures."""
        return self.status == "failed"

    @property
    def wall_s(self) -> float | None:
        """Seconds from the start to the end of the trial; ``None``: not measured."""
        return self.figures.get("trial.wall_s")

    def to_json(self) -> dict[str, Any]:
        """Returns the trial as plain data."""
        return {**asdict(self), "values": dict(self.values)}

    @classmethod
    def from_json(cls, data: Any) -> Trial:
        """Restores a trial from the data of :meth:`to_json`.

        Raises:
            ValueError: the data are not those of a trial.
        """
        try:
            return cls(
                **{
                    **data,
                    "settings": tuple(data["settings"]),
                    "values": tuple(data["values"].items()),
                    "warnings": tuple(data.get("warnings", ())),
                    "point": int(data["point"]),
                    "repeat": int(data["repeat"]),
                    "figures": dict(data["figures"]),
                }
            )
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"this is not a trial: {error}") from None


@dataclass(frozen=True)
class Proposal:
    """The next trial of a study, proposed by a strategy.

    Attributes:
        point: the point to run.
        repeat: number of the run of this point, from 1.
        reason: why this point, in a few words; ``""``: it is its turn.
    """

    point: Point
    repeat: int
    reason: str = ""

    def failed(self, exit_code: int, error: str) -> Trial:
        """Returns the trial as failed before its start."""
        point = self.point
        return Trial(
            point.settings, point.number, self.repeat, point.values, point.ranks, "failed", exit_code, error=error
        )


def grid(study: Study) -> list[Point]:
    """Yields every combination of the values of all axes; the first axis changes slowest."""
    keys = [axis.key for axis in study.axes]
    combinations = itertools.product(*(axis.values for axis in study.axes))
    return [point_at(study, i, tuple(zip(keys, values, strict=True))) for i, values in enumerate(combinations, 1)]


def point_at(study: Study, number: int, values: tuple[tuple[str, str], ...]) -> Point:
    """Returns the point with these values, one value for each axis of the study."""
    settings = list(study.settings)
    for axis, (_, value) in zip(study.axes, values, strict=True):
        settings += axis.arguments(value)
    ranks = int(dict(values).get(RANKS, study.ranks))
    return Point(number, values, last_of_each(settings), ranks, verb=study.verb)


def last_of_each(settings: Sequence[str]) -> tuple[str, ...]:
    """Keeps only the last argument of each key."""
    arguments: dict[str, str] = {}
    for argument in settings:
        key = split_argument(argument)[0]
        arguments.pop(key, None)
        arguments[key] = argument
    return tuple(arguments.values())
