"""Contexts that record their own duration as a span."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Protocol


class SpanSink(Protocol):
    """Receiver of finished spans; see :meth:`dlio_torch.iotrace.recorder.spans.Recorder.add`."""

    def add(self, op: str, start_ns: int, end_ns: int, *, step: int, file: str | None, offset: int, bytes: int) -> None:
        """Records one span."""


class Span:
    """Context that records its duration; see :meth:`dlio_torch.iotrace.recorder.spans.Recorder.span`."""

    __slots__ = ("_recorder", "_start_ns", "bytes", "file", "offset", "op", "step")

    def __init__(self, recorder: SpanSink, op: str, *, step: int, file: str | None, offset: int, bytes: int) -> None:
        self._recorder = recorder
        self.op = op
        self.step = step
        self.file = file
        self.offset = offset
        self.bytes = bytes

    def __enter__(self) -> Span:
        self._start_ns = time.perf_counter_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        end_ns = time.perf_counter_ns()
        self._recorder.add(
            self.op, self._start_ns, end_ns, step=self.step, file=self.file, offset=self.offset, bytes=self.bytes
        )


class NullSpan:
    """Context of a recorder that is off: one shared object that records nothing."""

    __slots__ = ()
    step: int
    file: str | None
    offset: int
    bytes: int

    def __setattr__(self, name: str, value: object) -> None:
        """Ignores the value."""

    def __enter__(self) -> NullSpan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None


NULL_SPAN = NullSpan()
