"""Trainer stub: fetch -> copy to a GPU -> compute -> allreduce -> checkpoint, epoch by epoch, with evaluations.

A step costs a few clock readings and one record.  Spans of the trainer are made from these records after the loop.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import numpy as np

from dlio_torch.checkpoint.position import TrainingPosition
from dlio_torch.compute.emulate import no_compute
from dlio_torch.config.schema import TrainConfig
from dlio_torch.data.engines.batch_loader import Batches
from dlio_torch.dist.base import Communicator
from dlio_torch.environment.cores import idle_core_s
from dlio_torch.errors import DlioError
from dlio_torch.formats.core.batch import INDEX, Batch, batch_bytes
from dlio_torch.train.counters import tree_counters
from dlio_torch.train.evaluation import Evaluation
from dlio_torch.train.order import OrderChecksum
from dlio_torch.train.readers import reader_figures, thread_cpus
from dlio_torch.train.result import EpochFigures, Seen, TrainResult
from dlio_torch.train.step_spans import StepSpans
from dlio_torch.train.steps import TRAIN, WARMUP
from dlio_torch.train.trainer_parts import Hooks, Instruments, LoopStart, Stages

# Step of the epoch and of the run, readings of the clock, samples and bytes: what becomes a record; and the
# number of the batch.
_Step = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]


class Trainer:
    """Runs the loop of one rank.

    Args:
        config: the options of ``train``.
        comm: the ranks.
        stages: stages of a step.
        instruments: instruments that record it.
        start: start of the loop.
        hooks: functions that the loop calls.
    """

    def __init__(
        self,
        config: TrainConfig,
        comm: Communicator,
        stages: Stages,
        instruments: Instruments,
        start: LoopStart,
        hooks: Hooks,
    ) -> None:
        emulator, loader, first = stages.emulator, stages.loader, start.first
        self._config = config
        self._comm = comm
        self._loader = loader
        self._copies, self._copies_ahead = stages.copies, stages.copies_ahead
        self._decoding = stages.decoding
        self._emulator = emulator
        # An emulator that is off gets no requests, so no time counts as requested.
        self._requested_ns = no_compute if emulator.mode == "none" else emulator.requested_ns
        self._checkpointer = stages.checkpointer
        self._log = instruments.log
        self._recorder = instruments.recorder
        self._profiler = instruments.profiler
        self._progress = instruments.progress
        self._cpus = instruments.cpus
        self._thread_cpus: tuple[str, ...] = ()
        self._restore = start.restore
        self._samples_seen = hooks.samples_seen
        self._before_epoch = hooks.before_epoch
        reduces = config.allreduce_bytes > 0
        self._reduce = comm.gradient_reducer(config.allreduce_bytes).step if reduces else None
        self._first = first
        self._after_step = hooks.after_step
        self._before = (first[0] - 1) * len(loader) + first[1]
        self._done = self._before  # training steps of the whole run
        self._spans = StepSpans(self._recorder)
        self._order = OrderChecksum(comm.rank, comm.world_size)
        eval_loader = stages.eval_loader if config.eval_ranks == "all" or comm.rank == 0 else None
        self._evaluation = Evaluation(eval_loader, stages, self._log, self._spans, start.evaluated or (0, 0))
        self._evaluates_first = start.evaluated is not None

    def run(self) -> TrainResult:
        """Train all epochs.

        Raises:
            DlioError: a batch could not be read, a checkpoint not be written.
        """
        gpu = self._copies.name if self._copies is not None else None
        result = TrainResult(self._log.to_array(), gpu=gpu, copies_ahead=self._copies_ahead, decoding=self._decoding)
        if self._restore:
            self._restore_checkpoint(result)
        try:
            if self._checkpointer.saves:
                self._outside(self._checkpointer.begin, self._first)
            self._epochs(result)
            if self._checkpointer.saves:
                self._outside(self._checkpointer.end, (self._config.epochs, len(self._loader)))
        except BaseException:
            # The spans so far are kept; the first error is the one that counts.
            with contextlib.suppress(DlioError):
                self._spans.record(self._log.to_array())
            raise
        result.steps = self._log.to_array()
        result.saves = self._checkpointer.times
        result.checkpoint_bytes = self._checkpointer.written_bytes
        result.save_peak_bytes = self._checkpointer.peak_bytes
        self._spans.record(result.steps)
        self._spans.record_saves(result.saves)
        return result

    def _restore_checkpoint(self, result: TrainResult) -> None:
        self._checkpointer.prepare_restore()
        self._comm.barrier()
        if self._checkpointer.saves:
            began = time.perf_counter_ns()
            result.restored = self._checkpointer.restore()
            size = 0 if result.restored is None else result.restored.bytes
            self._recorder.add("restore", began, time.perf_counter_ns(), bytes=size)

    def _outside(self, save: Callable[[int, TrainingPosition], None], place: tuple[int, int]) -> None:
        """Save before the first or after the last step."""
        began, before = time.perf_counter_ns(), self._checkpointer.written_bytes
        save(self._done, TrainingPosition(*place, self._evaluation.evaluations, self._evaluation.steps))
        if written := self._checkpointer.written_bytes - before:
            self._recorder.add("checkpoint", began, time.perf_counter_ns(), bytes=written)

    def _epochs(self, result: TrainResult) -> None:
        with self._profiler:
            for epoch in range(self._first[0], self._config.epochs + 1):
                if self._before_epoch is not None and epoch > self._first[0]:
                    paused = time.perf_counter_ns()
                    self._before_epoch(epoch)
                    result.pauses.append((paused, time.perf_counter_ns()))
                self._comm.barrier()
                before, idle, began = tree_counters(begins=True), idle_core_s(cpus=self._cpus), time.perf_counter_ns()
                seen: list[Seen] | None = [] if self._samples_seen is not None else None
                if epoch == self._first[0] and self._first[1]:
                    every_steps = self._config.eval_every_steps
                    if every_steps and self._evaluates_first and self._done % every_steps == 0:
                        self._evaluation.run(epoch)
                if epoch > self._first[0] or self._first[1] < len(self._loader):
                    self._epoch(epoch, seen, result)
                every = self._config.eval_every_epochs
                if every and epoch % every == 0:
                    self._evaluation.run(epoch)
                self._log.flush()
                ended, idle_then, after = time.perf_counter_ns(), idle_core_s(cpus=self._cpus), tree_counters()
                self._recorder.add("epoch", began, ended)
                io = after - before if after is not None and before is not None else None
                idle = idle_then - idle if idle_then is not None and idle is not None else None
                first = self._first[1] + 1 if epoch == self._first[0] else 1
                order = self._order.end()
                result.epochs.append(EpochFigures(epoch, (ended - began) * 1e-9, io, idle, order, first))
                if self._after_epoch(epoch, seen, result):
                    result.pauses.append((ended, time.perf_counter_ns()))

    def _after_epoch(self, epoch: int, seen: list[Seen] | None, result: TrainResult) -> bool:
        """Measure the readers after the first epoch with measured steps, and check samples; whether that took time."""
        measured = self._done - self._before > self._config.warmup_steps
        begins = measured and result.readers is None
        if begins:
            result.readers = reader_figures(self._loader, self._thread_cpus)
        if self._samples_seen is not None and seen is not None:
            self._samples_seen(epoch, np.concatenate([np.zeros(0, np.int64), *seen]))
            return True
        return begins and result.readers is not None

    def _epoch(self, epoch: int, seen: list[Seen] | None, result: TrainResult) -> None:
        clock = time.perf_counter_ns
        spend, requested_ns, reduce = self._emulator.spend, self._requested_ns, self._reduce
        flush, show = self._log.maybe_flush, self._progress
        due = self._checkpointer.due if self._checkpointer.saves else None
        profile = self._profiler.step if self._profiler.enabled else None
        eval_every = self._config.eval_every_steps
        steps = len(self._loader)
        total = steps * self._config.epochs
        batches = self._loader.epoch(epoch - 1)
        if result.readers is None:
            self._thread_cpus = thread_cpus(self._loader)
        fetch, read_on = self._fetch(batches), batches.read_on
        copies, after_step, order = self._copies, self._after_step, self._order
        batch: Batch | None = None
        last: _Step | None = None  # a step that is done and not recorded yet
        try:
            for step in range(self._first[1] + 1 if epoch == self._first[0] else 1, steps + 1):
                start = clock()
                before, batch = batch, fetch()
                fetched = copied = clock()
                if copies is not None and batch is not before:
                    copies.start(batch)
                    read_on()
                    copies.finish()
                    copied = clock()
                else:
                    read_on()
                before = None
                # The step's compute begins here.  The loader goes on reading and bookkeeping is done in
                # its shadow, as a trainer's host code runs while the accelerator works; then the rest of
                # the time is spent.
                requested = requested_ns(self._done)
                if last is not None:
                    done, last = last, None
                    self._record(epoch, done)
                samples, size = len(batch[INDEX]), batch_bytes(batch)
                numbers = batch[INDEX].numpy()
                order.add(numbers)
                if seen is not None:
                    seen.append(numbers.copy())
                flush()
                show(self._done, total)
                shadow = clock() - copied
                # The emulator's own reading of the end: a wait for the interpreter lock is no compute.
                # Without compute there is no shadow, and all this is the tool's own time.
                computed_ns = shadow + spend(requested - shadow) if requested else 0
                computed = reduced = clock()
                if reduce is not None:
                    reduce()
                    reduced = clock()
                self._done += 1
                saved = reduced
                if due is not None and due(epoch, self._done, step == steps):
                    place = TrainingPosition(epoch, step, self._evaluation.evaluations, self._evaluation.steps)
                    self._checkpointer.save(self._done, place)
                    saved = clock()
                last = (
                    step, self._done, start, fetched, copied, computed_ns, requested, computed, reduced, saved, samples,
                    size, self._loader.number,
                )  # fmt: skip
                if profile is not None:
                    profile()
                if eval_every and self._done % eval_every == 0:
                    done, last = last, None
                    self._record(epoch, done)
                    self._evaluation.run(epoch)
                if after_step is not None:
                    after_step(epoch, step, self._done == total)
        finally:
            if last is not None:
                self._record(epoch, last)
        show(self._done, total)

    def _record(self, epoch: int, last: _Step) -> None:
        step, done, start, fetched, copied, computed_ns, requested, computed, reduced, saved, samples, size, n = last
        self._log.append(
            epoch,
            step,
            TRAIN if done - self._before > self._config.warmup_steps else WARMUP,
            start_ns=start,
            fetch_ns=fetched - start,
            copy_ns=copied - fetched,
            compute_ns=computed_ns,
            requested_ns=requested,
            allreduce_ns=reduced - computed,
            checkpoint_ns=saved - reduced,
            samples=samples,
            bytes=size,
        )
        spans = self._spans
        if spans.reserve():
            spans.numbers.append(n)
            spans.computed_ns.append(computed)

    def _fetch(self, batches: Batches) -> Callable[[], Batch]:
        """``next(batches)``, inside the annotation of the profiler if that is on."""
        take = batches.__next__
        if not self._profiler.enabled:
            return take

        def annotated() -> Batch:
            with self._profiler.fetch():
                return take()

        return annotated
