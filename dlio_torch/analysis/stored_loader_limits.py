"""Measured limits of loaders, stored for a day in the user's cache folder: one file for each loader, data and host."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dlio_torch import __version__, native
from dlio_torch.analysis.loader_limit import LoaderLimit, measuring_config
from dlio_torch.config.emit import as_dict
from dlio_torch.config.schema import Config
from dlio_torch.files.atomic_file import write_private
from dlio_torch.storage.local.stored_limits import VALID, is_young

SCHEMA_VERSION = 1
_IRRELEVANT = ("recipe", "accelerator", "description", "system", "scale", "output")
_IRRELEVANT_OF_LOADER = ("limit", "limit_steps", "timeout_s", "replay_batches", "replay_bytes")


def key(config: Config, summary: Mapping[str, Any]) -> str:
    """Digest of all that the limit depends on: options, data, ranks, machine and version of this package.

    Args:
        config: the resolved configuration of a run, whether it measures the limit or has one.
        summary: of that run.
    """
    options = as_dict(measuring_config(config))
    for name in _IRRELEVANT:
        del options[name]
    for name in _IRRELEVANT_OF_LOADER:
        del options["loader"][name]
    ranks = summary["world_size"]
    backend = summary["ranks_by"]["backend"] if ranks > 1 else "single"
    basis = [options, summary["dataset"]["path"], ranks, backend, socket.gethostname(), __version__]
    return hashlib.sha256(json.dumps(basis, sort_keys=True).encode()).hexdigest()[:16]


def stored(name: str, cache: Path | None = None) -> LoaderLimit | None:
    """Reads a stored limit that is less than a day old; None if there is none.

    Args:
        name: result of :func:`key`.
        cache: folder of the records; None: the user's cache folder.
    """
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        content = json.loads(_record(name, cache).read_text(encoding="utf-8"))
        if content["schema"] == SCHEMA_VERSION:
            limit = LoaderLimit(**content["limit"])
            return limit if is_young(limit.measured_at) else None
    return None


def store(name: str, limit: LoaderLimit, cache: Path | None = None) -> None:
    """Store a limit and remove outdated ones; a cache folder that cannot be written is no error.

    Args:
        name: result of :func:`key`.
        limit: the measured limit.
        cache: folder of the records; None: the user's cache folder.
    """
    path = _record(name, cache)
    with contextlib.suppress(OSError):
        write_private(path, json.dumps({"schema": SCHEMA_VERSION, "limit": asdict(limit)}, indent=2) + "\n")
    for other in path.parent.glob("loader-*.json"):
        with contextlib.suppress(OSError):
            if time.time() - other.stat().st_mtime > VALID.total_seconds():
                other.unlink()


def _record(name: str, cache: Path | None) -> Path:
    return (cache or native.cache_dir()) / f"loader-{name}.json"
