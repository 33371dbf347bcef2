"""Check that all ranks see the same data, since a path may be a different folder on each node."""

from __future__ import annotations

import socket
import time
from pathlib import Path

from dlio_torch.dist.base import Communicator
from dlio_torch.errors import DataError

_PATIENCE_S = 2.0  # a network file system may show a new file somewhat later


def check_seen(path: Path, comm: Communicator, option: str) -> None:
    """Raise if a path that rank 0 sees does not exist on this rank; called by all ranks after rank 0's own check.

    Args:
        path: a file or folder of the data.
        comm: the ranks.
        option: what names its place, for the message.

    Raises:
        DataError: it is not there; names rank, host and path.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise DataError(
                f"{path.absolute()} does not exist for rank {comm.rank} on host {socket.gethostname()}, but rank 0 "
                "sees it",
                hint=f"set {option} to a folder that all nodes share",
            )
        time.sleep(0.05)
