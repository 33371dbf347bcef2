"""Files with the state of a described job: nested content whose leaves are the tensors of a rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dlio_torch.checkpoint.job.saved_state import StateTensor


@dataclass(frozen=True)
class StateFile:
    """One file of a rank.

    Attributes:
        name: path below the folder of the checkpoints, with ``{step}`` in place of the step.
        content: dictionaries, lists and numbers as the library saves them, with a :class:`StateTensor` for each tensor.
        optimizer_only: whether the file is left out when the model alone is read.
        step_key: key of the content under which a save puts the step; empty: the file does not say it.
    """

    name: str
    content: Mapping[str, Any]
    optimizer_only: bool = False
    step_key: str = ""

    @property
    def tensors(self) -> list[StateTensor]:
        """Tensors of the file, in the order of its content."""
        return list(_leaves(self.content))

    @cached_property
    def bytes(self) -> int:
        """Size of the tensors."""
        return sum(tensor.bytes for tensor in self.tensors)

    def path(self, directory: Path, step: int) -> Path:
        """Path of the file of the checkpoint of ``step``.

        Args:
            directory: folder of the checkpoints of all ranks.
            step: training steps done when it was saved.
        """
        return directory / self.name.replace("{step}", str(step))


def tensor_bytes(files: Sequence[StateFile]) -> int:
    """Size of the tensors of these files."""
    return sum(file.bytes for file in files)


def _leaves(content: Any) -> Iterator[StateTensor]:
    if isinstance(content, StateTensor):
        yield content
    elif isinstance(content, Mapping):
        for value in content.values():
            yield from _leaves(value)
    elif isinstance(content, list):
        for value in content:
            yield from _leaves(value)
