"""Checks of ``access.io=independent`` and ``collective``: what MPI-IO cannot do is refused with the reason."""

from __future__ import annotations

from typing import Any

from dlio_torch.config.check import Fail
from dlio_torch.config.extensions import engine_facts, format_facts
from dlio_torch.config.schema import Config

_ORDER = "MPI-IO calls come from the rank's main thread, in an order that all ranks share"
_LOADER: dict[str, tuple[Any, str]] = {
    "num_workers": (0, _ORDER),
    "read_threads": (0, _ORDER),
    "in_memory": (False, "MPI-IO reads during training, step by step"),
    "replay": ("none", "a replay does not read by MPI-IO"),
}


def check_mpiio(config: Config, fail: Fail) -> None:
    """Refuse options that do not go with MPI-IO.

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
                "POSIX calls take no MPI-IO hints",
                "set access.io=collective or independent, or access.mpi_hints=[]",
            )
        return
    for number, hint in enumerate(access.mpi_hints):
        name, _, value = hint.partition("=")
        if not name.strip() or not value.strip():
            fail(["access.mpi_hints"], f"element {number}, {hint!r}, is not name=value", "write romio_cb_read=enable")
    if access.pattern != "samples":
        fail(
            ["access.io", "access.pattern"],
            "in streams and lanes, ranks do not know each other's position in the files"
            if access.io == "collective"
            else "streams and lanes read through the format's own library",
            "set access.pattern=samples, or access.io=posix",
        )
    if access.io == "collective" and access.partition == "files":
        fail(
            ["access.io", "access.partition"],
            "each file belongs to one rank, and a collective read needs several ranks in a file",
            "set access.partition=batches, slices or none, or access.io=independent",
        )
    if access.io == "collective" and config.stage.dir is not None:
        fail(
            ["access.io", "stage.dir"],
            "a collective read needs one file for all ranks, and copies on several nodes are several files",
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
            "MPI-IO opens files itself, for reads through the page cache",
            "set dataset.direct_io=false, or access.io=posix",
        )
    facts = format_facts(config)
    for option, needed in facts.posix_only.items():
        if facts.value(config, option) != needed:
            key = facts.key(option)
            fail(
                [key, "access.io"], "this option applies to POSIX reads only", f"set {key}={needed}, or access.io=posix"
            )
