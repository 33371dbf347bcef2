"""System file of a measured node: the options of ``system`` that one node can measure, for the verb ``predict``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from dlio_torch.units import format_rate

_HEAD = """\
# {host}, measured at {time} with the recipe {recipe} by `python -m dlio_torch node`.
#
# Read by: python -m dlio_torch predict RUN system=./{file}
"""
_LEFT_OUT = (
    ("write_bytes_per_s", "node measures reads only; without it the read rate is used"),
    ("targets", "a node does not see how many servers hold its files; without it the storage counts as one"),
    ("stripe_bytes, stripe_count", "they need several targets"),
    ("metadata_ops_per_s, metadata_servers", "a single client does not reach the limit of a metadata server"),
    ("network_bytes_per_s, network_latency_s", "they need two nodes"),
)


def system_text(record: Mapping[str, Any], name: str) -> str:
    """Returns the text of the file.

    Args:
        record: content of ``node.json``.
        name: name of the file without its suffix, which becomes the name of the system.
    """
    head = _HEAD.format(
        host=record["environment"]["host"], time=record["measured_at"], recipe=record["recipe"], file=f"{name}.yaml"
    )
    return head + "\n".join([f"name: {json.dumps(name)}", *_values(record), *_absent(record)]) + "\n"


def _values(record: Mapping[str, Any]) -> Iterator[str]:
    demand, requests = record["demand"], record["storage_requests"]
    yield f"ranks_per_node: {demand['accelerators']} # one for each accelerator; their number: {demand['source']}"
    cores = record["environment"]["cpu"]["cores_usable"]
    yield f"cores_per_node: {max(1, math.floor(cores))} # usable cores: affinity mask and control groups"
    large = _large(record)
    if large is not None:
        rate = round(large["bytes_per_s"])
        yield f"# {' '.join(large['method'].split())}"
        yield f"read_bytes_per_s: {rate} # {format_rate(rate)}: at least that, since one node read"
        yield f"client_bytes_per_s: {rate} # the same measurement: what one node gets"
    if requests["latency_s"] is not None:
        yield f"# {requests['rate_how']}"
        yield f"target_requests_per_s: {round(requests['requests_per_s'])}"
        yield f"# {requests['latency_how']}, with the transfer"
        yield f"request_latency_s: {requests['latency_s']:.3g}"


def _absent(record: Mapping[str, Any]) -> Iterator[str]:
    """Comments on the options that are left out."""
    yield "# Left out:"
    if _large(record) is None:
        yield "#   read_bytes_per_s, client_bytes_per_s: large reads of the storage were not measured"
    if record["storage_requests"]["latency_s"] is None:
        yield f"#   target_requests_per_s, request_latency_s: {' '.join(record['storage_requests']['why'].split())}"
    yield from (f"#   {keys}: {why}" for keys, why in _LEFT_OUT)


def _large(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The limit of large reads from the storage; ``None`` if it was not measured."""
    limits: list[Mapping[str, Any]] = record["limits"]
    return next((limit for limit in limits if limit["name"] == "storage_large" and limit["bytes_per_s"]), None)
