"""Limit of one resource of a node: the record that the measurements return."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class NodeLimit:
    """Limit of one resource.

    Attributes:
        name: ``storage_large``, ``storage_recipe``, ``page_cache``, ``decode``, ``worker_transfer``,
            ``copy_pageable``, ``copy_pinned``, ``compute`` or ``allreduce``.
        resource: the resource in words, for sentences: "storage", "decoding".
        samples_per_s: samples of the recipe per second of the whole node (all usable cores, all visible GPUs);
            ``None``: not measured.
        bytes_per_s: bytes per second that the resource moves for them: stored bytes of a storage, bytes of the
            gradient of an allreduce, else bytes of samples in memory; ``None``: not measured.
        alone: measured alone; else while the other resources were in use.
        method: one sentence: what was measured, with which requests, threads and processes.
        seconds: length of the measurement; 0 where nothing had to be measured.
        why: reason that there is no figure; empty if there is one.
    """

    name: str
    resource: str
    samples_per_s: float | None
    bytes_per_s: float | None
    alone: bool
    method: str
    seconds: float
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The limit as values for JSON."""
        return asdict(self)
