"""Which GPU a rank uses."""

from __future__ import annotations


def gpu_of(local_rank: int, visible: int) -> int:
    """Index of a rank's GPU among those that it sees.

    A launcher may show each rank its own GPU only, which then has the index 0 everywhere; ranks that are more
    than the GPUs of their node share them.

    Args:
        local_rank: number of the rank on its node.
        visible: GPUs that it sees, at least one.
    """
    return local_rank % visible
