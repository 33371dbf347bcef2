"""Ways of reading that exclude each other: what was asked for wins over what the recipe has for another way.

Workers and reader threads exclude each other, and so do the decoupled engine and options that say how other engines
read.  Whatever gives way is told in a line; what the command line sets itself never does, it is refused where it
cannot work.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

from dlio_torch.config.check import Check
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


def one_way_of_reading(
    config: Config, sources: dict[str, str], scaled: Collection[str] = ()
) -> tuple[Config, list[str]]:
    """The configuration in which what was asked for holds.

    Args:
        config: as composed and scaled.
        sources: where each value was set; told anew for what gives way.
        scaled: keys that the scale changed, of which its own notes tell.

    Returns:
        The configuration, and a line for each option that gave way or has no meaning.
    """
    if engine_facts(config).reads_ranges:
        return _decoupled(config, sources, scaled)
    return _workers_or_threads(config, sources)


def _workers_or_threads(config: Config, sources: dict[str, str]) -> tuple[Config, list[str]]:
    loader = config.loader
    if not (loader.num_workers and loader.read_threads):
        return config, []
    asked = [key for key in ("loader.num_workers", "loader.read_threads") if sources[key] == COMMAND_LINE]
    if len(asked) != 1:
        return config, []
    if asked == ["loader.num_workers"]:
        off: dict[str, Any] = {"read_threads": 0}
    else:
        off = {"num_workers": 0, "prefetch_factor": None, "persistent_workers": False}
    off = {name: value for name, value in off.items() if sources[f"loader.{name}"] != COMMAND_LINE}
    notes = []
    for name, value in off.items():
        notes.append(f"loader.{name} {getattr(loader, name)} -> {value}, since {asked[0]} is set")
        sources[f"loader.{name}"] = f"off beside {asked[0]} (command line)"
    return replace(config, loader=replace(loader, **off)), notes


def _decoupled(config: Config, sources: dict[str, str], scaled: Collection[str]) -> tuple[Config, list[str]]:
    check = Check(config, sources)
    off = [(option.key, option.value, option.instead) for option in engine_facts(config).unused(config)]
    off += _one_process(config, sources)
    notes: list[str] = []
    told: set[str] = set()
    for key, value, instead in off:
        if key not in told and sources.get(key) != COMMAND_LINE and attrgetter(key)(config) != value:
            told.add(key)
            notes.append(f"{check.text(key)} is not used by loader.engine=decoupled: {instead}")
            sources[key] = f"in place of {check.text(key)}, for loader.engine=decoupled"
            config = _with(config, key, value)
    asked = {key for key, source in sources.items() if source != "default"} - set(scaled)
    return config, notes + list(_without_meaning(check, asked))


def _one_process(config: Config, sources: Mapping[str, str]) -> Iterator[tuple[str, Any, str]]:
    """What gives way where batches of sample numbers are read by a DataPipe, which is in one process, or by workers."""
    loader = config.loader
    if not loader.num_workers or config.access.pattern != "samples":
        return
    if loader.style == "pipe" and sources["loader.style"] != COMMAND_LINE:
        yield "loader.style", "map", "its workers share out groups of batches, which a DataPipe does not"
        loader = replace(loader, style="map")
    if sources["loader.num_workers"] == COMMAND_LINE:
        return
    if loader.style == "pipe":
        for name, value in _NO_WORKERS.items():
            yield f"loader.{name}", value, "threads of one process read that"


def _without_meaning(check: Check, asked: Collection[str]) -> Iterator[str]:
    facts = format_facts(check.config)
    for unused in facts.unused_by_decoupled(check.config):
        option = lookup(tuple(facts.key(unused.option).split(".")))
        if unused.only is not None or option is None or option.key not in asked:
            continue
        if facts.value(check.config, unused.option) != option.default:
            yield f"{check.text(option.key)} is not used by loader.engine=decoupled: {unused.instead}"


def _with(config: Config, key: str, value: Any) -> Config:
    """The configuration with another value of a dotted key."""

    def put(group: Any, path: list[str]) -> Any:
        name, *rest = path
        return replace(group, **{name: put(getattr(group, name), rest) if rest else value})

    made: Config = put(config, key.split("."))
    return made
