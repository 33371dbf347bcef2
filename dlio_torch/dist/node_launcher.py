"""Commands that start the ranks of a further run on this node, with the communicator of the ranks of this run."""

from __future__ import annotations

import os
import shutil
import sys

from dlio_torch.dist.base import Communicator
from dlio_torch.dist.launcher import Launch, detect
from dlio_torch.errors import PreconditionError


def node_launcher(comm: Communicator, launch: Launch | None = None) -> list[str]:
    """Returns the command that starts a program as so many ranks as ``comm`` has; the program's words follow it.

    Args:
        comm: communicator of the ranks of this run.
        launch: how this process was started; ``None``: ask the environment.

    Returns:
        The command; empty for torchrun, which starts Python itself, and for a single rank.

    Raises:
        PreconditionError: the launcher of MPI is not installed.
    """
    if comm.world_size == 1 or comm.name == "torch":
        return []
    if comm.name == "mpi" or (launch or detect()).name == "mpirun":
        return [_mpiexec(), "-n", str(comm.world_size)]
    horovodrun = [sys.executable, "-W", "ignore", "-m", "horovod.runner.launch"]
    return [*horovodrun, "--gloo", "-np", str(comm.world_size), "-H", f"localhost:{comm.world_size}"]


def _mpiexec() -> str:
    """Path of mpiexec: beside this Python, where pip installs MPICH, or else on PATH.

    Raises:
        PreconditionError: there is none.
    """
    folders = [os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]
    path = shutil.which("mpiexec", path=os.pathsep.join(folders))
    if path is None:
        raise PreconditionError("mpiexec is neither on PATH nor beside this Python", hint="put it on PATH")
    return path
