"""CUDA stream of its own for copies of batches to a GPU, which run beside the compute."""

from __future__ import annotations

import time
from typing import Any

import torch

from dlio_torch.formats.core.batch import Batch, batch_tensors
from dlio_torch.train.to_device import copy_failed


class CopyStream:
    """Stream on which batches are copied to a GPU, timed by events.

    Copies from page-locked memory overlap with compute.  Copies from pageable memory do not: CUDA returns when it has
    read the memory.

    Args:
        device: the GPU.

    Attributes:
        name: the GPU's name.
    """

    def __init__(self, device: torch.device) -> None:
        self.name: str = torch.cuda.get_device_name(device)
        self._device = device
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._zero: Any = None
        self._zero_ns = 0

    def synchronize_clocks(self) -> None:
        """Relate the times of events to ``time.perf_counter_ns``; waits for all copies of the stream.

        Raises:
            RunFailed: a copy failed.
        """
        try:
            self._stream.synchronize()
            self._zero = self._event()
            self._zero.record(self._stream)
            self._zero.synchronize()
        except RuntimeError as error:
            raise copy_failed(error, ahead=True) from error
        self._zero_ns = time.perf_counter_ns()

    def start(self, batch: Batch) -> StreamCopy:
        """Start the copy of a batch; returns at once for page-locked memory, else when the memory has been read.

        Raises:
            RunFailed: the GPU has no memory left, or another error of CUDA.
        """
        begin, end = self._event(), self._event()
        try:
            with torch.cuda.stream(self._stream):
                begin.record(self._stream)
                tensors = [tensor.to(self._device, non_blocking=True) for tensor in batch_tensors(batch)]
                end.record(self._stream)
        except RuntimeError as error:
            raise copy_failed(error, ahead=True) from error
        return StreamCopy(self._device, tensors, (self._zero, begin, end), self._zero_ns)

    def _event(self) -> Any:
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


class StreamCopy:
    """Copy of one batch on a :class:`CopyStream`; the GPU holds the tensors as long as this object lives.

    Args:
        device: the GPU.
        tensors: the tensors on the GPU.
        events: event at the zero of the clock, before the copy and after it.
        zero_ns: time of the first event by ``time.perf_counter_ns``.
    """

    def __init__(
        self, device: torch.device, tensors: list[torch.Tensor], events: tuple[Any, Any, Any], zero_ns: int
    ) -> None:
        self.tensors = tensors
        self._device = device
        self._events = events
        self._zero_ns = zero_ns

    def finish(self) -> tuple[int, int]:
        """Wait until the GPU holds the batch, and hand it over to the current stream, on which a model would use it.

        The allocator gives the tensors' memory to another batch only when that stream is done with it.

        Returns:
            Begin and end of the copy by ``time.perf_counter_ns``.

        Raises:
            RunFailed: the copy failed.
        """
        zero, begin, end = self._events
        try:
            user = torch.cuda.current_stream(self._device)
            user.wait_event(end)
            for tensor in self.tensors:
                tensor.record_stream(user)
            end.synchronize()
            begun_ns = self._zero_ns + round(zero.elapsed_time(begin) * 1e6)
            return begun_ns, begun_ns + round(begin.elapsed_time(end) * 1e6)
        except RuntimeError as error:
            raise copy_failed(error, ahead=True) from error

    def wait(self) -> None:
        """Wait until the batch's host memory is not read any more; an error is of no interest any more."""
        try:
            self._events[2].synchronize()
        except RuntimeError:
            return
