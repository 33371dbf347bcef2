"""Predicts which tensors each rank writes: PyTorch's planner gives what several ranks hold to one of them, whole.

The planner goes through the entries of the state in the order in which the ranks, from the first, hold them.  Of the
ranks that hold an entry, the one with the fewest bytes so far writes it.  A part of a tensor counts as the whole
tensor, an entry that is no tensor as one byte (``torch.distributed.checkpoint._dedup_save_plans``).  Here no plan is
made, no tensor exists, and ranks that hold the same blocks are described once.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dlio_torch.checkpoint.job.parameters import parameters
from dlio_torch.checkpoint.job.ranks import Shard, fsdp_ranks, place, rank_shards
from dlio_torch.checkpoint.job.saved_state import ELEMENT_BYTES, optimizer_states
from dlio_torch.config.schema_model import DataType, ModelConfig, ParallelConfig

_MOST_BLOCKS = 20_000  # of parameters, over all ranks that hold different ones: about two seconds
_STEP_BYTES = 4
_EntryKey = tuple[str, ...] | tuple[str, str, tuple[int, ...]]


@dataclass(frozen=True)
class _StateEntry:
    """An entry of the state.

    Attributes:
        key: equal for the ranks that hold the same block.
        load: bytes that the planner counts.
        bytes: size of a weight, or of a tensor of the optimizer; None: another entry.
    """

    key: _EntryKey
    load: int
    bytes: int | None = None


@functools.lru_cache(maxsize=4)
def written_tensors(model: ModelConfig, parallel: ParallelConfig) -> tuple[tuple[int, ...], ...] | None:
    """Sizes of the tensors that each rank of the job writes, without the optimizer's step numbers.

    Args:
        model: the model and its optimizer.
        parallel: ranks of the job.

    Returns:
        By rank; None: the job has too many ranks for an exact answer in a few seconds.
    """
    holdings = [_holding(parallel, rank) for rank in range(parallel.world_size)]
    # A stage has its part of the parameters.
    if len(set(holdings)) * len(parameters(model)) > _MOST_BLOCKS * parallel.pipeline:
        return None
    entries: dict[_EntryKey, _StateEntry] = {}
    holders: dict[_EntryKey, set[int]] = defaultdict(set)
    known: dict[tuple[int, ...], list[_StateEntry]] = {}
    for rank, holding in enumerate(holdings):
        if holding not in known:
            known[holding] = list(_entries(model, parallel, rank))
        for entry in known[holding]:
            entries[entry.key] = entry
            holders[entry.key].add(rank)
    return _assigned(list(entries.values()), holders, parallel.world_size)


def _holding(parallel: ParallelConfig, rank: int) -> tuple[int, ...]:
    """Equal for ranks that hold the same blocks."""
    here = place(parallel, rank)
    return here.tensor, here.pipeline, here.expert, here.data % fsdp_ranks(parallel)


def _assigned(
    entries: Sequence[_StateEntry], holders: dict[_EntryKey, set[int]], world_size: int
) -> tuple[tuple[int, ...], ...]:
    loads = [0] * world_size
    written: list[list[int]] = [[] for _ in range(world_size)]
    for entry in entries:
        writer = min(holders[entry.key], key=loads.__getitem__)
        loads[writer] += entry.load or 1
        if entry.bytes is not None:
            written[writer].append(entry.bytes)
    return tuple(map(tuple, written))


def _entries(model: ModelConfig, parallel: ParallelConfig, rank: int) -> Iterator[_StateEntry]:
    """The state of a rank as :func:`~dlio_torch.checkpoint.layouts.dcp.job_state.job_state` makes it, in its order."""
    shards = rank_shards(model, parallel, rank)
    for shard in shards:
        yield _block(shard, "", model.dtype)
    states = optimizer_states(model)
    for shard in shards:
        name = shard.parameter.name
        if model.optimizer_states > 1:
            yield _StateEntry((name, "step"), _STEP_BYTES)
        for state, dtype in states:
            yield _block(shard, state, dtype)
    yield from _options(model, parallel, [shard.parameter.name for shard in shards])


def _block(shard: Shard, state: str, dtype: DataType) -> _StateEntry:
    size = ELEMENT_BYTES[dtype]
    # DTensor's offset of an empty block is the end of the tensor.
    dimensions = zip(shard.offsets, shard.local_shape, shard.global_shape, strict=True)
    offsets = tuple(offset if local else whole for offset, local, whole in dimensions)
    key = (shard.parameter.name, state, offsets)
    return _StateEntry(key, size * math.prod(shard.global_shape), size * shard.elements)


def _options(model: ModelConfig, parallel: ParallelConfig, names: Sequence[str]) -> Iterator[_StateEntry]:
    """Options of the optimizer, one group of all parameters or, with pipeline stages, of each parameter."""
    from dlio_torch.checkpoint.layouts.dcp.job_state import optimizer_options

    if not names:
        return
    options = [str(name) for name in optimizer_options(model)]
    groups = names if parallel.pipeline > 1 else [""]
    yield from (_StateEntry((group, "options", option), 1) for group in groups for option in options)
    if parallel.pipeline == 1:
        yield _StateEntry(("", "options", "params"), 1)
