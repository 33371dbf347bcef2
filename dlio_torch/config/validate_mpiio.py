"""Checks of ``access.io=independent`` and ``collective``: options that MPI-IO does not support are refused."""

from __future__ import annotations

from typing import Any

from dlio_torch.config.check import Fail
from dlio_torch.config.extensions import engine_facts, format_facts
from dlio_torch.config.schema import Config

_ORDER = "MPI-IO calls must be made in the main thread of each rank, in the same order on all ranks"
_LOADER: dict[str, tuple[Any, str]] = {
    "num_workers": (0, _ORDER),
    "read_threads": (0, _ORDER),
    "in_memory": (False, "MPI-IO reads each batch during training, so samples cannot be read into memory before"),
    "replay": ("none", "a replay leaves reads out or answers them from memory, without MPI-IO"),
}


def check_mpiio(config: Config, fail: Fail) -> None:
    """Refuse options that MPI-IO does not support.

    Args:
        config: a complete configuration.
        fail: raises the error; called with keys, problem and remedy.

    Raises:
        ConfigError: naming the keys, their values and what to change.
    """
    access, loader, data = config.access, config.loader, config.dataset
    if access.io == "posix":
        if access.mpi_hints:
            fail(
                ["access.mpi_hints", "access.io"],
                "hints have an effect only on MPI-IO, and this access.io reads with POSIX calls",
                "set access.io=collective or independent, or access.mpi_hints=[]",
            )
        return
    for number, hint in enumerate(access.mpi_hints):
        name, _, value = hint.partition("=")
        if not name.strip() or not value.strip():
            fail(
                ["access.mpi_hints"],
                f"element {number}, {hint!r}, does not have the form name=value",
                "write a name and a value, for example romio_cb_read=enable",
            )
    if access.pattern != "samples":
        fail(
            ["access.io", "access.pattern"],
            (
                "collective calls need all ranks at the same step, and in streams and lanes ranks read independently "
                "of each other"
            )
            if access.io == "collective"
            else "streams and lanes are read through the format's own library, not through MPI-IO",
            "set access.pattern=samples, or access.io=posix",
        )
    if access.io == "collective" and access.partition == "files":
        fail(
            ["access.io", "access.partition"],
            "a collective read needs several ranks that read the same file, and here each file belongs to one rank",
            "set access.partition=batches, slices or none, or access.io=independent",
        )
    if access.io == "collective" and config.stage.dir is not None:
        fail(
            ["access.io", "stage.dir"],
            "a collective read needs one file that all ranks open, and staging copies the file to each node",
            "set stage.dir=null, or access.io=independent",
        )
    if not engine_facts(config).main_thread:
        fail(["access.io", "loader.engine"], _ORDER, "set loader.engine=dataloader, or access.io=posix")
    for name, (needed, reason) in _LOADER.items():
        if getattr(loader, name) != needed:
            value = str(needed).lower()
            fail([f"loader.{name}", "access.io"], reason, f"set loader.{name}={value}, or access.io=posix")
    if data.direct_io:
        fail(
            ["dataset.direct_io", "access.io"],
            "MPI-IO opens files without O_DIRECT, so reads cannot bypass the page cache",
            "set dataset.direct_io=false, or access.io=posix",
        )
    facts = format_facts(config)
    for option, needed in facts.posix_only.items():
        if facts.value(config, option) != needed:
            key = facts.key(option)
            fail(
                [key, "access.io"], "this option applies to POSIX reads only", f"set {key}={needed}, or access.io=posix"
            )
