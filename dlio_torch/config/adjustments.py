"""Adjustments of options that exclude each other: the command line wins over the recipe.

Workers and reader threads exclude each other, and so do the decoupled engine and options of other engines.  Each
adjusted option is reported in a line.  Options of the command line are never adjusted; combinations that cannot work
are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

from dlio_torch.config.check import ConfigCheck
from dlio_torch.config.extensions import engine_facts, format_facts
from dlio_torch.config.fields import lookup
from dlio_torch.config.layers import COMMAND_LINE
from dlio_torch.config.schema import Config

_NO_WORKERS: dict[str, Any] = {
    "num_workers": 0,
    "prefetch_factor": None,
    "persistent_workers": False,
    "multiprocessing_context": None,
}


def adjust_loader(config: Config, sources: dict[str, str], scaled: Collection[str] = ()) -> tuple[Config, list[str]]:
    """The configuration without options that the requested loader excludes.

    Args:
        config: as composed and scaled.
        sources: source of each value; updated for adjusted options.
        scaled: keys that the scale changed; the scale has notes of its own.

    Returns:
        The configuration, and a line for each option that was adjusted or is not used.
    """
    if engine_facts(config).reads_ranges:
        return _decoupled(config, sources, scaled)
    return _workers_or_threads(config, sources)


def _workers_or_threads(config: Config, sources: dict[str, str]) -> tuple[Config, list[str]]:
    loader = config.loader
    if not (loader.num_workers and loader.read_threads):
        return config, []
    given = [key for key in ("loader.num_workers", "loader.read_threads") if sources[key] == COMMAND_LINE]
    if len(given) != 1:
        return config, []
    if given == ["loader.num_workers"]:
        off: dict[str, Any] = {"read_threads": 0}
    else:
        off = {"num_workers": 0, "prefetch_factor": None, "persistent_workers": False}
    off = {name: value for name, value in off.items() if sources[f"loader.{name}"] != COMMAND_LINE}
    notes = []
    for name, value in off.items():
        notes.append(f"loader.{name} {getattr(loader, name)} -> {value}, since {given[0]} is set")
        sources[f"loader.{name}"] = f"off because of {given[0]} (command line)"
    return replace(config, loader=replace(loader, **off)), notes


def _decoupled(config: Config, sources: dict[str, str], scaled: Collection[str]) -> tuple[Config, list[str]]:
    check = ConfigCheck(config, sources)
    off = [(option.key, option.accepted[0], option.reason) for option in engine_facts(config).unused(config)]
    off += _one_process(config, sources)
    notes: list[str] = []
    noted: set[str] = set()
    for key, value, instead in off:
        if key not in noted and sources.get(key) != COMMAND_LINE and attrgetter(key)(config) != value:
            noted.add(key)
            notes.append(f"{check.text(key)} is not used by loader.engine=decoupled: {instead}")
            sources[key] = f"in place of {check.text(key)}, for loader.engine=decoupled"
            config = _with(config, key, value)
    given = {key for key, source in sources.items() if source != "default"} - set(scaled)
    return config, notes + list(_without_meaning(check, given))


def _one_process(config: Config, sources: Mapping[str, str]) -> Iterator[tuple[str, Any, str]]:
    """Options to adjust where batches of sample indices have both workers and a DataPipe, which is in one process."""
    loader = config.loader
    if not loader.num_workers or config.access.pattern != "samples":
        return
    if loader.style == "pipe" and sources["loader.style"] != COMMAND_LINE:
        yield "loader.style", "map", "its workers divide batches into groups, which a DataPipe cannot"
        loader = replace(loader, style="map")
    if sources["loader.num_workers"] == COMMAND_LINE:
        return
    if loader.style == "pipe":
        for name, value in _NO_WORKERS.items():
            yield f"loader.{name}", value, "reader threads of one process read a DataPipe"


def _without_meaning(check: ConfigCheck, given: Collection[str]) -> Iterator[str]:
    for unused in format_facts(check.config).unused_by_decoupled(check.config):
        option = lookup(tuple(unused.key.split(".")))
        if unused.accepted or option is None or option.key not in given:
            continue
        if attrgetter(option.key)(check.config) != option.default:
            yield f"{check.text(option.key)} is not used by loader.engine=decoupled: {unused.reason}"


def _with(config: Config, key: str, value: Any) -> Config:
    """The configuration with another value of a dotted key."""

    def put(group: Any, path: list[str]) -> Any:
        name, *rest = path
        return replace(group, **{name: put(getattr(group, name), rest) if rest else value})

    config_with: Config = put(config, key.split("."))
    return config_with
