"""Parses the ``key=value`` arguments of a study's verb to a study."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from dlio_torch.config import resources
from dlio_torch.config.arguments import split_argument
from dlio_torch.config.existing_data import scale_of
from dlio_torch.config.fields import lookup, nearest
from dlio_torch.config.layers import COMMAND_LINE, unknown
from dlio_torch.errors import ConfigError
from dlio_torch.study import study_file, verb_keys
from dlio_torch.study.axes import expand
from dlio_torch.study.model import FIGURES_OF, RANKS, Axis, Study, last_of_each
from dlio_torch.study.study_file import Definition
from dlio_torch.units import parse_duration

MOST_POINTS = 10_000
_MOST = {"repeats": 1000, RANKS: 4096, "failures": 1000}
_OWN = tuple(verb_keys.KEYS["sweep"])
# The first run measures the storage, the others find the result stored.
_STORAGE = "storage.limits=measure"


def parse(
    arguments: Sequence[str],
    *,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
    verb: str = "sweep",
) -> tuple[Study, str | None]:
    """Parses ``key=value`` arguments to a study, and to the directory that ``output=`` names.

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
    given = dict(pairs)
    places = resources.find(cwd or Path.cwd(), os.environ if environ is None else environ)
    definition = study_file.load(given["study"], places) if "study" in given else Definition(Study("", "", ()))
    base = definition.study
    if given.get("output") == "":
        raise ConfigError(
            "output= (command line): the value names no folder", hint="write output=DIR, or leave output= out"
        )
    if "output.dir" in given:
        raise ConfigError(
            f"output.dir={given['output.dir']} (command line): a study chooses the folder of each of its runs itself",
            hint="set the folder of the study with output=DIR",
        )
    labels = {axis.key: axis for axis in base.axes if axis.settings is not None}
    is_checkpoint = given.get("verb", base.verb) == "checkpoint"
    check_keys(given, verb, (*labels, *(verb_keys.KEYS["checkpoint"] if is_checkpoint else ())))
    base = _with_verb(base, given.get("verb"))
    options = {key: value for key, value in given.items() if key not in _OWN or key == RANKS}
    values = {key: expand(key, text) for key, text in options.items()}
    if len(values.get("scale", ())) > 1 and (definition.scales or definition.values_by_scale):
        raise ConfigError(
            f"scale={given['scale']} (command line): a study file has different settings for each scale, so "
            "scale= takes a single value",
            hint="give scale= one value",
        )
    scale = values["scale"][0] if "scale" in values else scale_of([*map(split_argument, base.settings), *pairs])
    shared = [_STORAGE, *base.settings, *definition.scales.get(scale, ())]
    shared += [f"{key}={value[0]}" for key, value in values.items() if len(value) == 1 and key not in (RANKS, *labels)]
    axes = []
    for axis in base.axes:
        chosen = values.get(axis.key)
        if chosen is None:
            axes.append(replace(axis, values=definition.values_by_scale.get(scale, {}).get(axis.key, axis.values)))
        elif len(chosen) > 1 or axis.key in labels:  # a single value of an option is a setting
            axes.append(_chosen(axis, chosen, given[axis.key]))
    known = {axis.key for axis in axes}
    axes += [Axis(key, value) for key, value in values.items() if len(value) > 1 and key not in known]
    ranks = [_count(RANKS, text) for axis in axes if axis.key == RANKS for text in axis.values]
    study = replace(
        base,
        name=_name(given, base, values),
        title=base.title or given.get("name") or _titled(values),
        settings=last_of_each(shared),
        axes=tuple(_without(axis, set(options)) for axis in axes),
        ranks=1 if ranks else _count(RANKS, values[RANKS][0]) if RANKS in values else base.ranks,
        written={argument: item for argument, item in base.written.items() if argument not in arguments},
    )
    changes = [f"{key}={given[key]}" for key in ("repeats", "timeout", "start", "failures") if key in given]
    return _limited(changed(study, changes)), given.get("output")


def _with_verb(study: Study, text: str | None) -> Study:
    """``study`` with other trials, and their figures unless a study file names figures."""
    if text is None or text == study.verb:
        return study
    verb = next((verb for verb in FIGURES_OF if verb == text), None)
    if verb is None:
        raise ConfigError(
            f"verb={text} (command line): trials have no such verb", hint=f"choose one of {', '.join(FIGURES_OF)}"
        )
    figures = FIGURES_OF[verb] if study.figures == FIGURES_OF[study.verb] else study.figures
    return replace(study, verb=verb, figures=figures)


