"""Files of a checkpoint: names, sizes, and errors of writing them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from dlio_torch.config.checkpoint_amount import largest_write
from dlio_torch.config.opt import LARGEST_CALL
from dlio_torch.config.schema import CheckpointConfig
from dlio_torch.errors import ConfigError, DlioError
from dlio_torch.ownership.names import literal, numbers
from dlio_torch.storage.local.stored_paths import system_error
from dlio_torch.syserrors import refused
from dlio_torch.units import format_size


@dataclass(frozen=True)
class CheckpointFile:
    """One file of a checkpoint.

    Attributes:
        name: name of the file, with ``{step}`` in place of the step.
        size: size of the file, bytes.
        call: size of one write call, bytes.
    """

    name: str
    size: int
    call: int

    def path(self, folder: Path, step: int) -> Path:
        """Path of the file of the checkpoint of ``step`` in ``folder``."""
        return folder / self.name.replace("{step}", str(step))


def files_of(config: CheckpointConfig) -> list[CheckpointFile]:
    """Files of a checkpoint that a restore reads; for ``layout=files`` and ``torch`` these are all files."""
    if config.layout == "none":
        return []
    if config.layout == "torch_save":
        return [CheckpointFile("checkpoint-{step}.pt", config.state_bytes, 0)]
    if config.layout == "tensorflow":  # the graph is not read
        name, call = config.tensorflow.name, largest_write(config.tensorflow, config.state_bytes)
        index = CheckpointFile(f"{name}.index", config.tensorflow.index_bytes, call)
        return [index, CheckpointFile(f"{name}.data-00000-of-00001", config.state_bytes, call)]
    files: list[CheckpointFile] = []
    for i, file in enumerate(config.files):
        if file.name in [other.name for other in files]:
            raise ConfigError(
                f"checkpoint.files[{i}].name={file.name!r} occurs twice", hint="give the files different names"
            )
        files.append(
            CheckpointFile(file.name, file.bytes, min(file.write_bytes or file.bytes, file.bytes, LARGEST_CALL))
        )
    return files


def file_names(config: CheckpointConfig) -> list[str]:
    """Entries for the files of the checkpoints of all ranks (see :mod:`dlio_torch.ownership.names`)."""
    names = [_entry(file.name) for file in files_of(config)]
    if config.layout == "tensorflow":
        prefix = _entry(config.tensorflow.name)
        names += [f"{prefix}_temp/part-*", "events.out.tfevents.*"]
        names += [f"{name}{end}" for name in (f"{prefix}.meta", "checkpoint", "graph.pbtxt") for end in ("", ".tmp*")]
        names += [f"{name}.tempstate*" for name in names[:2]]
    return [f"rank-{numbers()}/{name}" for name in names] if config.ranks == "all" else names


def _entry(name: str) -> str:
    """The entry for a file of each step."""
    return numbers().join(map(literal, name.split("{step}")))


def cannot_write(path: Path, size: int, error: Exception) -> DlioError:
    """The error of a checkpoint file of ``size`` bytes that cannot be written."""
    try:
        free = f"{format_size(shutil.disk_usage(path.parent).free)} are free"
    except OSError:
        free = "the free space of its folder is unknown"
    return refused(
        f"checkpoint file {path} cannot be written (it needs {format_size(size)}, {free})",
        system_error(error, path.parent, size),
        elsewhere="set output.root to another file system, or lower checkpoint.keep",
    )
