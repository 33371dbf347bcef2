"""Messages about groups from a worker to its trainer, through a ring in shared memory.

A message is five numbers: the run, what it is about, a block, and two sizes.  A group that was read as a whole is
described by numbers behind its bytes in its block: the trainer cuts it into batches.  What else has to be said (errors,
batches with recorded numbers or preprocessed ones) is pickled to a block.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from dlio_torch.data.engines.decoupled.batch_groups import GroupLayout
from dlio_torch.data.engines.decoupled.block_pool import Memory
from dlio_torch.data.engines.decoupled.group_plan import ArraySection, ReadPlan
from dlio_torch.data.engines.decoupled.shared_block_pool import SharedBlocks
from dlio_torch.data.engines.decoupled.shared_memory import RING, Region
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.native.memory import address_of

FILLED, PICKLED = 1, 2
"""Kinds of a message."""
_ALIGNED = 8


def tail_bytes(plan: ReadPlan) -> int:
    """Bytes of the numbers behind those of a group: counts of batches, samples, and ends of variable arrays."""
    variable = sum(section.spec.variable for section in plan.sections)
    samples = len(plan.indices)
    return _ALIGNED + 8 * (2 + len(plan.counts) + samples + len(plan.sections) + variable * (samples + 1))


class Outbox:
    """Worker's end of the ring.

    Args:
        region: of the worker.
        blocks: its memory.

    Attributes:
        run: number of the run.
    """

    def __init__(self, region: Region, blocks: SharedBlocks) -> None:
        self._region = region
        self._blocks = blocks
        self.run = 0

    @property
    def is_full(self) -> bool:
        """Whether the trainer has to receive a group before another one is published."""
        return bool(self._region.published - self._region.received >= RING)

    def publish_filled(self, plan: ReadPlan, memory: Memory) -> None:
        """Publishes a group that was read as a whole; ``memory`` has :func:`tail_bytes` to spare."""
        first = -(-plan.size // _ALIGNED) * _ALIGNED
        head = [len(plan.counts), len(plan.indices), *plan.counts, *(section.first for section in plan.sections)]
        ends = [section.ends for section in plan.sections if section.spec.variable]
        numbers = np.concatenate([np.array(head, np.int64), plan.indices, *ends])
        np.frombuffer(memory, np.int64, len(numbers), first)[:] = numbers
        self._publish(FILLED, memory, first, len(numbers))

    def publish(self, message: Any) -> None:
        """Publishes any object."""
        content = pickle.dumps(message)
        memory = self._blocks.take(len(content))
        memory[:] = np.frombuffer(content, np.uint8)
        self._publish(PICKLED, memory, 0, len(content))

    def publish_error(self, error: Exception) -> None:
        """Publishes the error that ends the run."""
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            error = RuntimeError(f"{type(error).__name__}: {error}")
        self.publish(error)

    def _publish(self, kind: int, memory: Memory, first: int, size: int) -> None:
        block = self._blocks.block_at(address_of(memory))
        self._blocks.send(block)
        published = self._region.published
        self._region.ring[published % RING] = self.run, kind, block, first, size
        self._region.published = published + 1


def layout_of(memory: Memory, first: int, size: int, specs: Sequence[ArraySpec]) -> GroupLayout:
    """Layout of a group that :meth:`Outbox.publish_filled` has described.

    Args:
        memory: its block.
        first: first byte of the numbers.
        size: how many there are.
        specs: arrays of a sample.
    """
    numbers = np.frombuffer(memory, np.int64, size, first).copy()
    batches, samples = numbers[:2].tolist()
    begins = 2 + batches
    indices = begins + len(specs)
    used = indices + samples
    sections = []
    for spec, begin in zip(specs, numbers[begins:indices].tolist(), strict=True):
        more = samples + 1 if spec.variable else 0  # others are all alike
        sections.append(ArraySection(spec, begin, numbers[used : used + more]))
        used += more
    return GroupLayout(numbers[indices : indices + samples], tuple(numbers[2:begins].tolist()), sections)
