"""Causes of waits: exact on made-up spans, and the known cause of real runs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from span_events import Span, recorded, run

from dlio_torch.analysis.stalls import PARTS, attribute, summary
from dlio_torch.compute.emulate import Preprocess
from dlio_torch.iotrace.events.recording import Recording


def parts(recording: Recording, **options: Any) -> list[dict[str, Any]]:
    """The parts of each wait in ns; None: not measured, and without those that took no time."""
    waits = attribute(recording, **options)
    assert waits is not None
    assert np.allclose(waits[list(PARTS)].sum(axis=1), waits["wait_s"], rtol=0, atol=1e-12)
    assert (waits[list(PARTS)].fillna(0) >= 0).all(axis=None)
    ns = (waits[list(PARTS)] * 1e9).round()
    return [
        {part: None if np.isnan(value) else int(value) for part, value in row.items() if value}
        for row in ns.to_dict("records")
    ]


def used(start: int, asleep: int, delay: int, kernel: int, device: int, **where: int) -> list[Span]:
    return [
        Span("asleep", start, start + asleep, bytes=device, **where),
        Span("run_delay", start, start + delay, **where),
        Span("kernel", start, start + kernel, **where),
    ]


WORKER = {"pid": 2, "tid": 2}
# A batch of 1000 ns, of which the trainer waits for the last 600 and 100 of transfer.
BATCH = [
    Span("fetch", 1400, 2100, offset=7, step=1),
    Span("batch", 1000, 2000, offset=7, **WORKER),
    Span("open", 1000, 1100, **WORKER),
    Span("read", 1100, 1600, **WORKER),
    Span("preprocess", 1600, 1800, **WORKER),
    Span("collate", 1800, 1900, **WORKER),
]


def test_parts_are_where_the_spans_of_the_maker_are() -> None:
    # A tenth of the batch in the run queue; half of the reads asleep, the rest of the work a quarter kernel.
    use = used(1000, asleep=300, delay=100, kernel=90, device=4096, **WORKER)
    [found] = parts(recorded([*BATCH, *use]))
    # 200 ns of reads: half asleep, a tenth starved, the rest 80; outside preprocessing the thread worked 420 ns.
    assert found == {
        "device": 100, "page_cache": int(80 * 90 / 420), "decode": int(80 * 330 / 420),
        "preprocess": 180, "collate": 90, "starved": 60, "hand_over": 100, "unexplained": 91,
    }  # fmt: skip


def test_sleep_in_a_read_is_no_device_where_none_delivered_anything() -> None:
    use = used(1000, asleep=300, delay=0, kernel=0, device=0, **WORKER)
    [found] = parts(recorded([*BATCH, *use]))
    assert "device" not in found
    assert found["unexplained"] == 200
    [found] = parts(recorded([*BATCH, *use]), device_counted=False)  # a network file system
    assert (found["device"], found["unexplained"]) == (100, 100)


def test_recorded_calls_tell_the_page_cache_from_decoding() -> None:
    call = Span("pread", 1100, 1450, layer="posix", **WORKER)
    other = Span("write", 1100, 1600, layer="posix")  # of the trainer
    [found] = parts(recorded([*BATCH, call, other, *used(1000, 0, 0, 400, 0, **WORKER)]))
    assert (found["page_cache"], found["decode"]) == (50, 150)


def test_without_the_kernels_figures_reads_stay_whole() -> None:
    [found] = parts(recorded(BATCH))
    assert found == {
        "device": None, "page_cache": None, "decode": None, "starved": None,
        "read": 200, "preprocess": 200, "collate": 100, "hand_over": 100, "unexplained": 100,
    }  # fmt: skip


def test_a_wait_begins_before_its_batch() -> None:
    asked = Span("fetch", 600, 2100, offset=7, step=1)
    waits = recorded(
        [asked, *BATCH[1:], Span("batch", 500, 900, offset=6, **WORKER), *used(1000, 0, 0, 0, 0, **WORKER)]
    )
    [found] = parts(waits)
    # Before the batch the worker made another one, and then had nothing to do.
    assert (found["not_started"], found["unexplained"], found["hand_over"]) == (100, 300 + 100, 100)
    table = attribute(waits)
    assert table is not None
    assert table[["pid", "tid", "idle_s"]].to_numpy().tolist() == [[2, 2, pytest.approx(100e-9)]]
    assert summary(table)["ahead_s"] == pytest.approx(100e-9)


def test_the_trainers_own_thread_hands_over_before_and_after() -> None:
    own = [Span(**{**vars(span), "pid": 1, "tid": 1}) for span in BATCH[1:]]
    [found] = parts(recorded([Span("fetch", 900, 2100, offset=7, step=1), *own, *used(1000, 0, 0, 0, 0)]))
    assert found["hand_over"] == 200
    assert "not_started" not in found


def test_a_crowded_machine_delays_the_hand_over_too() -> None:
    # While the batch is handed over, the worker makes the next one and is in the run queue half of the time.
    core_demand = [Span("batch", 2000, 3000, offset=8, **WORKER), *used(2000, 0, 500, 0, 0, **WORKER)]
    [found] = parts(recorded([*BATCH, *used(1000, 0, 0, 0, 0, **WORKER), *core_demand]))
    assert (found["hand_over"], found["starved"]) == (50, 50)


def test_threads_that_read_in_turn_wait_for_the_read_of_another() -> None:
    first = [Span("batch", 1000, 1500, offset=1, tid=2), Span("read", 1000, 1500, tid=2)]
    second = [
        Span("batch", 1000, 2000, offset=2, tid=3),
        Span("turn", 1000, 1500, tid=3),
        Span("read", 1500, 2000, tid=3),
    ]
    waits = [Span("fetch", 1400, 1500, offset=1, step=1), Span("fetch", 1500, 2000, offset=2, step=2)]
    late = [Span("fetch", 1200, 2000, offset=2, step=3)]
    found = parts(recorded([*first, *second, *waits, *late]))
    assert [row["read"] for row in found] == [100, 500, 800]


def test_a_batch_that_nobody_recorded() -> None:
    [found] = parts(recorded([Span("fetch", 100, 300, step=1), Span("batch", 100, 200, offset=5)]))
    assert found == dict.fromkeys(PARTS) | {"unexplained": 200}
    assert attribute(recorded([Span("compute", 0, 5)])) is None


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_parts_add_up_whatever_the_spans(data: st.DataObject) -> None:
    time = st.integers(0, 200)
    spans = [Span("fetch", 0, 200, offset=0, step=1)]
    for number in range(data.draw(st.integers(1, 4))):
        where = {"pid": data.draw(st.integers(1, 2)), "tid": data.draw(st.integers(1, 2))}
        start = number * 50
        end = start + data.draw(st.integers(0, 50))
        spans.append(Span("batch", start, end, offset=number, **where))
        if data.draw(st.booleans()):
            spans += used(start, data.draw(time), data.draw(time), data.draw(time), data.draw(time), **where)
        begin, stop = sorted((data.draw(time), data.draw(time)))
        spans.append(Span("fetch", begin, stop, offset=number, step=2 + number))
    for op in data.draw(
        st.lists(st.sampled_from(["read", "open", "decode", "preprocess", "collate", "turn"]), max_size=8)
    ):
        begin, stop = sorted((data.draw(time), data.draw(time)))
        spans.append(Span(op, begin, stop, pid=data.draw(st.integers(1, 2)), tid=data.draw(st.integers(1, 2))))
    calls = data.draw(st.lists(st.tuples(time, time), max_size=3))
    spans += [Span("pread", min(call), max(call), layer="posix") for call in calls]
    parts(recorded(spans))


def test_the_summary_names_the_largest_part() -> None:
    waits = attribute(recorded([*BATCH, Span("fetch", 3000, 3000, step=2)]))
    found = summary(waits)
    assert json.loads(json.dumps(found)) == found
    assert (found["steps"], found["largest"], found["parts"]["device"]) == (2, "read", None)
    assert found["sentence"].startswith("2 steps waited 0.0007 ms for data; the largest cause, 0.0002 ms (29 %), was")
    assert summary(waits, warmup_steps=1)["sentence"] == "None of the 1 measured step waited for data."
    assert summary(waits, warmup_steps=2)["wait_s"] is None
    assert summary(None)["sentence"] == "The causes of waits were not recorded."


# --- real runs: on a busy machine threads may be starved for any part of the time, so the cause is the ---
# --- largest of the other parts -----------------------------------------------------------------------


def cause(recording: Recording) -> str:
    parts(recording)
    shares = summary(attribute(recording))["shares"]
    return max((part for part in PARTS if part != "starved"), key=lambda part: shares[part] or 0.0)


SMALL = ("dataset.fields.0.shape=[16,16]", "train.steps=6", "compute.preprocess_s=10ms")
STREAM = ("access.pattern=stream", "access.partition=files", "access.order=sequential")


@pytest.mark.parametrize(
    "loader",
    [
        (),
        ("loader.num_workers=1",),
        ("loader.num_workers=2", "loader.in_order=false", "loader.engine=stateful"),
        ("loader.read_threads=2", "loader.prefetch_batches=2"),
        ("loader.engine=nodes", "loader.num_workers=1"),
        ("loader.engine=nodes", "loader.read_threads=1"),
        ("loader.style=pipe", "loader.num_workers=1"),
        (*STREAM, "loader.num_workers=1"),
        (*STREAM, "loader.read_threads=2", "loader.prefetch_batches=2"),
        ("access.hold_steps=2",),
    ],
    ids=" ".join,
)
def test_every_engine_tells_that_preprocessing_was_slow(tmp_path: Path, loader: tuple[str, ...]) -> None:
    waits = attribute(recording := run(tmp_path, *SMALL, *loader))
    assert waits is not None
    assert (waits["pid"] > 0).all()  # each step's batch has its producer
    assert cause(recording) == "preprocess"


def test_samples_in_memory_cost_no_reading(tmp_path: Path) -> None:
    # Without workers the trainer waits for all of the collating; a worker may be done before it is asked.
    found = summary(attribute(run(tmp_path, *SMALL[:2], "loader.in_memory=true", "loader.num_workers=0")))
    assert not any(found["parts"][part] for part in ("device", "page_cache", "decode", "read", "preprocess"))
    assert found["parts"]["collate"] > 0


def test_compressed_data_are_decoded(tmp_path: Path) -> None:
    large = ("dataset=hdf5_gzip", "dataset.fields.0.shape=[256,512]", "train.batch_size=8", "train.steps=4")
    recording = run(tmp_path, *large, "dataset.num_files=1", "dataset.samples_per_file=32")
    parts(recording)
    found = summary(attribute(recording))["parts"]
    # Waits for a core are the machine's; they may be longer than any work.
    work = {part: found[part] or 0.0 for part in ("device", "page_cache", "decode", "read", "preprocess", "collate")}
    assert max(work, key=work.__getitem__) == "decode"


def test_data_that_left_the_page_cache_come_from_the_device(tmp_path: Path) -> None:
    options = ("dataset.num_files=4", "dataset.fields.0.shape=[512,512]", "loader.read_threads=1", "cache=as_is")
    warm = run(tmp_path, *options, name="warm")
    for path in (tmp_path / "data").rglob("*.h5"):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    cold = run(tmp_path, *options, name="cold")
    frame = cold.events.frame
    if not frame.loc[frame["op"] == "asleep", "bytes"].sum():
        pytest.skip("the kernel counts no device for this file system")
    # How long the device takes beside the rest is the machine's; that it was the device's time is told.
    delivered = frame.loc[frame["op"] == "asleep", "bytes"].sum()
    before = warm.events.frame.loc[warm.events.frame["op"] == "asleep", "bytes"].sum()
    assert delivered > 10 * before
    assert summary(attribute(cold))["parts"]["device"] > summary(attribute(warm))["parts"]["device"]


@pytest.fixture
def one_core() -> Iterator[None]:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    yield
    os.sched_setaffinity(0, cores)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.usefixtures("one_core")
def test_workers_without_a_core_are_starved(tmp_path: Path) -> None:
    many = ("compute.mode=none", "loader.num_workers=6", "dataset.samples_per_file=20", "train.steps=18")
    found = summary(attribute(run(tmp_path, *SMALL, *many)))
    assert found["largest"] == "starved"
    assert "no CPU core" in found["sentence"]


def test_many_tensors_take_long_to_hand_over(tmp_path: Path) -> None:
    options = ("dataset=synthetic", "dataset.num_files=1", "dataset.samples_per_file=256", "compute.mode=none")
    fields = ",".join(f"{{name: a{number}, shape: [4]}}" for number in range(50))  # each by a descriptor of its own
    memory = (f"dataset.fields=[{fields}]", "loader.in_memory=true", "loader.num_workers=1")
    assert cause(run(tmp_path, *options, *memory, "train.batch_size=16", "train.steps=12")) == "hand_over"


def test_a_worker_that_starts_has_not_begun_the_batch(tmp_path: Path) -> None:
    options = ("loader.num_workers=1", "loader.multiprocessing_context=spawn")
    waits = attribute(run(tmp_path, "dataset.fields.0.shape=[16,16]", "train.steps=2", *options))
    assert waits is not None
    assert waits["not_started"][0] > 0.5 * waits["wait_s"][0]


def test_reading_further_ahead_would_help_where_steps_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Preprocessing that sleeps: a busy machine does not make it longer.
    monkeypatch.setattr(Preprocess, "burn", lambda *_: time.sleep(0.006) or 0)
    uneven = ("compute.distribution=exponential", "compute.step_s=8ms", "compute.preprocess_s=1.5ms")
    options = ("dataset.fields.0.shape=[16,16]", "dataset.samples_per_file=50", "loader.read_threads=1")
    waits = attribute(run(tmp_path, *uneven, *options))
    assert isinstance(waits, pd.DataFrame)
    found = summary(waits)
    assert found["ahead_s"] > 0.1 * found["wait_s"]
