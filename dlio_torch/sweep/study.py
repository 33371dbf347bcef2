"""A study: which settings are varied, what all runs share, how often each point is run."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from dlio_torch.config import resources
from dlio_torch.config.compose import DEFAULT_SCALE, split_argument
from dlio_torch.errors import ConfigError
from dlio_torch.sweep import keys, studyfile
from dlio_torch.sweep.arguments import check_keys, refuse_second_axes
from dlio_torch.sweep.axes import NOT_APPLICABLE, RANKS, Axis, expand
from dlio_torch.sweep.studyfile import Definition
from dlio_torch.units import parse_duration

MOST_POINTS = 10_000
_MOST = {"repeats": 1000, RANKS: 4096, "failures": 1000}
_OWN = tuple(keys.KEYS["sweep"])
_OBJECTIVE = "train.samples_per_s"
# The first run measures what the storage gives, the others find it stored.
_STORAGE = "storage.limits=measure"


@dataclass(frozen=True)
class Study:
    """What is asked.

    Attributes:
        name: names the folder of its results.
        title: a few words.
        settings: ``key=value`` arguments of every run, the recipe among them.
        axes: what varies; the first one slowest.
        repeats: runs of each point.
        ranks: processes of a run, where they are no axis.
        timeout_s: longest time of a run.
        failures: failed runs after which a point is given up.
        figures: dotted names in ``summary.json``; points are ranked by the first.
        better: direction of the first figure.
        description: what it asks, a paragraph.
        sources: publications that it rests on.
        definition: text of the study file, ``""`` where there is none.
        written: argument -> line of the study file that it stands on, for messages.
        scaled: what the scale changed, one line each, once the points are known.
    """

    name: str
    title: str
    settings: tuple[str, ...]
    axes: tuple[Axis, ...] = ()
    repeats: int = 3
    ranks: int = 1
    timeout_s: float = 3600.0
    failures: int = 1
    figures: tuple[str, ...] = (_OBJECTIVE,)
    better: Literal["higher", "lower"] = "higher"
    description: str = ""
    sources: tuple[str, ...] = ()
    definition: str = field(default="", repr=False)
    written: Mapping[str, str] = field(default_factory=dict, repr=False)
    scaled: tuple[str, ...] = ()

    @property
    def asks(self) -> tuple[object, ...]:
        """What two studies have in common that may share a directory: trials of one answer the other."""
        axes = [(axis.key, axis.values, None if axis.settings is None else dict(axis.settings)) for axis in self.axes]
        return self.settings, axes, self.ranks


@dataclass(frozen=True)
class Point:
    """One combination of values.

    Attributes:
        number: from 1, in the order of the grid.
        values: of each axis, ``-`` where the axis has no meaning here (``loader.prefetch_factor`` without workers).
        settings: all ``key=value`` arguments of a run.
        ranks: processes of a run.
    """

    number: int
    values: tuple[tuple[str, str], ...]
    settings: tuple[str, ...]
    ranks: int = 1

    @property
    def label(self) -> str:
        """The values in one line."""
        return " ".join(f"{key}={value}" for key, value in self.values if value != NOT_APPLICABLE) or "as configured"


def parse(
    arguments: Sequence[str],
    *,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
    verb: str = "sweep",
) -> tuple[Study, str | None]:
    """The study that ``key=value`` arguments describe, and the directory that ``output=`` names.

    A key of several values is an axis, one of a single value a setting.  What stands on the command line takes
    the place of what a ``study=`` file says on the same key.

    Args:
        arguments: of the command line.
        cwd: folder that relative paths start from; None: the current one.
        environ: environment, of which ``DLIO_TORCH_PATH`` is read; None: this process's.
        verb: whose keys may be among them.

    Raises:
        ConfigError: anything that is wrong with them, in one line.
    """
    pairs = [split_argument(argument) for argument in arguments]
    given = dict(pairs)  # the last of a key counts, as in a run
    places = resources.find(cwd or Path.cwd(), os.environ if environ is None else environ)
    base = Definition(axes=()) if "study" not in given else studyfile.load(given["study"], places)
    if given.get("output") == "":
        raise ConfigError("output= (command line): no folder", hint="write output=DIR, or leave it out")
    if "output.dir" in given:
        raise ConfigError(
            f"output.dir={given['output.dir']} (command line): each run has a folder of its own",
            hint="write output=DIR for the folder of the study",
        )
    labels = {axis.key: axis for axis in base.axes if axis.settings is not None}
    check_keys(given, verb, labels)
    options = {key: value for key, value in given.items() if key not in _OWN or key == RANKS}
    refuse_second_axes([pair for pair in pairs if pair[0] in options])
    values = {key: expand(key, text) for key, text in options.items()}
    if len(values.get("scale", ())) > 1 and (base.scales or base.values_by_scale):
        raise ConfigError(
            f"scale={given['scale']} (command line): a study file has settings of its own for each scale",
            hint="choose one scale",
        )
    scale = values["scale"][0] if "scale" in values else DEFAULT_SCALE
    shared = [_STORAGE, *base.settings, *base.scales.get(scale, ())]
    shared += [f"{key}={one[0]}" for key, one in values.items() if len(one) == 1 and key not in (RANKS, *labels)]
    axes = []
    for axis in base.axes:
        own = values.get(axis.key)
        if own is None:
            axes.append(replace(axis, values=base.values_by_scale.get(scale, {}).get(axis.key, axis.values)))
        elif len(own) > 1 or axis.key in labels:  # a single value of an option is a setting
            axes.append(_chosen(axis, own, given[axis.key]))
    known = {axis.key for axis in axes}
    axes += [Axis(key, one) for key, one in values.items() if len(one) > 1 and key not in known]
    ranks = [_count(RANKS, text) for axis in axes if axis.key == RANKS for text in axis.values]
    return _limited(
        Study(
            name=_name(given, base, values),
            title=base.title or given.get("name") or _titled(values),
            settings=_last_of_each(shared),
            axes=tuple(_without(axis, set(options)) for axis in axes),
            repeats=_count("repeats", given["repeats"]) if "repeats" in given else base.repeats,
            ranks=1 if ranks else _count(RANKS, values[RANKS][0]) if RANKS in values else base.ranks,
            timeout_s=_timeout(given["timeout"]) if "timeout" in given else base.timeout_s,
            failures=_count("failures", given.get("failures", "1")),
            figures=base.figures or (_OBJECTIVE,),
            better=base.better,
            description=base.description,
            sources=base.sources,
            definition=base.text,
            written={one: where for one, where in base.written.items() if one not in arguments},
        )
    ), given.get("output")


def changed(study: Study, arguments: Sequence[str]) -> Study:
    """``study`` with other ``repeats=``, ``failures=`` or ``timeout=``: what may change while it is resumed.

    Raises:
        ConfigError: another key, or a value that makes no sense.
    """
    for argument in arguments:
        key, text = split_argument(argument)
        if key == "timeout":
            study = replace(study, timeout_s=_timeout(text))
        elif key == "repeats":
            study = replace(study, repeats=_count(key, text))
        elif key == "failures":
            study = replace(study, failures=_count(key, text))
        else:
            raise ConfigError(
                f"{argument} (command line): what a study asks cannot be changed while it is resumed",
                hint="only repeats=, failures= and timeout= can; start another study for the rest",
            )
    return study


def grid(study: Study) -> list[Point]:
    """Every combination of the values of all axes, the first axis slowest."""
    points = []
    for number, values in enumerate(itertools.product(*(axis.values for axis in study.axes)), 1):
        own = tuple(zip((axis.key for axis in study.axes), values, strict=True))
        points.append(point_at(study, number, own))
    return points


def point_at(study: Study, number: int, values: tuple[tuple[str, str], ...]) -> Point:
    """The point of these values, one for each axis of the study."""
    settings = list(study.settings)
    for axis, (_, value) in zip(study.axes, values, strict=True):
        settings += axis.arguments(value)
    ranks = dict(values).get(RANKS, str(study.ranks))
    return Point(number, values, _last_of_each(settings), _count(RANKS, ranks))


def _chosen(axis: Axis, values: tuple[str, ...], text: str) -> Axis:
    for value in values:
        if axis.settings is not None and value not in axis.settings:
            raise ConfigError(
                f"{axis.key}={text} (command line): the study has no {value!r}",
                hint=f"its values are {', '.join(axis.settings)}",
            )
    return replace(axis, values=values)


def _without(axis: Axis, keys: set[str]) -> Axis:
    """A label axis leaves alone what the command line sets."""
    if axis.settings is None:
        return axis
    kept = {
        value: tuple(one for one in settings if split_argument(one)[0] not in keys)
        for value, settings in axis.settings.items()
    }
    return replace(axis, settings=kept)


def _last_of_each(settings: Sequence[str]) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for argument in settings:
        key = split_argument(argument)[0]
        found.pop(key, None)
        found[key] = argument
    return tuple(found.values())


def _name(given: Mapping[str, str], base: Definition, values: Mapping[str, tuple[str, ...]]) -> str:
    name = given.get("name")
    if name is None:
        recipe = values.get("recipe", ("",))
        name = base.name or (Path(recipe[0]).stem if len(recipe) == 1 else "recipes") or "sweep"
    elif not resources.is_name(name):
        raise ConfigError(f"name={name} (command line): not a usable name", hint="use letters, digits, '_' and '-'")
    return name


def _titled(values: Mapping[str, tuple[str, ...]]) -> str:
    varied = [key for key, one in values.items() if len(one) > 1]
    return f"{', '.join(values.get('recipe', ('',)))}: {', '.join(varied) or 'repeated'}"


def _limited(study: Study) -> Study:
    count = math.prod(len(axis.values) for axis in study.axes)
    if count > MOST_POINTS:
        sizes = " x ".join(str(len(axis.values)) for axis in study.axes)
        raise ConfigError(
            f"{sizes} = {count} points (command line): more than {MOST_POINTS}", hint="take fewer values, or tune"
        )
    return study


def _count(key: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 6 and 0 < int(text) <= _MOST[key]):
        raise ConfigError(
            f"{key}={text} (command line): expected a number from 1 to {_MOST[key]}", hint=f"write {key}=3"
        )
    return int(text)


def _timeout(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise ConfigError(f"timeout={text} (command line): {error}", hint="write timeout=30min") from None
    if seconds <= 0:
        raise ConfigError(f"timeout={text} (command line): must be above 0", hint="write timeout=30min")
    return seconds
