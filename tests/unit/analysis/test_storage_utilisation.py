"""Utilisation that the storage alone would allow: exact for constructed runs, and the reasons where there is none."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from advice_data import CONFIG
from span_events import Span, recorded

from dlio_torch.analysis.advice.evidence import changed
from dlio_torch.analysis.storage_utilisation import au_of_storage
from dlio_torch.config.schema import Config
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.train.steps import EVAL, STEP_DTYPE, TRAIN, WARMUP, Steps

MS = 1_000_000
STEPS = 40
DATA = Path("/data")
SUMMARY: dict[str, Any] = {"au": {"why": None}, "dataset": {"path": str(DATA)}, "cache": {"files": 1}}


@dataclass
class Run:
    """A recorded run in whose steps nothing overlaps: read, decode, compute; times in ms.

    Each batch is an open and two reads, and five milliseconds of decoding between and after them.
    """

    workers: int = 0
    ranks: int = 1
    compute: float = 4
    read: float = 1.5
    warmup: int = 0
    calls: bool = True
    late: float = 0  # wait for a core after the last read of every third batch
    spans: list[Span] = field(default_factory=list)

    def build(self) -> tuple[Recording, dict[int, Steps]]:
        steps = {rank: self._rank(rank) for rank in range(self.ranks)}
        return recorded(self.spans), steps

    def _rank(self, rank: int) -> Steps:
        records = np.zeros(STEPS, STEP_DTYPE)
        now = 10_000.0 * rank  # recorded one after the other, the ranks tell of no shared pipe
        for k in range(STEPS):
            thread = 10 * rank + (2 + k % self.workers if self.workers else 1)
            begin, number = now, 1000 * rank + k + 1
            late = self.late if k % 3 == 0 else 0.0
            pieces = [("open", "open", 1.0, -1), ("read", "pread", self.read, 4), ("read", "pread", self.read, 4)]
            for place, (span, call, length, size) in enumerate(pieces):
                end = now + length + (late if place == 2 else 0)
                where: dict[str, Any] = {"rank": rank, "pid": thread, "tid": thread, "file": "/data/a", "bytes": size}
                self.spans.append(Span(span, round(now * MS), round(end * MS), **where))
                if self.calls:
                    self.spans.append(Span(call, round(now * MS), round(end * MS), **where, layer="posix"))
                now = end + 5
            owner: dict[str, Any] = {"rank": rank, "pid": thread, "tid": thread}
            at = round(begin * MS)
            self.spans.append(Span("batch", at, round(now * MS), offset=number, **owner))
            self.spans.append(Span("run_delay", at, at + round(late * MS), **owner))
            main = 10 * rank + 1
            self.spans.append(
                Span("fetch", at, round(now * MS), rank=rank, pid=main, tid=main, offset=number, step=k + 1)
            )
            phase = WARMUP if k < self.warmup else TRAIN
            row = {"epoch": 1, "step": k + 1, "phase": phase, "start_ns": at, "requested_ns": self.compute * MS}
            for name, value in {**row, "samples": 1, "bytes": 8}.items():
                records[name][k] = value
            now += self.compute
        return records


def config(**options: Any) -> Config:
    return changed(CONFIG, {"trace.posix": True, **{key.replace("__", "."): value for key, value in options.items()}})


def figure(run: Run, **options: Any) -> dict[str, Any]:
    recording, steps = run.build()
    return au_of_storage(SUMMARY, config(loader__num_workers=run.workers, **options), recording, steps, [DATA])


def test_a_trainer_that_reads_waits_for_the_calls_and_not_for_the_decoding() -> None:
    found = figure(Run())
    assert found == {
        "mean": pytest.approx(0.5),  # 4 ms of compute, 1 + 1.5 + 1.5 ms of calls
        "min": pytest.approx(0.5),
        "ci95": pytest.approx([0.5, 0.5]),
        "source": "calls",
        "why": None,
    }


def test_without_calls_the_spans_of_reads_are_taken() -> None:
    found = figure(Run(calls=False), trace__posix=False)
    assert found["source"] == "spans"
    assert found["mean"] == pytest.approx(0.5)
    assert figure(Run(calls=False))["source"] == "spans"  # recorded, but none was made by a producer


def test_a_span_within_another_one_counts_once() -> None:
    run = Run(calls=False)
    _, steps = run.build()
    opens = [span for span in run.spans if span.op == "open"]
    run.spans += [replace(span, op="read", bytes=4) for span in opens]  # a file that is read when it is opened
    run.spans += [replace(span, op="read", start=span.start + 1, end=span.end - 1, bytes=4) for span in opens]
    found = au_of_storage(SUMMARY, config(trace__posix=False), recorded(run.spans), steps, [DATA])
    assert found["mean"] == pytest.approx(0.5)


@pytest.mark.parametrize(("workers", "compute", "known"), [(1, 2, 0.5), (2, 1, 0.5), (2, 1.5, 0.75), (4, 2, 1.0)])
def test_workers_read_while_the_trainer_computes(workers: int, compute: float, known: float) -> None:
    found = figure(Run(workers=workers, compute=compute, warmup=10))
    assert found["mean"] == pytest.approx(known)


def test_the_least_rank_and_the_barrier_count() -> None:
    fast, slow = Run(ranks=2), Run(ranks=2)
    recording, steps = fast.build()
    other, _ = replace(slow, read=3.5).build()
    frame = recording.events.frame
    mixed = frame[frame["rank"] == 0], other.events.frame[other.events.frame["rank"] == 1]
    both = pd.concat(mixed, ignore_index=True)
    for name in ("op", "file", "layer"):
        both[name] = both[name].astype("category")
    recording = replace(recording, events=replace(recording.events, frame=both))
    apart = au_of_storage(SUMMARY, config(), recording, steps, [DATA])
    assert (apart["mean"], apart["min"]) == (pytest.approx((0.5 + 1 / 3) / 2), pytest.approx(1 / 3))
    together = au_of_storage(SUMMARY, config(train__allreduce_bytes=4), recording, steps, [DATA])
    assert (together["mean"], together["min"]) == (pytest.approx(1 / 3), pytest.approx(1 / 3))


def test_the_wait_for_a_core_after_a_call_is_not_the_storage() -> None:
    assert figure(Run(late=30.0))["mean"] == pytest.approx(0.5, rel=1e-3)


def test_calls_on_other_files_do_not_count() -> None:
    run = Run()
    run.spans += [Span("pread", 0, 900 * MS, pid=1, tid=1, file="/elsewhere/a", bytes=4, layer="posix")]
    assert figure(run)["mean"] == pytest.approx(0.5)


def test_threads_of_a_library_work_for_the_batch_of_their_process() -> None:
    """A thread of its own reads beside the trainer's; the longer of both lanes counts."""
    run = Run()
    recording, steps = run.build()
    batches = [span for span in run.spans if span.op == "batch"]
    run.spans += [
        Span("pread", span.start, span.start + 12 * MS, pid=1, tid=7, file="/data/a", bytes=4, layer="posix")
        for span in batches
    ]
    recording = recorded(run.spans)
    found = au_of_storage(SUMMARY, config(), recording, steps, [DATA])
    assert found["mean"] == pytest.approx(4 / (4 + 12))


