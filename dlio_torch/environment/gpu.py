"""The GPU of a rank."""

from __future__ import annotations


def gpu_of(local_rank: int, visible: int) -> int:
    """Index of a rank's GPU among the visible GPUs.

    A launcher may show each rank one GPU only, which then has the index 0 everywhere.  If a node has more ranks
    than GPUs, ranks share GPUs.

    Args:
        local_rank: number of the rank on its node.
        visible: number of visible GPUs, at least one.
    """
    return local_rank % visible
