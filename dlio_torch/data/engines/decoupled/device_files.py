"""Files that are read straight into a GPU's memory by NVIDIA's cuFile (GPUDirect Storage).

``kvikio`` is used where it is installed: it reads without the interpreter lock.  Else ``torch.cuda.gds`` is used, which
holds the lock during a read.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch

from dlio_torch.errors import PreconditionError

_DRIVER = Path("/proc/driver/nvidia-fs")
_PROBE_BYTES = 65536


class DeviceFile(Protocol):
    """Open file that can be read into a GPU's memory; closed when nothing refers to it."""

    def read(self, memory: torch.Tensor, offset: int) -> int:
        """Fill ``memory``, bytes on a GPU, from ``offset`` on; returns the bytes read.

        Raises:
            RuntimeError: the library cannot read it.
        """


OpenDeviceFile = Callable[[Path], DeviceFile]
"""Function that opens a file for reads into a GPU's memory."""


class TorchGdsFile:
    """File of ``torch.cuda.gds``.

    Raises:
        RuntimeError: torch was built without cuFile, or cuFile refuses the file.
        OSError: the file cannot be opened, or not for direct reads.
    """

    def __init__(self, path: Path) -> None:
        flags = os.O_RDONLY | os.O_CLOEXEC
        os.close(os.open(path, flags | os.O_DIRECT))  # torch's class prints a traceback if it cannot open its file
        self._file: Any = torch.cuda.gds.GdsFile(str(path), flags)

    def read(self, memory: torch.Tensor, offset: int) -> int:
        """See :class:`DeviceFile`."""
        first = memory.storage_offset()
        self._file.load_storage(memory.untyped_storage()[first : first + len(memory)], offset)
        return len(memory)


class KvikioFile:
    """File of ``kvikio``.

    Raises:
        RuntimeError: cuFile refuses the file.
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._file: Any = importlib.import_module("kvikio").CuFile(path, "r")

    def read(self, memory: torch.Tensor, offset: int) -> int:
        """See :class:`DeviceFile`."""
        return int(self._file.read(memory, size=len(memory), file_offset=offset))


def device_file_opener() -> OpenDeviceFile:
    """The way to read files into the memory of this machine's GPU.

    Raises:
        PreconditionError: there is none.
    """
    if importlib.util.find_spec("kvikio") is not None:
        return KvikioFile
    try:
        _probe()
    except (AssertionError, AttributeError, RuntimeError) as error:  # the first: torch was built without CUDA
        reason = str(error).splitlines()[0]
        raise PreconditionError(
            f"loader.read_to=device needs cuFile, the library of GPUDirect Storage, which torch cannot use: {reason}",
            hint="set loader.read_to=host, or install kvikio, or a torch for CUDA and NVIDIA's libcufile",
        ) from error
    return TorchGdsFile


def _probe() -> None:
    """Register a GPU buffer with cuFile and give it back, which opens cuFile's driver and needs no file."""
    storage = torch.empty(_PROBE_BYTES, dtype=torch.uint8, device="cuda").untyped_storage()
    torch.cuda.gds.gds_register_buffer(storage)  # type: ignore[arg-type]
    torch.cuda.gds.gds_deregister_buffer(storage)  # type: ignore[arg-type]


def may_pass_through_host() -> bool:
    """Whether cuFile may copy through the host's memory, since the kernel has not its module ``nvidia-fs``."""
    return not _DRIVER.exists()