def changed(study: Study, arguments: Sequence[str]) -> Study:
    """``study`` with other ``repeats=``, ``failures=``, ``timeout=`` or ``start=``, which may change at a resume.

    Raises:
        ConfigError: another key, or a value that makes no sense.
    """
    for argument in arguments:
        key, text = split_argument(argument)
        if key == "timeout":
            study = replace(study, timeout_s=_timeout(text))
        elif key == "start":
            study = replace(study, start=_start(text))
        elif key == "repeats":
            study = replace(study, repeats=_count(key, text))
        elif key == "failures":
            study = replace(study, failures=_count(key, text))
        else:
            raise ConfigError(
                f"{argument} (command line): this setting of a study cannot be changed when the study is resumed",
                hint="change only repeats=, failures=, timeout= or start=, or begin another study",
            )
    return study


def _chosen(axis: Axis, values: tuple[str, ...], text: str) -> Axis:
    for value in values:
        if axis.settings is not None and value not in axis.settings:
            raise ConfigError(
                f"{axis.key}={text} (command line): this axis of the study file has no value {value!r}",
                hint=f"choose values of {', '.join(axis.settings)}",
            )
    return replace(axis, values=values)


def _without(axis: Axis, keys: set[str]) -> Axis:
    """Removes from an axis of labels the settings that the command line sets."""
    if axis.settings is None:
        return axis
    kept = {
        value: tuple(setting for setting in settings if split_argument(setting)[0] not in keys)
        for value, settings in axis.settings.items()
    }
    return replace(axis, settings=kept)


def _name(given: Mapping[str, str], base: Study, values: Mapping[str, tuple[str, ...]]) -> str:
    name = given.get("name")
    if name is None:
        recipe = values.get("recipe", ("",))
        name = base.name or (Path(recipe[0]).stem if len(recipe) == 1 else "recipes") or "sweep"
    elif not resources.is_name(name):
        raise ConfigError(
            f"name={name} (command line): the name of a study becomes a folder name, and this one is not allowed",
            hint="use only letters, digits, '_' and '-' in the name",
        )
    return name


def _titled(values: Mapping[str, tuple[str, ...]]) -> str:
    varied = ", ".join(key for key, value in values.items() if len(value) > 1) or "repeated"
    return f"{', '.join(values['recipe'])}: {varied}" if "recipe" in values else varied


def _limited(study: Study) -> Study:
    count = math.prod(len(axis.values) for axis in study.axes)
    if count > MOST_POINTS:
        sizes = " x ".join(str(len(axis.values)) for axis in study.axes)
        raise ConfigError(
            f"{sizes} = {count} points (command line): a sweep has at most {MOST_POINTS} points",
            hint="give fewer values, or search them with the verb tune",
        )
    return study


def _count(key: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 6 and 0 < int(text) <= _MOST[key]):
        raise ConfigError(
            f"{key}={text} (command line): expected a number from 1 to {_MOST[key]}",
            hint=f"write a number, for example {key}=3",
        )
    return int(text)


def _start(text: str) -> Literal["warm", "fresh"]:
    if text not in ("warm", "fresh"):
        raise ConfigError(
            f"start={text} (command line): expected warm or fresh", hint="write start=warm or start=fresh"
        )
    return "fresh" if text == "fresh" else "warm"


def _timeout(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise ConfigError(
            f"timeout={text} (command line): {error}", hint="write a duration, for example timeout=30min"
        ) from None
    if seconds <= 0:
        raise ConfigError(
            f"timeout={text} (command line): the time must be above 0",
            hint="write a duration, for example timeout=30min",
        )
    return seconds


def check_keys(given: Mapping[str, str], verb: str, labels: Collection[str] = ()) -> None:
    """Refuse keys that are neither options of a run nor keys of ``verb``.

    Args:
        given: key -> value of the command line.
        verb: sweep, tune or headspace.
        labels: axes of a study file that are no options.

    Raises:
        ConfigError: names the verb that the key belongs to, or the key that is meant.
    """
    for key, text in given.items():
        if key in verb_keys.KEYS[verb] or key in labels or lookup(key.split(".")) is not None:
            continue
        problem = f"{key}={text} ({COMMAND_LINE})"
        if verbs := verb_keys.verbs_of(key):
            remedy = "add verb=checkpoint" if (verb, verbs) == ("sweep", ["checkpoint"]) else ""
            raise ConfigError(
                f"{problem}: the verb {verb} has no such key",
                hint=f"{remedy or 'use the key with ' + ', '.join(verbs)}, or remove the argument",
            )
        likely = verb_keys.meant(key, verb) or "".join(nearest(key, list(verb_keys.KEYS[verb]), cutoff=verb_keys.ALIKE))
        if likely:
            raise ConfigError(
                f"{problem}: neither the verb {verb} nor a run has such a key",
                hint=f"did you mean {likely}? `explain {likely}` describes this key",
            )
        raise unknown(tuple(key.split(".")), text, COMMAND_LINE)
