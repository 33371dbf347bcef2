"""Records of limits: from a measured rate, or from the reason that there is none."""

from __future__ import annotations

from dlio_torch.errors import PreconditionError
from dlio_torch.node.limits.node_limit import NodeLimit
from dlio_torch.node.limits.parallel_tasks import Rate
from dlio_torch.storage.cache_state import TOLERANCE
from dlio_torch.units import percent

NO_FILES = "the format of the recipe has no files"
NO_GPU = "torch finds no GPU on this machine"


def measured(name: str, resource: str, rate: Rate, method: str, *, alone: bool = True) -> NodeLimit:
    """The record of a measured rate; see :class:`~dlio_torch.node.limits.node_limit.NodeLimit`."""
    return NodeLimit(name, resource, rate.samples_per_s, rate.bytes_per_s, alone, method, rate.seconds)


def refused_limit(name: str, resource: str, why: str, *, alone: bool = True) -> NodeLimit:
    """The record of a limit that was not measured, and the reason."""
    return NodeLimit(name, resource, None, None, alone, "", 0.0, why)


def require_cached(rate: Rate) -> None:
    """Raise if the data did not stay in the page cache.

    Raises:
        PreconditionError: a part of the bytes came from the device.
    """
    share = rate.device_bytes / rate.bytes
    if share > TOLERANCE:
        raise PreconditionError(f"the data do not stay in the page cache: {percent(share)} came from the device again")
