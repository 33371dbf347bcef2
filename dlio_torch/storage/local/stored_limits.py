"""Measured limits of devices, stored for a day in the user's cache folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dlio_torch import native
from dlio_torch.files.atomic_file import write_private
from dlio_torch.storage.local.device_limits import Limit, ReadWorkload, from_record, measure, to_record

SCHEMA_VERSION = 1
VALID = timedelta(days=1)


def stored(folder: Path | str, cache: Path | None = None) -> dict[ReadWorkload, Limit]:
    """Reads stored limits of a folder and its device that are less than a day old.

    Args:
        folder: any folder; it need not exist.
        cache: folder of the records; None: the user's cache folder.
    """
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        content = json.loads(_record(folder, cache).read_text(encoding="utf-8"))
        if content["schema"] == SCHEMA_VERSION:
            limits = [from_record(record) for record in content["limits"]]
            return {limit.request: limit for limit in limits if is_young(limit.measured_at)}
    return {}


def load_or_measure(
    folder: Path | str,
    requests: Sequence[ReadWorkload],
    *,
    seconds: float = 0.5,
    size_bytes: int = 256 << 20,
    force: bool = False,
    cache: Path | None = None,
) -> list[Limit]:
    """The limits of the given workloads; missing limits are measured and stored.

    Args:
        folder: an existing folder that can be written.
        requests: the workloads.
        seconds: see :func:`~dlio_torch.storage.local.device_limits.measure`.
        size_bytes: see there.
        force: measure all of them again.
        cache: folder of the records; None: the user's cache folder.

    Raises:
        PreconditionError: see there.
    """
    known = stored(folder, cache)
    wanted = [request for request in dict.fromkeys(requests) if force or request not in known]
    if wanted:
        known |= {limit.request: limit for limit in measure(folder, wanted, seconds=seconds, size_bytes=size_bytes)}
        with contextlib.suppress(OSError):  # where it cannot be stored it is measured each time
            _write(_record(folder, cache), Path(folder), list(known.values()))
    return [known[request] for request in requests]


def is_young(measured_at: str) -> bool:
    """Whether a time, ISO 8601 with its zone, is less than a day ago."""
    age = datetime.now(UTC) - datetime.fromisoformat(measured_at)
    return timedelta(0) <= age < VALID


def _record(folder: Path | str, cache: Path | None) -> Path:
    place = Path(os.path.realpath(folder))
    basis = f"{socket.gethostname()}\0{place}\0{os.stat(place).st_dev}"
    return (cache or native.cache_dir()) / f"storage-{hashlib.sha256(basis.encode()).hexdigest()[:16]}.json"


def _write(path: Path, folder: Path, limits: Sequence[Limit]) -> None:
    record = {
        "schema": SCHEMA_VERSION,
        "host": socket.gethostname(),
        "folder": os.path.realpath(folder),
        "limits": [to_record(limit) for limit in limits],
    }
    write_private(path, json.dumps(record, indent=2) + "\n")
