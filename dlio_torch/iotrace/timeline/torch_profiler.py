"""Runs torch.profiler over some training steps and writes a trace for TensorBoard's profiler plugin.

The plugin (torch-tb-profiler 0.4.3) takes DataLoader time from operators named
``enumerate(DataLoader)#<iterator>.__next__``, step times from ``ProfilerStep#<n>``, and a run from files
named ``<worker>.<milliseconds>.pt.trace.json.gz``.  torch 2 writes the former two as annotations, of which
the plugin keeps only the steps; the trace is therefore changed before it gets its name.  The spans of the
run's processes, loader workers included, are added: torch.profiler sees its own process only.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from dlio_torch.errors import PreconditionError
from dlio_torch.iotrace.timeline.kineto_trace import (
    RANK_KEY,
    THREADS,
    base_ns,
    mark_as_operators,
    read_profile,
    write_profile,
)

FETCH = "enumerate(DataLoader)#_Emulated.__next__"


class ProfilerSession:
    """Profiles ``active`` steps of this process after ``warmup`` others; torch is not imported when off.

    Use as a context around the loop; call :meth:`step` after each step.  The trace is written when the
    context ends, so that writing it falls into no step::

        with ProfilerSession(run.tensorboard, "rank0", warmup=1, active=8, enabled=True) as profiler:
            for _ in range(steps):
                with profiler.fetch():
                    batch = next(batches)
                with profiler.annotate("compute"):
                    model(batch)
                profiler.step()

    Args:
        directory: folder for the trace (one run of TensorBoard); made when needed.
        worker_name: distinguishes the files of ranks, without slashes.
        warmup: steps before the first that is recorded; at least 1 is taken, because torch.profiler needs it.
        active: steps that are recorded, at least 1.
        enabled: whether anything is done.
        rank: the rank, to tell its spans from those of others.
        events: the events folder whose spans are added, if any.

    Attributes:
        trace: the trace file once it is written; None before, when off, and when no step was recorded.
    """

    def __init__(
        self,
        directory: Path,
        worker_name: str,
        *,
        warmup: int = 1,
        active: int = 8,
        enabled: bool = True,
        rank: int = 0,
        events: Path | None = None,
    ) -> None:
        self.trace: Path | None = None
        self._directory = directory
        self._worker_name = worker_name
        self._warmup = max(1, warmup)
        self._active = max(1, active)
        self.enabled = enabled
        self._rank = rank
        self._events = events
        self._profile: Any = None
        self._running = False
        self._steps = 0
        self._window: tuple[int, int] = (0, 0)
        self._names: set[str] = {FETCH}

    def __enter__(self) -> ProfilerSession:
        if self.enabled:
            import torch.profiler

            self._profile = torch.profiler.profile(
                schedule=torch.profiler.schedule(
                    wait=self._warmup - 1, warmup=1, active=self._active, repeat=1, skip_first=0
                ),
                # Nothing is exported while steps run.
                on_trace_ready=None,
            )
            self._profile.start()
            self._running = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._running:
            self._stop()
        if self._profile is not None and self._steps > self._warmup:
            self._write()
        self._profile = None

    def step(self) -> None:
        """Ends a step; the call that ends the last recorded step takes some milliseconds."""
        if not self._running:
            return
        self._steps += 1
        if self._steps >= self._warmup + self._active:
            self._stop()
            return
        self._profile.step()
        if self._steps == self._warmup:
            self._window = (time.perf_counter_ns(), 0)

    def fetch(self) -> contextlib.AbstractContextManager[Any]:
        """Context of waiting for a batch, which counts as DataLoader time."""
        return self.annotate(FETCH)

    def annotate(self, name: str) -> contextlib.AbstractContextManager[Any]:
        """Context that appears in the trace as an operator; costs some 16 µs while profiling, else nothing."""
        if not self._running:
            return contextlib.nullcontext()
        from torch.profiler import record_function

        self._names.add(name)
        context: contextlib.AbstractContextManager[Any] = record_function(name)
        return context

    def _stop(self) -> None:
        self._running = False
        self._window = (self._window[0], time.perf_counter_ns())
        self._profile.stop()

    def _write(self) -> None:
        """Exports the trace, changes it for TensorBoard and gives it its name."""
        path = self._directory / f"{self._worker_name}.{time.time_ns() // 1_000_000}.pt.trace.json.gz"
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            descriptor, exported = tempfile.mkstemp(prefix=".torch.", suffix=".tmp", dir=self._directory)
            os.close(descriptor)
        except OSError as error:
            raise PreconditionError(
                f"the trace of torch.profiler {path} cannot be written: {error.strerror}",
                hint="set trace.profiler=false",
            ) from error
        try:
            self._profile.export_chrome_trace(exported)
            trace = read_profile(Path(exported))
        finally:
            with contextlib.suppress(OSError):
                os.unlink(exported)
        mark_as_operators(trace, self._names)
        trace[RANK_KEY] = self._rank
        # The plugin appends to the text of the file and relies on the list being last.
        body = trace.pop("traceEvents")
        trace["traceEvents"] = body + list(self._span_events(base_ns(trace)))
        write_profile(trace, path)
        self.trace = path

    def _span_events(self, base_time_ns: int) -> Iterator[dict[str, Any]]:
        """The spans of the rank's processes within the recorded steps, on the clock of the trace."""
        if self._events is None:
            return
        # Tables of events are pandas', which a rank that trains does not want in its memory.
        from dlio_torch.iotrace.events.event_table import read_events
        from dlio_torch.iotrace.timeline.chrome_trace import complete_events, name_events

        table = read_events(self._events, self._rank)
        start_ns, end_ns = self._window
        frame = table.frame
        frame = frame[(frame["end_ns"] > start_ns) & (frame["start_ns"] < end_ns)]
        # A fresh anchor: the wall clock may have been adjusted since the files were opened.
        origin_ns = base_time_ns - time.time_ns() + time.perf_counter_ns()
        ids = {(process.rank, process.pid): process.pid for process in table.processes}
        own_pid = os.getpid()
        for event in itertools.chain(
            name_events(table.processes, ids), map(json.loads, complete_events(frame, ids, origin_ns))
        ):
            # In the profiled process spans have tracks of their own: beside torch's intervals, whose times
            # differ by fractions of a microsecond, they would not nest.
            if event["pid"] == own_pid and event["tid"]:
                event["tid"] += THREADS
                if event["name"] == "thread_name" and event["ph"] == "M":
                    event["args"]["name"] = f"spans of {event['args']['name']}"
            yield event
