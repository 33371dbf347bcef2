"""Read requests of batches without their decoding: the extents, chunks and records that the file layouts name."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.data.engines.decoupled.group_plan import ReadPlan
from dlio_torch.formats.core.layout import Chunks, Ints
from dlio_torch.iotrace.recorder.spans import Recorder
from dlio_torch.native.extents import Mover
from dlio_torch.native.memory import address_of
from dlio_torch.syserrors import unreadable


class OpeningBytes(Recorder):
    """Recorder that counts the bytes which opening a file reads, and records nothing."""

    def __init__(self) -> None:
        super().__init__(".", 0, enabled=False)
        self._bytes = 0

    def add(self, op: str, start_ns: int, end_ns: int, *, bytes: int = -1, **facts: Any) -> None:
        """Count the bytes of a read."""
        self._bytes += max(0, bytes)

    def take(self) -> int:
        """Returns the bytes since the last call."""
        counted, self._bytes = self._bytes, 0
        return counted


class RawRequests:
    """Reads the stored bytes of read plans into scratch memory.

    Args:
        mover: merges adjacent extents into requests; ``None``: each extent is a request of its own, in the order of
            samples, as formats' libraries read.
        request: most bytes of a request.
    """

    def __init__(self, mover: Mover | None, request: int) -> None:
        self._mover = mover
        self._request = request
        self._memory = np.empty(0, np.uint8)

    def read(self, plan: ReadPlan) -> int:
        """Read all that a plan needs from its files; returns the bytes.

        Raises:
            DataError: a file cannot be read.
        """
        size = 0
        for records in plan.records:
            base = address_of(self._scratch(plan.size))
            records.layout.read(records, 0, len(records.offsets), base, self._request)
            size += int(records.spans.sum())
        descriptors, offsets, lengths = _requests(plan, by_sample=self._mover is None)
        if len(offsets):
            self._fill(plan, descriptors, offsets, lengths)
        return size + int(lengths.sum())

    def _fill(self, plan: ReadPlan, descriptors: npt.NDArray[np.int32], offsets: Ints, lengths: Ints) -> None:
        if self._mover is not None:
            ends = np.cumsum(lengths)
            addresses = address_of(self._scratch(int(ends[-1]))) + ends - lengths
            self._mover.read(descriptors, offsets, lengths, addresses, self._request)
            return
        memory = self._scratch(int(lengths.max())).data
        for descriptor, offset, length in zip(descriptors.tolist(), offsets.tolist(), lengths.tolist(), strict=True):
            try:
                os.preadv(descriptor, [memory[:length]], offset)
            except OSError as error:
                raise unreadable(plan.paths[descriptor], error) from error

    def _scratch(self, size: int) -> npt.NDArray[np.uint8]:
        if len(self._memory) < size:
            self._memory = np.empty(size, np.uint8)
        return self._memory


def _requests(plan: ReadPlan, *, by_sample: bool) -> tuple[npt.NDArray[np.int32], Ints, Ints]:
    """Descriptor, offset and length of each extent and stored chunk; by file and offset, or by sample and array."""
    descriptors, offsets = [plan.descriptors], [plan.extents.offsets]
    lengths, targets = [plan.extents.lengths], [plan.extents.to]
    for descriptor, chunks in plan.chunks:
        descriptors.append(np.full(len(chunks.offsets), descriptor, np.int32))
        offsets.append(chunks.offsets)
        lengths.append(chunks.sizes)
        targets.append(_targets(chunks))
    files, starts, sizes = np.concatenate(descriptors), np.concatenate(offsets), np.concatenate(lengths)
    order = np.flatnonzero(sizes > 0)  # a chunk that was never written has no bytes
    if by_sample:
        order = order[np.argsort(_samples(plan, np.concatenate(targets))[order], kind="stable")]
    elif plan.chunks:
        order = order[np.lexsort((starts[order], files[order]))]
    return files[order], starts[order], sizes[order]


def _targets(chunks: Chunks) -> Ints:
    """First byte in the memory of the batch of each chunk's first fragment."""
    return chunks.to[np.searchsorted(chunks.chunk, np.arange(len(chunks.offsets)))]


def _samples(plan: ReadPlan, targets: Ints) -> Ints:
    """Position in the batch of the sample to which each byte of the batch's memory belongs."""
    firsts = np.array([section.first for section in plan.sections])
    sections = np.searchsorted(firsts, targets, side="right") - 1
    samples = np.zeros(len(targets), np.int64)
    for number, section in enumerate(plan.sections):
        inside = sections == number
        samples[inside] = np.searchsorted(section.ends, targets[inside] - section.first, side="right") - 1
    return samples
