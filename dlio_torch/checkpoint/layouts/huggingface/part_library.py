"""Parts of ranks by ``HuggingFaceStorageWriter`` of ``torch.distributed.checkpoint``, and the whole files made of them.

A file is one call of its ``write_data``, so that flushing is timed apart.  The plan, which the planner of a process
group would make, comes from the described job: any launcher's ranks can write.
"""

from __future__ import annotations

import inspect
import time
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType

from dlio_torch.checkpoint.base import SaverSetup
from dlio_torch.checkpoint.job.saved_state import StateTensor
from dlio_torch.checkpoint.layouts.described_state.state_saver import Commit, flush
from dlio_torch.checkpoint.layouts.huggingface.huggingface_files import (
    FOLDER,
    SHARDED,
    file_numbers,
    saved_files,
    whole_files,
)
from dlio_torch.checkpoint.layouts.huggingface.saver import SafetensorsLibrary
from dlio_torch.checkpoint.layouts.process_groups import SaveGroups
from dlio_torch.environment.private_names import consolidate_on_every_rank
from dlio_torch.errors import PreconditionError

try:
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
except ImportError:
    HuggingFaceStorageWriter = None  # type: ignore[assignment,misc]


class PartLibrary(SafetensorsLibrary):
    """Writes the parts of a rank; with ``consolidate`` the first rank, or all, make whole files of them.

    The parts stay, as the library leaves them.

    Args:
        setup: settings of the saver.

    Raises:
        PreconditionError: this torch cannot write parts.
        RunFailed: the ranks cannot connect.
    """

    def __init__(self, setup: SaverSetup) -> None:
        super().__init__(setup)
        if HuggingFaceStorageWriter is None or not _consolidates(HuggingFaceStorageWriter):
            raise PreconditionError(
                "checkpoint.layout=safetensors with checkpoint.ranks=all needs torch 2.9 or newer, but "
                f"{torch.__version__} is installed",
                hint="install a newer torch, or set checkpoint.ranks=first",
            )
        self._numbers = file_numbers(setup.config)
        options, comm, self._groups = setup.config.checkpoint, setup.comm, None
        if options.consolidate and options.consolidate_ranks == "all" and comm.world_size > 1:
            timeout_s = setup.config.dist.timeout_s
            self._groups = SaveGroups(comm, timeout_s, background=False, readers=comm.world_size)
        self._leaves = {
            tensor.name: tensor for file in saved_files(setup.config, setup.comm.rank) for tensor in file.tensors
        }

    def write(self, content: Any, path: Path) -> None:
        # The writer adds the folder of the parts itself.
        writer = self._writer(path.parent.parent if self.setup.config.checkpoint.consolidate else path.parent)
        plan = SavePlan([_item(self._leaves[name], tensor) for name, tensor in content.items()])
        plan = writer.prepare_global_plan([plan] * (self.setup.comm.rank + 1))[-1]  # numbers the ranks from 1
        writer.write_data(plan, _Tensors(content)).wait()

    def completing_files(self, step: int) -> list[Path]:
        index = super().completing_files(step)
        return index + [file.path(self.setup.directory, step) for file in whole_files(self.setup.config) if index]

    def commit(self, step: int, *, fsync: bool) -> Commit:
        """With ``consolidate``: make whole files of the parts of all ranks, and the index."""
        if not self.setup.config.checkpoint.consolidate:
            return Commit()
        self.setup.comm.barrier()
        folder = self.setup.directory / FOLDER.replace("{step}", str(step))
        start = time.perf_counter_ns()
        if self._groups is not None:
            threads = self.setup.config.checkpoint.consolidate_threads
            consolidate_on_every_rank(folder / SHARDED, folder, self._numbers, threads, self._groups.save)
        elif self.setup.comm.rank == 0:
            self._writer(folder).finish(Metadata({}), [])
        wrote = (time.perf_counter_ns() - start) / 1e9
        commit = self._committed(folder, step, wrote, fsync=fsync) if self.setup.comm.rank == 0 else Commit()
        self.setup.comm.barrier()
        return commit

    def close(self) -> None:
        """Leave the process group."""
        if self._groups is not None:
            self._groups.close()

    def _committed(self, folder: Path, step: int, wrote: float, *, fsync: bool) -> Commit:
        """Sizes and flush of the whole files, which the first rank counts as its own."""
        paths = self.completing_files(step)
        size = sum(path.stat().st_size for path in paths)
        return Commit(size, wrote, flush([*paths, folder]) if fsync else 0.0)

    def _writer(self, folder: Path) -> Any:
        options = self.setup.config.checkpoint
        writer = HuggingFaceStorageWriter(
            str(folder),
            fqn_to_index_mapping=self._numbers,
            save_distributed=True,
            enable_consolidation=options.consolidate,
            thread_count_consolidation=options.consolidate_threads,
        )
        writer.sync_files = False  # the saver flushes
        return writer


class _Tensors(DefaultSavePlanner):
    """Gives the writer the blocks of this rank."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self._tensors = tensors

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor:
        return self._tensors[write_item.index.fqn]


def _item(leaf: StateTensor, tensor: torch.Tensor) -> WriteItem:
    offsets = torch.Size(leaf.offsets)
    chunk = ChunkStorageMetadata(offsets, tensor.size())
    data = TensorWriteData(chunk, TensorProperties.create_from_tensor(tensor), torch.Size(leaf.global_shape))
    return WriteItem(MetadataIndex(leaf.name, offsets), WriteItemType.SHARD, tensor_data=data)


def _consolidates(writer: Any) -> bool:
    return "enable_consolidation" in inspect.signature(writer).parameters
