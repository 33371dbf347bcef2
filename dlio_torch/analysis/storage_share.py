"""Compares the read rate of a run with the storage's measured limit.

::

    rate     bytes of the epochs / seconds of the epochs (of the slowest rank; compute, evaluation and
             checkpoints are inside): of the bytes that the device delivered, or, where the run was served by
             the page cache or the device is not counted, of those that read calls returned
    limit    bytes per second of a reader that does nothing else in the same folder: with requests of the run's
             size (the median of recorded calls, else the mean), as many at once as the run has readers, in
             order or at random, from the same place (device, page cache, past the page cache)
    share    rate / limit; more than 1 where the kernel's reading ahead helps the run and not the reader
    most     the largest limit of that folder and place within a day, whatever the requests; large sequential
             ones, several at once, are among them
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dlio_torch.analysis.cache import WARM
from dlio_torch.config.schema import Config
from dlio_torch.errors import PreconditionError
from dlio_torch.storage.local.device_limits import Cached, Limit, Pattern, ReadWorkload
from dlio_torch.storage.local.eviction import MEMORY_FILE_SYSTEMS
from dlio_torch.storage.local.stored_limits import load_or_measure, stored
from dlio_torch.storage.stage_folder import node_folder


def against_limit(summary: Mapping[str, Any], config: Config, posix: Mapping[str, Any] | None) -> dict[str, Any]:
    """Computes the part ``storage`` of ``summary.json``; measures the limits if ``storage.limits`` requests it.

    Args:
        summary: with ``cache``, ``epochs``, ``io``, ``reads``, ``dataset`` and ``world_size``.
        config: the resolved configuration.
        posix: figures of the recorded calls, where they were recorded.

    Returns:
        ``bytes_per_s``, ``limit_bytes_per_s``, ``share``, ``most_bytes_per_s``, ``share_of_most``; ``how`` the
        limit was measured and ``measured_at``; ``pattern``, ``cached``, ``request_bytes`` and ``threads`` of the
        reader; ``why`` there is no share.  None where not measured.
    """
    figures: dict[str, Any] = dict.fromkeys(
        ("bytes_per_s", "limit_bytes_per_s", "share", "most_bytes_per_s", "share_of_most", "how", "measured_at",
         "pattern", "cached", "request_bytes", "threads", "why")
    )  # fmt: skip
    why = _why_not(summary, config)
    if why is not None:
        return {**figures, "why": why}
    cached = _cached(summary, config)
    request = ReadWorkload.like(
        _pattern(summary, config), cached, _request_bytes(summary, posix), _readers(summary, config)
    )
    rate = _rate(summary, cached)
    figures |= {**vars(request), "bytes_per_s": rate}
    try:
        limit, most = _limits(config, summary, request)
    except PreconditionError as error:
        return {**figures, "why": str(error)}
    if most is not None:
        figures |= {"most_bytes_per_s": most.bytes_per_s, "share_of_most": rate / most.bytes_per_s}
    if limit is None:
        return {
            **figures,
            "why": (
                "the limit of this folder was not measured in the last 24 hours; set storage.limits=measure to measure "
                "it"
            ),
        }
    return {
        **figures,
        "limit_bytes_per_s": limit.bytes_per_s,
        "share": rate / limit.bytes_per_s,
        "how": str(limit),
        "measured_at": limit.measured_at,
    }


def folder_of(config: Config, path: str) -> Path:
    """Folder in which storage limits are measured: that of the generated data, or of the existing data.

    Args:
        config: the resolved configuration.
        path: of the data.
    """
    if config.stage.dir is not None:
        return node_folder(config.stage.dir)
    if config.dataset.path is None:
        return Path(config.dataset.root)
    return Path(path) if Path(path).is_dir() else Path(path).parent


def _why_not(summary: Mapping[str, Any], config: Config) -> str | None:
    cache = summary["cache"]
    if config.storage.limits == "off":
        return "storage.limits=off"
    if cache is None or not cache["epochs"]:
        return "the epochs read no files"
    if summary["io"]["rchar_bytes"] is None:
        return "the kernel does not count the bytes read"
    if cache["machines"] > 1:
        return f"the ranks run on {cache['machines']} machines, but limits are measured for one machine"
    if not summary["reads"]["samples"] or not summary["reads"]["mean_bytes"]:
        return "read calls returned no data"
    return None


def _limits(config: Config, summary: Mapping[str, Any], request: ReadWorkload) -> tuple[Limit | None, Limit | None]:
    options = config.storage
    folder = folder_of(config, summary["dataset"]["path"])
    limits: list[Limit] = []
    if options.limits != "stored":
        limits = load_or_measure(
            folder,
            [request, ReadWorkload.most(request.cached)],
            seconds=options.limits_s,
            size_bytes=options.limits_bytes,
            force=options.limits == "remeasure",
        )
    known = stored(folder) | {limit.request: limit for limit in limits}
    alike = (limit for limit in known.values() if limit.request.cached == request.cached)
    return known.get(request), max(alike, key=lambda limit: limit.bytes_per_s, default=None)


def _cached(summary: Mapping[str, Any], config: Config) -> Cached:
    if config.dataset.direct_io:
        return "direct"
    if summary["cache"]["file_system"] in MEMORY_FILE_SYSTEMS:
        return "warm"
    io = summary["io"]
    share = io["device_read_share"]
    if share is None:
        before = io["cached_share_before"]
        return "warm" if before is not None and before > 0.5 else "cold"
    return "warm" if share <= WARM else "cold"


def _pattern(summary: Mapping[str, Any], config: Config) -> Pattern:
    """Order of the reader's requests: random only if samples come from larger files in shuffled order."""
    access = config.access
    if access.pattern != "samples" or access.order in ("sequential", "strided") or access.unit == "file":
        return "sequential"
    layout = summary["dataset"]["layout"]  # of existing data
    several = config.dataset.samples_per_file > 1 if layout is None else layout["samples"] > layout["files"]
    return "random" if several else "sequential"


def _request_bytes(summary: Mapping[str, Any], posix: Mapping[str, Any] | None) -> float:
    if posix is not None and posix["io"] is not None:
        median = posix["io"]["sizes"].get("read", {}).get("median")
        if median:
            return float(median)
    return float(summary["reads"]["mean_bytes"])


def _readers(summary: Mapping[str, Any], config: Config) -> int:
    return int(summary["world_size"]) * max(1, config.loader.num_workers, config.loader.read_threads)


def _rate(summary: Mapping[str, Any], cached: Cached) -> float:
    epochs = summary["cache"]["epochs"]
    key = "rchar_bytes" if cached == "warm" or summary["io"]["read_bytes"] is None else "read_bytes"
    return float(sum(epoch[key] for epoch in epochs) / sum(epoch["seconds"] for epoch in epochs))
