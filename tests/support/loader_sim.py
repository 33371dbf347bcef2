"""A training on a made-up machine, in small steps of time: what a run of it records is known to the microsecond.

Workers make batches: they wait for a device, then use a core, then preprocess, which uses a core, too.  Each hands
its finished batches over one after another while it makes the next one; the trainer does the last bit of that
itself, and then sleeps for the time of a step.  The threads that want a core share those that there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from span_events import Span, recorded

from dlio_torch.analysis.advice.loader_replay import LoaderSetup
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.train.steps import STEP_DTYPE, TRAIN, WARMUP, Steps

TICK_NS = 50_000
WARM = 4
Kind = Literal["device", "cpu", "sleep"]


@dataclass(frozen=True)
class Work:
    """What a batch costs, ms; what takes several values takes them in turns.

    Attributes:
        device: waiting for the storage.
        decode: of a core, while threads of one process keep each other out.
        preprocess: of a core.
        nap: asleep while it is made, for no device.
        copy: of a core, to hand it over from a worker.
        take: of the trainer's own time, to receive it from a worker.
        step: computing with it.
    """

    device: float = 0
    decode: float = 0
    preprocess: float = 0
    nap: float | Sequence[float] = 0
    copy: float = 0.1
    take: float = 0.1
    step: float = 10

    def nap_of(self, k: int) -> float:
        return self.nap if isinstance(self.nap, (int, float)) else self.nap[k % len(self.nap)]


@dataclass(frozen=True)
class Machine:
    """Cores, and requests that the device serves at once."""

    cores: int = 64
    slots: int = 64


@dataclass(frozen=True)
class Simulated:
    """A run: what it records, and what came of it."""

    recording: Recording
    steps: Steps
    step_s: float
    waits: float


@dataclass
class _Thread:
    """Does tasks one after another; a task is a list of phases."""

    program: Iterator[tuple[Kind, float] | None]
    kind: Kind | None = None
    left_ns: float = 0
    done: bool = False
    delay_ns: float = 0
    asleep_ns: float = 0

    def next(self) -> None:
        """Go on to the next phase that takes time; None of the program means that it has to wait."""
        while self.left_ns <= 0 and not self.done:
            phase = next(self.program, "end")
            if phase == "end":
                self.done = True
            elif phase is None:
                self.kind = None
                return
            else:
                self.kind, self.left_ns = phase[0], phase[1] * 1e6


@dataclass
class _World:
    work: Work
    setup: LoaderSetup
    count: int
    now: int = 0
    taken: int = 0
    lock: int | None = None
    finished: set[int] = field(default_factory=set)
    ready: set[int] = field(default_factory=set)
    spans: list[Span] = field(default_factory=list)
    records: list[tuple[int, int]] = field(default_factory=list)


def simulate(work: Work, setup: LoaderSetup, machine: Machine, count: int = 60) -> Simulated:
    """A run of ``count`` steps."""
    world = _World(work, setup, count)
    producers = [_Thread(iter(())) for _ in range(setup.producers)]
    for number, thread in enumerate(producers):
        thread.program = _producer(world, thread, number)
    feeders = [_Thread(_feeder(world, number)) for number in range(setup.producers)]
    trainer = _Thread(iter(()))
    trainer.program = _trainer(world, trainer)
    threads = [trainer, *producers, *feeders]
    queue: list[_Thread] = []
    while not trainer.done:
        for thread in threads:
            if thread.left_ns <= 0:
                thread.next()
        busy = [thread for thread in threads if thread.kind == "cpu" and thread.left_ns > 0]
        share = min(1.0, machine.cores / len(busy)) if busy else 1.0
        wanting = [thread for thread in threads if thread.kind == "device" and thread.left_ns > 0]
        queue = [one for one in queue if one in wanting] + [one for one in wanting if one not in queue]
        for thread in busy:
            thread.left_ns -= share * TICK_NS
            thread.delay_ns += (1 - share) * TICK_NS
        for thread in threads:
            if thread.left_ns > 0 and thread.kind in ("device", "sleep"):
                thread.asleep_ns += TICK_NS
                if thread.kind == "sleep" or thread in queue[: machine.slots]:
                    thread.left_ns -= TICK_NS
        world.now += TICK_NS
    return _simulated(world)


def _make(world: _World, thread: _Thread, k: int, pid: int, tid: int) -> Iterator[tuple[Kind, float] | None]:
    work, start = world.work, world.now
    thread.delay_ns = thread.asleep_ns = 0
    where = {"pid": pid, "tid": tid}
    if work.device:
        yield "device", work.device
        world.spans.append(Span("read", start, world.now, **where))
    if work.decode:
        while world.lock is not None and world.setup.by == "threads":
            yield "sleep", TICK_NS / 1e6
        world.lock = tid
        yield "cpu", work.decode
        world.lock = None
    began = world.now
    if work.preprocess:
        yield "cpu", work.preprocess
    if work.nap_of(k):
        yield "sleep", work.nap_of(k)
    end = world.now
    world.spans += [
        Span("preprocess", began, end, **where),
        Span("batch", start, end, offset=k + 1, **where),
        Span("asleep", start, start + int(thread.asleep_ns), bytes=1 if work.device else 0, **where),
        Span("run_delay", start, start + int(thread.delay_ns), **where),
    ]


def _producer(world: _World, thread: _Thread, number: int) -> Iterator[tuple[Kind, float] | None]:
    workers = world.setup.by == "workers"
    for k in range(number, world.count, world.setup.producers):
        while k >= world.taken + world.setup.depth:
            yield None
        yield from _make(world, thread, k, pid=2 + number if workers else 1, tid=2 + number)
        world.finished.add(k)


def _feeder(world: _World, number: int) -> Iterator[tuple[Kind, float] | None]:
    for k in range(number, world.count, world.setup.producers):
        while k not in world.finished:
            yield None
        if world.setup.by == "workers":
            yield "cpu", world.work.copy
        world.ready.add(k)


def _trainer(world: _World, thread: _Thread) -> Iterator[tuple[Kind, float] | None]:
    for k in range(world.count):
        start = world.now
        if world.setup.by == "trainer":
            yield from _make(world, thread, k, pid=1, tid=1)
        else:
            while k not in world.ready:
                yield None
            if world.setup.by == "workers":
                yield "cpu", world.work.take
        world.taken = k + 1
        world.spans.append(Span("fetch", start, world.now, offset=k + 1, step=k + 1))
        world.records.append((start, world.now))
        yield "sleep", world.work.step


def _simulated(world: _World) -> Simulated:
    steps = np.zeros(world.count, STEP_DTYPE)
    start, had = np.array(world.records).T
    steps["epoch"], steps["step"], steps["samples"] = 1, np.arange(1, world.count + 1), 4
    steps["phase"] = np.where(np.arange(world.count) < WARM, WARMUP, TRAIN)
    steps["start_ns"], steps["fetch_ns"], steps["compute_ns"] = start, had - start, round(world.work.step * 1e6)
    measured = slice(WARM, None)
    total = world.now - start[WARM]
    waits = steps["fetch_ns"][measured].sum() / total
    return Simulated(recorded(world.spans), steps, total * 1e-9 / (world.count - WARM), float(waits))
