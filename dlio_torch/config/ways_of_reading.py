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
from dlio_torch.config.fields import lookup
from dlio_torch.config.layers import COMMAND_LINE
from dlio_torch.config.schema import Config
from dlio_torch.config.validate_decoupled import foreign

_NO_WORKERS: dict[str, Any] = {
    "num_workers": 0,
    "prefetch_factor": None,
    "persistent_workers": False,
    "multiprocessing_context": None,
}

_NO_CALLS = "it makes no calls of the HDF5 library to read samples"
_ITS_OWN = "its requests are of loader.transfer_size at the most"
_WHOLE = "it reads such a file whole"
_OF_LIBRARIES = {
    "hdf5": {"hdf5.chunk_cache_bytes": _NO_CALLS},
    "larcv3": {
        f"larcv3.{name}": _NO_CALLS
        for name in ("chunk_cache_bytes", "table_cache_chunks", "metadata_cache_bytes", "cold_events", "opens")
    },
    "hdf5_volume": {"volume.chunk_cache_bytes": _NO_CALLS},
    "tfrecord": {"tfrecord.transfer_size": _ITS_OWN},
    "csv": {"csv.read_bytes": _WHOLE, "csv.chunk_rows": _WHOLE},
    "npz": {"npz.buffer_bytes": _ITS_OWN},
    "npy": {"npz.buffer_bytes": _ITS_OWN},
    "jpeg": {"image.buffer_bytes": _WHOLE},
    "png": {"image.buffer_bytes": _WHOLE},
}
"""By format, options of its library's calls, and what the decoupled engine does; any value may stand beside it."""


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
    if config.loader.engine == "decoupled":
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
    off = [(option.key, option.value, option.instead) for option in foreign(config)]
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
    data = check.config.dataset
    for name, instead in _OF_LIBRARIES.get(data.format, {}).items():
        option = lookup(("dataset", *name.split(".")))
        decoded_whole = data.format == "tfrecord" and data.tfrecord.compression == "gzip"  # by the format's own reader
        if option is None or decoded_whole or option.key not in asked:
            continue
        if attrgetter(name)(data) != option.default:
            yield f"{check.text(option.key)} is not used by loader.engine=decoupled: {instead}"


def _with(config: Config, key: str, value: Any) -> Config:
    """The configuration with another value of a dotted key."""

    def put(group: Any, path: list[str]) -> Any:
        name, *rest = path
        return replace(group, **{name: put(getattr(group, name), rest) if rest else value})

    made: Config = put(config, key.split("."))
    return made
