"""Made-up limits and results of the verb node."""

from __future__ import annotations

from typing import Any

from dlio_torch.node.demand import NodeDemand
from dlio_torch.node.limits.node_limit import NodeLimit
from dlio_torch.node.node_directory import SCHEMA_VERSION
from dlio_torch.node.node_verdict import verdict_of
from dlio_torch.node.request_rate import RequestRate

MIB = 1 << 20
RESOURCES = {
    "storage_large": "large reads",
    "storage_recipe": "storage",
    "page_cache": "page cache",
    "decode": "decoding",
    "worker_transfer": "transfer from workers",
    "compute": "compute",
    "copy_pageable": "copying to the GPU",
    "copy_pinned": "copying pinned memory to the GPU",
}


def demand(accelerators: int = 8, *, step_s: float = 0.1, batch_size: int = 10) -> NodeDemand:
    """The demand of accelerators that use samples of 1 MiB, stored in half of that."""
    return NodeDemand(accelerators, "--accelerators", batch_size, step_s, MIB / 2, MIB)


def limits(*, alone: bool = True, **samples_per_s: float | None) -> list[NodeLimit]:
    """Limits by name; ``None``: not measured."""
    return [
        NodeLimit(
            name,
            RESOURCES[name],
            rate,
            None if rate is None else rate * MIB,
            alone,
            "" if rate is None else f"method of {name}",
            0.0 if rate is None else 1.0,
            "there is no GPU" if rate is None else "",
        )
        for name, rate in samples_per_s.items()
    ]


def node_record(
    alone: list[NodeLimit] | None = None,
    combined: list[NodeLimit] | None = None,
    requests: RequestRate | None = None,
) -> dict[str, Any]:
    """The content of a ``node.json``."""
    alone = limits(storage_large=4000, storage_recipe=900, decode=500, copy_pinned=None) if alone is None else alone
    combined = limits(alone=False, storage_recipe=800, decode=300) if combined is None else combined
    requests = requests or RequestRate(50_000.0, 1e-4, "random reads by 16 threads", "random reads by 1 thread")
    options = {"loader.engine": "dataloader", "loader.affinity": "none", "loader.pin_memory": "false"}
    rates = {"0": 90.0, "2": 100.0, "4": None}
    return {
        "schema_version": SCHEMA_VERSION,
        "recipe": "minimal",
        "accelerator": "",
        "scale": "tiny",
        "settings": ["recipe=minimal"],
        "data": {"folder": "data", "samples": 32, "steps": 8},
        "measured_at": "2026-01-01T00:00:00+00:00",
        "seconds": 1.0,
        "elapsed_s": 20.0,
        "load": {"before": 0.1, "after": 2.0},
        "verdict": verdict_of(demand(), alone, combined, "minimal").to_record(),
        "demand": demand().to_record(),
        "limits": [limit.to_dict() for limit in alone],
        "limits_together": [limit.to_dict() for limit in combined],
        "storage_requests": requests.to_record(),
        "combinations": [
            {
                "point": number,
                **options,
                "loader.num_workers": workers,
                "samples_per_s": rate,
                "runs_samples_per_s": [] if rate is None else [rate],
                "au": None if rate is None else rate / 100,
                "settings": [],
                "why": "killed by SIGKILL" if rate is None else "",
            }
            for number, (workers, rate) in enumerate(rates.items(), 1)
        ],
        "left_out": [],
        "topology": {},
        "environment": {
            "host": "here",
            "cpu": {"model": "a processor", "machine": "x86_64", "cores_usable": 2},
            "memory": {"total_bytes": 1 << 30},
        },
    }