def test_steps_of_evaluations_are_left_out() -> None:
    recording, steps = Run().build()
    steps[0] = np.concatenate([steps[0], steps[0][:5]])
    steps[0]["phase"][-5:] = EVAL
    assert au_of_storage(SUMMARY, config(), recording, steps, [DATA])["mean"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("options", "summary", "why"),
    [
        ({}, {"au": {"why": "no compute was emulated"}}, "no compute was emulated"),
        ({"loader__replay": "reads"}, {}, r"loader\.replay=reads leaves out the storage"),
        ({"loader__in_memory": True}, {}, "in_memory"),
        ({}, {"cache": None}, "read no files"),
        ({"dataset__format": "tokens"}, {}, "mapped files"),
        ({"trace__spans": False}, {}, r"trace\.spans=false"),
    ],
)
def test_the_reason_is_given_where_there_is_no_figure(
    options: dict[str, Any], summary: dict[str, Any], why: str
) -> None:
    recording, steps = Run().build()
    found = au_of_storage({**SUMMARY, **summary}, config(**options), recording, steps, [DATA])
    assert [found[name] for name in ("mean", "min", "ci95", "source")] == [None] * 4
    assert re.search(why, found["why"])


def test_a_rank_without_measured_steps_is_said() -> None:
    recording, steps = Run(ranks=2).build()
    steps[1]["phase"] = WARMUP
    assert "some rank" in au_of_storage(SUMMARY, config(), recording, steps, [DATA])["why"]


def test_nothing_recorded_is_said() -> None:
    run = Run()
    _, steps = run.build()
    reasons = {
        "no batch": recorded([span for span in run.spans if span.op != "batch"]),
        "no fetch": recorded([span for span in run.spans if span.op != "fetch"]),
        "no request": recorded([span for span in run.spans if span.op in ("batch", "fetch")]),
    }
    whys = {name: au_of_storage(SUMMARY, config(), rec, steps, [DATA])["why"] for name, rec in reasons.items()}
    assert "production" in whys["no batch"]
    assert "production" in whys["no fetch"]
    assert "no request" in whys["no request"]
    assert "production" in au_of_storage(SUMMARY, config(), None, steps, [DATA])["why"]
