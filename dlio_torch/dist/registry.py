"""Registry of communicators: chooses the backend from options and launcher, and connects the ranks."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dlio_torch.dist.base import Communicator, SingleCommunicator
from dlio_torch.dist.hvd_settings import check_no_horovod_options
from dlio_torch.dist.launcher import Launch, detect
from dlio_torch.errors import ConfigError, MissingPackageError

if TYPE_CHECKING:
    from dlio_torch.config.schema import DistConfig

Backend = Literal["single", "torch", "horovod", "mpi"]

_START = {
    "torch": "start the ranks with torchrun --nproc-per-node <n> -m dlio_torch ...",
    "horovod": "start the ranks with horovodrun -np <n> python -m dlio_torch ...",
    "mpi": "start the ranks with mpiexec -n <n> python -m dlio_torch ...",
}


def connect(config: DistConfig, launch: Launch | None = None, timeline: bool = False) -> Communicator:
    """Connect this process with the other ranks; called once, by every rank.

    Args:
        config: ``dist``.
        launch: how this process was started; ``None``: ask the environment.
        timeline: whether Horovod's timeline is wanted (``trace.horovod``).

    Raises:
        ConfigError: the backend does not match the launcher or the options, or the launcher's variables are wrong.
        MissingPackageError: Horovod or mpi4py is needed and not installed, or not usable.
        RunFailed: the ranks cannot connect within the timeout.
    """
    launch = launch or detect()
    backend = choose_backend(config.backend, launch)
    if backend != "horovod":
        check_no_horovod_options(config.horovod, timeline, backend)
    if backend == "single":
        return SingleCommunicator()
    if backend == "torch":
        from dlio_torch.dist.torchdist import TorchCommunicator

        return TorchCommunicator(launch, config.timeout_s)
    if backend == "mpi":
        check_mpi4py()
        from dlio_torch.dist.mpi import MpiCommunicator

        return MpiCommunicator(launch, config.timeout_s)
    check_horovod()
    try:
        from dlio_torch.dist.hvd import HorovodCommunicator, mpi_built
    except ImportError as error:  # a library of its MPI is missing, or its extension is for another torch
        raise MissingPackageError(
            f"the installed Horovod cannot be imported: {error}", hint=_install_command()
        ) from error
    if launch.name == "mpirun" and not mpi_built():
        raise MissingPackageError(
            "mpirun started the ranks, but the installed Horovod was built without MPI",
            hint=f"{_install_command()} --mpi, or start the ranks with horovodrun",
        )
    return HorovodCommunicator(launch, config.timeout_s, config.horovod, timeline)


def choose_backend(
    option: Literal["auto", "single", "torch", "horovod", "mpi"],
    launch: Launch,
    environ: Mapping[str, str] = os.environ,
) -> Backend:
    """Returns the backend that ``dist.backend`` selects, after checking it against the launcher.

    ``auto`` under mpirun is Horovod if one with an MPI controller is installed, else mpi4py if that is installed; with
    neither it stays Horovod, whose error names the package to install.

    Raises:
        ConfigError: backend and launcher do not match.
    """
    if option == "auto":
        if launch.name == "mpirun" and has_mpi4py() and not horovod_has_mpi():
            return "mpi"
        return launch.backend
    if option == "single":
        if launch.world_size > 1:
            raise ConfigError(
                f"dist.backend=single, but {launch.name} started {launch.world_size} ranks",
                hint="leave dist.backend=auto, or start one process without a launcher",
            )
        return option
    if option == "mpi" and launch.name in ("single", "mpirun", "srun"):
        return option  # MPI starts in one process, too
    if launch.name == "single":
        raise ConfigError(
            f"dist.backend={option} needs a launcher, but no launcher started this process", hint=_START[option]
        )
    if option == launch.backend:
        return option
    # mpirun and srun only start processes: if the ranks know an address, the other backend works, too.
    if option == "torch" and launch.name == "mpirun":
        if "MASTER_ADDR" in environ and "MASTER_PORT" in environ:
            return option
        raise ConfigError(
            "dist.backend=torch under mpirun needs the environment variables MASTER_ADDR and MASTER_PORT",
            hint="set both variables to rank 0's host and a free port, or start the ranks with torchrun",
        )
    raise ConfigError(
        f"dist.backend={option} does not work with the launcher that started this process, {launch.name}",
        hint=f"{_START[option]}, or set dist.backend=auto",
    )


def check_horovod() -> None:
    """Check without importing Horovod that it is installed, has its torch extension, and matches this torch.

    Raises:
        MissingPackageError: names the check that fails, and the command that installs Horovod.
    """
    spec = importlib.util.find_spec("horovod")
    if spec is None or not spec.submodule_search_locations:
        raise MissingPackageError("Horovod is not installed", hint=_install_command())
    folder = Path(next(iter(spec.submodule_search_locations)))
    if not any((folder / "torch").glob("mpi_lib_v2*.so")):
        raise MissingPackageError(
            f"the installed Horovod ({folder}) has no torch extension: its build did not find torch",
            hint=_install_command(),
        )
    import torch

    built_for = _built_for(folder)
    if built_for not in (None, torch.__version__):
        raise MissingPackageError(
            f"the installed Horovod was built for torch {built_for}, but the installed torch is {torch.__version__}",
            hint=_install_command(),
        )


def horovod_has_mpi() -> bool:
    """Whether Horovod is installed, works, and has an MPI controller."""
    try:
        check_horovod()
        from dlio_torch.dist.hvd import mpi_built

        return mpi_built()
    except (MissingPackageError, ImportError):
        return False


def has_mpi4py() -> bool:
    """Whether mpi4py is installed, with or without a working MPI library."""
    return importlib.util.find_spec("mpi4py") is not None


def check_mpi4py(user: str = "dist.backend=mpi") -> None:
    """Check that mpi4py, which ``user`` needs, is installed and can load an MPI library.

    Raises:
        MissingPackageError: it is not, or does not; the hint is the command that installs it.
    """
    if not has_mpi4py():
        raise MissingPackageError(
            f"{user} needs mpi4py, which is not installed",
            hint=(
                "install mpi4py (pip install 'dlio-torch[mpi]') and an MPI library (the system's package, or pip "
                "install mpich)"
            ),
        )
    try:
        importlib.import_module("dlio_torch.dist.mpiworld")
    except (ImportError, RuntimeError) as error:  # RuntimeError: its wheel found no libmpi
        raise MissingPackageError(
            f"{user}: mpi4py cannot load an MPI library: {str(error).splitlines()[0]}",
            hint="load the environment module of an MPI library, or install one (pip install mpich), or build mpi4py "
            "with your MPI's mpicc: pip install --no-binary mpi4py mpi4py",
        ) from error


def _built_for(folder: Path) -> str | None:
    try:
        return str(json.loads((folder / "metadata.json").read_text())["pytorch"])
    except (OSError, ValueError, KeyError):
        return None  # Horovod itself says so when it is imported


def _install_command() -> str:
    script = Path(__file__).with_name("install_horovod.sh")
    return f"install Horovod with: bash {script} --python {sys.executable}"
