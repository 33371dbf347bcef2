"""Reads a study file, ``conf/study/<name>.yaml``: a study with a name, and the publication to compare with.

The keys (those that are not read here belong to :mod:`dlio_torch.study.published.comparison`)::

    title, description         words
    sources                    publications, a list
    recipe                     as on the command line
    settings                   key=value arguments of every point, a list
    scales                     <scale>: further arguments at that scale
    ranks, repeats             numbers
    timeout_s                  longest time of a run, a duration
    axes                       a list of {key, values}; values are a list, or a mapping of labels to lists of arguments;
                               compared: false where the values are different workloads, of which none is better
    values_by_scale            <scale>: {<axis>: values at that scale}
    verb                       run | checkpoint: what a trial is; checkpoint saves and loads without training
    figures                    dotted names in summary.json; points are ranked by the first
    better                     higher | lower, of the first figure
    published, statements, remarks, larger_than_memory
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dlio_torch.config.arguments import split_argument
from dlio_torch.config.fields import nearest
from dlio_torch.config.resources import Resources, read_document
from dlio_torch.config.yamlfile import Document
from dlio_torch.errors import ConfigError
from dlio_torch.study.axes import expand
from dlio_torch.study.model import FIGURES_OF, RANKS, Axis, Study, TrialVerb
from dlio_torch.units import parse_duration

GROUP = "study"
KEYS = (
    "title",
    "description",
    "sources",
    "recipe",
    "settings",
    "scales",
    "ranks",
    "repeats",
    "timeout_s",
    "axes",
    "values_by_scale",
    "verb",
    "figures",
    "better",
    "published",
    "statements",
    "remarks",
    "larger_than_memory",
)


@dataclass(frozen=True)
class Definition:
    """Content of a study file.

    Attributes:
        study: at no scale; without a file one that says nothing.
        scales: scale -> further arguments of every point.
        values_by_scale: scale -> axis -> values.
    """

    study: Study
    scales: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    values_by_scale: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)


def load(name: str, places: Resources) -> Definition:
    """Loads a study file by its name, or by its path (with a slash, or ending in .yaml).

    Raises:
        ConfigError: there is none, or it is malformed; names the line.
    """
    subject = f"study={name} (command line)"
    if "/" in name or name.endswith((".yaml", ".yml")):
        path = _own_file(name, subject, places)
        document, stem = read_document(path, subject, name), path.stem
    else:
        document, stem = places.fragment(GROUP, name, "command line"), name
        path = places.choices(GROUP)[name]
    return _StudyFileReader(document).read(stem, path.read_text(encoding="utf-8"))


def _own_file(name: str, noun: str, places: Resources) -> Path:
    try:
        path = (places.cwd / Path(name).expanduser()).resolve()
        is_file = path.is_file()
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, a NUL, an unknown ~user
        raise ConfigError(
            f"{noun}: the path cannot be used: {error}", hint="name a YAML file, for example study=./my.yaml"
        ) from None
    if is_file:
        return path
    if path.is_dir():
        raise ConfigError(
            f"{noun}: the path is a folder, and a study file is needed", hint="name a YAML file in this folder"
        )
    if path.exists():
        raise ConfigError(
            f"{noun}: the path is not a regular file", hint="name a YAML file, for example study=./my.yaml"
        )
    raise ConfigError(f"{noun}: no such file", hint=f"shipped studies are {', '.join(places.choices(GROUP))}")


class _StudyFileReader:
    """Converts a document to a :class:`Definition`; every error names the line."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.tree = document.tree
        self.written: dict[str, str] = {}

    def read(self, name: str, text: str) -> Definition:
        for key in self.tree:
            if key not in KEYS:
                close = nearest(key, KEYS)
                raise self.wrong((key,), "unknown key", f"did you mean {close[0]}?" if close else ", ".join(KEYS))
        axes = self.axes()
        better = self.words("better") or "higher"
        if better not in ("higher", "lower"):
            raise self.wrong(("better",), f"{better}: no such direction", "write higher or lower")
        verb: TrialVerb = "checkpoint" if self.words("verb") == "checkpoint" else "run"
        if self.words("verb") not in ("", verb):
            raise self.wrong(("verb",), f"{self.words('verb')}: no such trial", "write run or checkpoint")
        recipe = self.words("recipe")
        self.written[f"recipe={recipe}"] = self.document.location_of(("recipe",))
        study = Study(
            name=name,
            title=self.words("title") or name,
            settings=((f"recipe={recipe}",) if recipe else ()) + self.arguments(("settings",), self.tree),
            axes=axes,
            repeats=self.number("repeats", 3),
            ranks=self.number(RANKS, 1),
            timeout_s=self.duration("timeout_s", 3600.0),
            figures=self.list("figures") or FIGURES_OF[verb],
            better="lower" if better == "lower" else "higher",
            description=" ".join(self.words("description").split()),
            sources=self.list("sources"),
            definition=text,
            written=self.written,
            verb=verb,
        )
        scales = {scale: self.arguments((scale,), item, "scales") for scale, item in self.by_scale("scales")}
        values = {scale: self.values_at(scale, item, axes) for scale, item in self.by_scale("values_by_scale")}
        return Definition(study, scales, values)

    def axes(self) -> tuple[Axis, ...]:
        result = self.tree.get("axes") or []
        if not isinstance(result, list):
            raise self.wrong(("axes",), "expected a list", "write each axis as '- key: ...' and 'values: [...]'")
        axes: list[Axis] = []
        for i, item in enumerate(result):
            path = ("axes", str(i))
            needed = {"key", "values"}
            if not isinstance(item, dict) or set(item) - {"compared"} != needed or not isinstance(item["key"], str):
                raise self.wrong(path, "expected key and values", "write each axis as '- key: ...' and 'values: [...]'")
            if item["key"] in [axis.key for axis in axes]:
                raise self.wrong(path, f"axis {item['key']} appears twice", "remove one of the two")
            compared = item.get("compared", "true")
            if compared not in ("true", "false"):
                raise self.wrong(
                    (*path, "compared"), "expected true or false", "write true or false, or leave the key out"
                )
            axis = self.axis(item["key"], item["values"], (*path, "values"))
            axes.append(replace(axis, compared=compared == "true"))
        return tuple(axes)

    def axis(self, key: str, values: Any, path: tuple[str, ...]) -> Axis:
        if isinstance(values, dict) and values:
            settings = {label: self.arguments((label,), values, *path) for label in values}
            return Axis(key, tuple(settings), settings)
        return Axis(key, self.values(key, values, path))

    def values(self, key: str, values: Any, path: tuple[str, ...]) -> tuple[str, ...]:
        texts = [values] if isinstance(values, str) else values
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            raise self.wrong(path, f"{key}: expected a list of values", "put quotes around lists: '[1,2]'")
        location = self.document.location_of(path)
        result = tuple(value for text in texts for value in expand(key, text, location))
        if len(set(result)) < len(result):
            raise self.wrong(path, f"{key}: a value appears twice", "remove one of the two")
        self.written |= {f"{key}={value}": location for value in result}
        return result

    def values_at(self, scale: str, tree: Any, axes: tuple[Axis, ...]) -> dict[str, tuple[str, ...]]:
        if not isinstance(tree, dict):
            raise self.wrong(
                ("values_by_scale", scale), "expected '<axis>: [values]'", "write one of the axes and a list of values"
            )
        values: dict[str, tuple[str, ...]] = {}
        for key, item in tree.items():
            path = ("values_by_scale", scale, key)
            axis = next((axis for axis in axes if axis.key == key), None)
            if axis is None:
                raise self.wrong(
                    path, f"the study has no axis {key}", f"axes are {', '.join(axis.key for axis in axes)}"
                )
            values[key] = self.values(key, item, path)
            strange = [value for value in values[key] if axis.settings is not None and value not in axis.settings]
            if strange:
                raise self.wrong(path, f"{key} has no value {strange[0]!r}", f"values are {', '.join(axis.values)}")
        return values

    def by_scale(self, key: str) -> list[tuple[str, Any]]:
        result = self.tree.get(key) or {}
        if not isinstance(result, dict):
            raise self.wrong((key,), "expected '<scale>: ...' lines", f"write '{key}: {{tiny: ...}}'")
        return [(scale, result if key == "scales" else item) for scale, item in result.items()]

    def arguments(self, key: tuple[str], tree: Mapping[str, Any], *path: str) -> tuple[str, ...]:
        """Reads the list of ``key=value`` arguments at ``path + key``."""
        result, here = tree.get(key[0]) or [], (*path, *key)
        if not isinstance(result, list) or not all(isinstance(item, str) and "=" in item for item in result):
            raise self.wrong(here, "expected a list of key=value", "write a list, for example [loader.num_workers=2]")
        for i, entry in enumerate(result):
            split_argument(entry)
            self.written[entry] = self.document.location_of((*here, str(i)))
        return tuple(result)

    def list(self, key: str) -> tuple[str, ...]:
        result = self.tree.get(key) or []
        if not isinstance(result, list) or not all(isinstance(item, str) for item in result):
            raise self.wrong((key,), "expected a list", "write a list in brackets, for example [a, b]")
        return tuple(result)

    def words(self, key: str) -> str:
        result = self.tree.get(key) or ""
        if not isinstance(result, str):
            raise self.wrong((key,), "expected text", "write one line of text")
        return result

    def number(self, key: str, default: int) -> int:
        text = self.words(key) or str(default)
        if not (text.isascii() and text.isdecimal() and 0 < int(text[:9]) <= 1000):
            raise self.wrong(
                (key,), f"{text}: expected a number from 1 to 1000", f"write a number, for example {key}: {default}"
            )
        return int(text)

    def duration(self, key: str, default: float) -> float:
        try:
            seconds = parse_duration(self.words(key) or str(default))
        except ValueError as error:
            raise self.wrong((key,), str(error), f"write a number of seconds, for example {key}: 300") from None
        if seconds <= 0:
            raise self.wrong((key,), "the time must be above 0", f"write a number of seconds, for example {key}: 300")
        return seconds

    def wrong(self, path: tuple[str, ...], problem: str, hint: str) -> ConfigError:
        return ConfigError(f"{'.'.join(path)} ({self.document.location_of(path)}): {problem}", hint=hint)
