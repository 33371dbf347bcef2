"""Evaluation: fetch -> copy to a GPU -> compute, without checkpoints and allreduce."""

from __future__ import annotations

import time
from itertools import islice

from dlio_torch.compute.emulate import no_compute
from dlio_torch.data.engines.batch_loader import BatchLoader
from dlio_torch.formats.core.batch import INDEX, batch_bytes
from dlio_torch.train.step_spans import StepSpans
from dlio_torch.train.steps import EVAL, StepLog
from dlio_torch.train.trainer_parts import Stages


class Evaluation:
    """Reads all evaluation batches of one rank, each time that it runs.

    Args:
        loader: evaluation batches; ``None`` if this rank evaluates nothing.
        stages: stages of a step.
        log: takes a record of each step.
        spans: spans of the steps.
        before: evaluations before the loop begins, and their steps.

    Attributes:
        evaluations: evaluations that are done.
        steps: steps of evaluations that are done, over all evaluations.
    """

    def __init__(
        self, loader: BatchLoader | None, stages: Stages, log: StepLog, spans: StepSpans, before: tuple[int, int]
    ) -> None:
        emulator = stages.emulator
        self._loader = loader
        self._copies = stages.eval_copies
        self._spend = emulator.spend
        self._requested_ns = no_compute if emulator.mode == "none" else emulator.requested_eval_ns
        self._log = log
        self._spans = spans
        self.evaluations, self.steps = before

    def run(self, epoch: int) -> None:
        """Evaluate.

        Args:
            epoch: number of the epoch of training, for the records.

        Raises:
            DlioError: a batch could not be read.
        """
        if self._loader is None:
            return
        clock = time.perf_counter_ns
        start = clock()
        batches = self._loader.epoch(self.evaluations)
        for step, batch in enumerate(islice(batches, batches.steps), 1):  # a pipe may go on
            fetched = copied = clock()
            if self._copies is not None:
                self._copies.start(batch)
                self._copies.finish()
                copied = clock()
            batches.read_on()
            requested = self._requested_ns(self.steps)
            computed_ns = self._spend(requested)
            self.steps += 1
            self._spans.reserve()
            self._log.append(
                epoch,
                step,
                EVAL,
                start_ns=start,
                fetch_ns=fetched - start,
                copy_ns=copied - fetched,
                compute_ns=computed_ns,
                requested_ns=requested,
                allreduce_ns=0,
                checkpoint_ns=0,
                samples=len(batch[INDEX]),
                bytes=batch_bytes(batch),
            )
            self._log.maybe_flush()
            start = clock()
        self.evaluations += 1
