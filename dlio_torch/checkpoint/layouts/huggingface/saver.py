"""Saver of the layout ``safetensors``: whole weights by the library safetensors."""

from __future__ import annotations

import errno
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dlio_torch.checkpoint.base import SaverSetup
from dlio_torch.checkpoint.layouts.described_state.state_saver import Commit, StateLibrary, StateSaver, flush
from dlio_torch.checkpoint.layouts.huggingface.huggingface_files import INDEX, has_index, saved_files, whole_files
from dlio_torch.checkpoint.torch_files import NOT_RESTORED
from dlio_torch.errors import DataError, MissingPackageError

try:
    import safetensors
    import safetensors.torch
except ImportError as error:
    raise MissingPackageError(
        "checkpoint.layout=safetensors needs the Python package safetensors, which is not installed",
        hint="pip install 'dlio-torch[safetensors]'",
    ) from error


def open_saver(setup: SaverSetup) -> StateSaver:
    """Makes the saver of one rank.

    Raises:
        PreconditionError: the tensors do not fit into memory, or this torch cannot write parts of ranks.
    """
    config = setup.config
    files = saved_files(config, setup.comm.rank)
    if config.checkpoint.ranks == "all":
        from dlio_torch.checkpoint.layouts.huggingface.part_library import PartLibrary

        read = whole_files(config) if config.checkpoint.consolidate else files
        return StateSaver(setup, PartLibrary(setup), files, read)
    return StateSaver(setup, SafetensorsLibrary(setup), files, files)


class SafetensorsLibrary(StateLibrary):
    """Writes each file with ``safetensors.torch.save_file``, and then the index.

    Several files are complete when there is an index; a file alone is when it has its name, and the library refuses a
    file that is shorter than its header says.

    Args:
        setup: settings of the saver.
    """

    def __init__(self, setup: SaverSetup) -> None:
        self.setup = setup
        self.has_index = has_index(setup.config)

    def write(self, content: Any, path: Path) -> None:
        with _system_errors():
            safetensors.torch.save_file(content, path, metadata={"format": "pt"})

    def load(self, path: Path) -> Any:
        try:
            # The library maps the file: a copy reads it.
            with safetensors.safe_open(path, framework="pt") as file:
                return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        except (safetensors.SafetensorError, RuntimeError) as error:
            text = str(error).splitlines()[0]
            raise DataError(f"checkpoint file {path} is damaged: {text}", hint=NOT_RESTORED) from error

    def completing_files(self, step: int) -> list[Path]:
        return [self._index(self.setup.directory, step)] if self.has_index and self.setup.comm.rank == 0 else []

    def commit(self, step: int, *, fsync: bool) -> Commit:
        """Write the index, as ``save_pretrained`` does for several files."""
        if not self.has_index:
            return Commit()
        start = time.perf_counter_ns()
        files = whole_files(self.setup.config)
        names = {name: Path(file.name).name for file in files for name in file.content}
        content = {"metadata": {"total_size": sum(file.bytes for file in files)}, "weight_map": names}
        path = self._index(self.setup.directory, step)
        path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        wrote = (time.perf_counter_ns() - start) / 1e9
        return Commit(path.stat().st_size, wrote, flush([path, path.parent]) if fsync else 0.0)

    def check_complete(self, directory: Path, step: int) -> None:
        if not self.has_index:
            return
        path = self._index(directory, step)
        try:
            json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(
                f"the checkpoint {path.parent} is not complete: {path.name} is missing or ends early", hint=NOT_RESTORED
            ) from error

    def _index(self, directory: Path, step: int) -> Path:
        return directory / INDEX.replace("{step}", str(step))


@contextmanager
def _system_errors() -> Iterator[None]:
    """Raises an OSError with the system's number for an error of the library that names one."""
    try:
        yield
    except safetensors.SafetensorError as error:
        match = re.search(r"\(os error (\d+)\)", str(error))
        raise OSError(int(match[1]) if match else errno.EIO, str(error).splitlines()[0]) from error
