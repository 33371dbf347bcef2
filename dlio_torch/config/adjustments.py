"""Adjusts options that exclude each other: the command line takes precedence over the recipe.

Workers and reader threads exclude each other, and so do the decoupled engine and options of other engines, and a layout
of checkpoints and options of other layouts.  Each adjusted option is reported in a line.  Options of the command line
are never adjusted, unless it turns checkpoints off; combinations that cannot work are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

from dlio_torch.config.check import ConfigCheck
from dlio_torch.config.extensions import engine_facts, format_facts, unread_options
from dlio_torch.config.fields import lookup
from dlio_torch.config.layers import COMMAND_LINE
from dlio_torch.config.schema import CheckpointConfig, Config
from dlio_torch.config.validate_checkpoints import changed_key

_NO_WORKERS: dict[str, Any] = {
    "num_workers": 0,
    "prefetch_factor": None,
    "persistent_workers": False,
    "multiprocessing_context": None,
}


def adjust_loader(config: Config, sources: dict[str, str], scaled: Collection[str] = ()) -> tuple[Config, list[str]]:
    """Resets the options of a recipe that the requested loader excludes.

    Args:
        config: as composed and scaled.
        sources: source of each value; updated for adjusted options.
        scaled: keys that the scale changed; the scale has notes of its own.

    Returns:
        The configuration, and a line for each option that was adjusted or is not used.
    """
    if engine_facts(config).reads_ranges:
        return _decoupled(config, sources, scaled)
    config, notes = _workers_or_threads(config, sources)
    given = [key for key, source in sources.items() if source == COMMAND_LINE]
    return config, notes + list(_without_meaning(ConfigCheck(config, sources), given))


def adjust_checkpoint(config: Config, sources: dict[str, str], *, picked: bool) -> tuple[Config, list[str]]:
    """Resets the options of a recipe that the layout of the command line does not read; ``none`` resets all.

    Args:
        config: as composed.
        sources: source of each value; updated for options that are reset.
        picked: whether the command line picks a fragment of ``checkpoint``.

    Returns:
        The configuration, and a line for each option that was reset; no lines without checkpoints.
    """
    layout = config.checkpoint.layout
    notes: list[str] = []
    if not picked and sources["checkpoint.layout"] != COMMAND_LINE:
        return config, notes
    check = ConfigCheck(config, sources)
    for name in unread_options(config.checkpoint):
        key = f"checkpoint.{name}"
        parts = [part for part in sources if part == key or part.startswith(f"{key}.")]
        if layout == "none" or COMMAND_LINE not in map(sources.get, parts):
            text = check.text(changed_key(config, name))
            if layout != "none":
                notes.append(f"{text} is not used by checkpoint.layout={layout}")
            config = _with(config, key, getattr(CheckpointConfig(), name))
            _replace_sources(sources, parts, key, f"replaces {text}, which checkpoint.layout={layout} does not use")
    return config, notes


def _replace_sources(sources: dict[str, str], parts: Collection[str], key: str, source: str) -> None:
    """Sets the source of an option; a list of groups, which has none, becomes an empty list, which has one."""
    listed = any(part.startswith(f"{key}.0.") for part in parts)
    for part in parts if listed else ():
        del sources[part]
    sources.update(dict.fromkeys([key] if listed else parts, source))


def _workers_or_threads(config: Config, sources: dict[str, str]) -> tuple[Config, list[str]]:
    loader = config.loader
    if not loader.num_workers and sources["loader.num_workers"] == COMMAND_LINE:
        return _turned_off(config, sources, _NO_WORKERS, "loader.num_workers=0")
    if not (loader.num_workers and loader.read_threads):
        return config, []
    given = [key for key in ("loader.num_workers", "loader.read_threads") if sources[key] == COMMAND_LINE]
    if len(given) != 1:
        return config, []
    off = {"read_threads": 0} if given == ["loader.num_workers"] else _NO_WORKERS
    return _turned_off(config, sources, off, given[0])


def _turned_off(
    config: Config, sources: dict[str, str], off: Mapping[str, Any], cause: str
) -> tuple[Config, list[str]]:
    """Resets options of ``loader`` that the command line does not set, because of one that it sets.

    Args:
        config: as composed.
        sources: source of each value; updated.
        off: options and their values without effect.
        cause: the setting of the command line.
    """
    loader, notes = config.loader, []
    kept = {name: value for name, value in off.items() if sources[f"loader.{name}"] != COMMAND_LINE}
    for name, value in kept.items():
        before = getattr(loader, name)
        if before != value:
            notes.append(f"loader.{name} {before} -> {value}, because {cause} is set on the command line")
            sources[f"loader.{name}"] = f"turned off by {cause} (command line)"
    return replace(config, loader=replace(loader, **kept)), notes


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
            sources[key] = f"replaces {check.text(key)}, which loader.engine=decoupled does not use"
            config = _with(config, key, value)
    given = {key for key, source in sources.items() if source != "default"} - set(scaled)
    return config, notes + list(_without_meaning(check, given, decoupled=True))


def _one_process(config: Config, sources: Mapping[str, str]) -> Iterator[tuple[str, Any, str]]:
    """Yields the options to adjust if both workers and a DataPipe are configured: a DataPipe runs in one process."""
    loader = config.loader
    if not loader.num_workers or config.access.pattern != "samples":
        return
    if loader.style == "pipe" and sources["loader.style"] != COMMAND_LINE:
        yield (
            "loader.style",
            "map",
            "workers of this engine divide each batch into groups of samples, and a DataPipe does not support that",
        )
        loader = replace(loader, style="map")
    if sources["loader.num_workers"] == COMMAND_LINE:
        return
    if loader.style == "pipe":
        for name, value in _NO_WORKERS.items():
            yield (
                f"loader.{name}",
                value,
                "this engine reads a DataPipe with reader threads of one process, not with workers",
            )


def _without_meaning(check: ConfigCheck, given: Collection[str], *, decoupled: bool = False) -> Iterator[str]:
    """A line for each given option of the format that is not used, whatever its value."""
    facts = format_facts(check.config)
    engine = " by loader.engine=decoupled" if decoupled else ""
    for unused in (facts.unused_by_decoupled if decoupled else facts.unused)(check.config):
        option = lookup(tuple(unused.key.split(".")))
        if unused.accepted or option is None or option.key not in given:
            continue
        if attrgetter(option.key)(check.config) != option.default:
            yield f"{check.text(option.key)} is not used{engine}: {unused.reason}"


def _with(config: Config, key: str, value: Any) -> Config:
    """Returns the configuration with another value for the option ``key``."""

    def put(group: Any, path: list[str]) -> Any:
        name, *rest = path
        return replace(group, **{name: put(getattr(group, name), rest) if rest else value})

    config_with: Config = put(config, key.split("."))
    return config_with
