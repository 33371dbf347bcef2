"""Files of a checkpoint: names and sizes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dlio_torch.config.opt import LARGEST_CALL
from dlio_torch.config.schema import CheckpointConfig
from dlio_torch.errors import ConfigError


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
    """Files of a checkpoint of a rank.

    Raises:
        ConfigError: two files have one name.
    """
    if config.layout == "torch_save":
        return [CheckpointFile(config.file_name, config.state_bytes, 0)]
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
