"""Step records and the figures made of them: hand-computed numbers, and what must hold for any run."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlio_torch.analysis.step_metrics import PARTS, SHARES, summarise
from dlio_torch.config.schema import CheckpointConfig, ComputeConfig, Config, TrainConfig
from dlio_torch.errors import DataError
from dlio_torch.train.steps import (
    EVAL,
    STEP_DTYPE,
    TRAIN,
    WARMUP,
    StepLog,
    Steps,
    journal_of,
    read_steps,
    write_steps,
)

MS = 1_000_000
FULL = Config(
    recipe="example",
    train=TrainConfig(allreduce_bytes=1000, device="cuda"),
    checkpoint=CheckpointConfig(layout="files", every_steps=3),
)


def steps(*rows: tuple[float, ...]) -> Steps:
    """Rows of (epoch, step, phase, start, fetch, compute, requested, allreduce, checkpoint), times in ms."""
    records = []
    for epoch, step, phase, start, fetch, *times in rows:
        all_times = (start, fetch, 0, *times)  # no copy
        records.append((epoch, step, phase, *(round(time * MS) for time in all_times), 4, 1 << 20))
    return np.array(records, dtype=STEP_DTYPE)


# Two epochs with an evaluation between them; what each number gives is worked out in the test.
EXAMPLE = steps(
    (1, 1, WARMUP, 0, 5, 10, 10, 0, 0),
    (1, 2, TRAIN, 16, 2, 10, 10, 1, 0),  # to 30: 1 ms of other
    (1, 3, TRAIN, 30, 4, 10, 10, 1, 5),  # to 50
    (1, 1, EVAL, 60, 3, 5, 5, 0, 0),
    (1, 2, EVAL, 70, 2, 5, 5, 0, 0),  # to 77
    (2, 1, TRAIN, 80, 6, 10, 10, 1, 0),  # to 98: 1 ms of other
    (2, 2, TRAIN, 98, 2, 12, 10, 1, 0),  # to 113
)


def test_hand_computed_figures() -> None:
    summary = summarise([EXAMPLE], config=FULL)
    # Measured intervals: 16 to 50, and 77 (end of the evaluation) to 113: 34 + 36 = 70 ms.
    train = summary["train"]
    assert train["steps"] == 4
    assert train["samples"] == 16
    assert train["elapsed_s"] == pytest.approx(0.070)
    assert train["samples_per_s"] == pytest.approx(16 / 0.070)
    assert train["mib_per_s"] == pytest.approx(4 / 0.070)
    assert summary["au"]["mean"] == summary["au"]["min"] == pytest.approx(40 / 70)
    expected = {"fetch": 14, "copy": 0, "compute": 42, "allreduce": 4, "checkpoint": 5, "other": 2, "between_epochs": 3}
    assert summary["shares"] == pytest.approx({name: ms / 70 for name, ms in expected.items()})
    assert summary["step"]["duration_s"] == pytest.approx(
        {"mean": 0.067 / 4, "min": 0.014, "median": 0.0165, "p95": 0.0197, "max": 0.020}
    )
    assert summary["step"]["fetch_s"] == pytest.approx(
        {"mean": 0.0035, "min": 0.002, "median": 0.003, "p95": 0.0057, "max": 0.006}
    )
    assert summary["checkpoints"]["measured"] == 1
    assert summary["checkpoints"]["duration_s"]["mean"] == pytest.approx(0.005)
    error = summary["compute_error"]
    assert error["median_s"] == 0
    assert error["p95_abs_s"] == pytest.approx(0.0017)
    assert error["max_abs_s"] == pytest.approx(0.002)
    assert error["relative_max_abs"] == pytest.approx(0.2)
    assert error["relative_total"] == pytest.approx(0.05)
    # The evaluation has the time since the end of the training before it: 50 to 77.
    assert summary["eval"]["steps"] == 2
    assert summary["eval"]["elapsed_s"] == pytest.approx(0.027)
    assert summary["warmup"]["steps"] == 1
    assert summary["ranks"] == [
        {
            "rank": 0,
            "steps": 4,
            "samples": 16,
            "bytes": 4 << 20,
            "elapsed_s": pytest.approx(0.070),
            "samples_per_s": pytest.approx(16 / 0.070),
            "au": pytest.approx(40 / 70),
            "fetch_s": pytest.approx(0.0035),
            "copy_s": 0,
            "compute_s": pytest.approx(0.0105),
            "allreduce_s": pytest.approx(0.001),
            "checkpoint_s": pytest.approx(0.00125),
            "other_s": pytest.approx(0.001),  # 2 ms after two steps; what follows the last of an epoch is not seen
        }
    ]
    assert (summary["version"], summary["recipe"], summary["world_size"]) == ("1", "example", 1)


def test_perfect_storage_is_fully_busy() -> None:
    perfect = steps(*((1, i + 1, TRAIN, 10 * i, 0, 10, 10, 0, 0) for i in range(5)))
    assert summarise([perfect], config=Config())["au"]["mean"] == 1.0


def test_late_compute_is_not_a_busy_accelerator() -> None:
    late = steps(*((1, i + 1, TRAIN, 20 * i, 0, 20, 10, 0, 0) for i in range(5)))
    assert summarise([late], config=Config())["au"]["mean"] == pytest.approx(0.5)


def test_starting_loaders_again_counts() -> None:
    two = steps((1, 1, TRAIN, 0, 0, 10, 10, 0, 0), (2, 1, TRAIN, 40, 0, 10, 10, 0, 0))
    summary = summarise([two], config=Config())
    assert summary["train"]["elapsed_s"] == pytest.approx(0.050)
    assert summary["shares"]["between_epochs"] == pytest.approx(0.6)
    assert summary["au"]["mean"] == pytest.approx(0.4)


def test_warmup_ends_where_the_first_measured_step_starts() -> None:
    rows = steps(
        (1, 1, WARMUP, 0, 0, 10, 10, 0, 0), (1, 2, TRAIN, 90, 0, 10, 10, 0, 0), (1, 3, TRAIN, 100, 0, 10, 10, 0, 0)
    )
    summary = summarise([rows], config=Config())
    assert summary["train"]["elapsed_s"] == pytest.approx(0.020)
    assert summary["shares"]["between_epochs"] == 0


def test_an_evaluation_inside_an_epoch_is_left_out() -> None:
    rows = steps(
        (1, 1, TRAIN, 0, 0, 10, 10, 0, 0),
        (1, 2, TRAIN, 11, 0, 10, 10, 0, 0),  # to 21
        (1, 1, EVAL, 22, 20, 5, 5, 0, 0),  # to 47
        (1, 3, TRAIN, 48, 0, 10, 10, 0, 0),
        (1, 4, TRAIN, 58, 0, 10, 10, 0, 0),  # to 68
    )
    summary = summarise([rows], config=Config())
    assert summary["train"]["elapsed_s"] == pytest.approx(0.021 + 0.021)
    assert summary["eval"]["elapsed_s"] == pytest.approx(0.026)
    assert summary["au"]["mean"] == pytest.approx(40 / 42)
    assert summary["shares"]["other"] == pytest.approx(1 / 42)
    assert summary["shares"]["between_epochs"] == pytest.approx(1 / 42)


def two_ranks(shift: int) -> list[Steps]:
    first = steps(*((1, i + 1, TRAIN, 50 * i, 25, 25, 25, 0, 0) for i in range(2)))
    second = steps(*((1, i + 1, TRAIN, 50 + 50 * i, 40, 10, 10, 0, 0) for i in range(2)))
    second["start_ns"] += shift
    return [first, second]


def test_throughput_of_ranks_is_over_the_union_of_their_times() -> None:
    summary = summarise(two_ranks(0), config=Config())
    assert summary["train"]["elapsed_s"] == pytest.approx(0.150)
    assert summary["train"]["samples_per_s"] == pytest.approx(16 / 0.150)
    assert summary["au"]["per_rank"] == pytest.approx([0.5, 0.2])
    assert summary["au"]["mean"] == pytest.approx(0.35)
    assert summary["au"]["min"] == pytest.approx(0.2)
    assert summary["shares"]["fetch"] == pytest.approx((0.5 + 0.8) / 2)


def test_ranks_on_other_clocks() -> None:
    shifted = two_ranks(10**15)
    aligned = summarise(shifted, config=Config(), extra={"clock_offset_ns": [0, -(10**15)]})
    assert aligned["train"]["elapsed_s"] == pytest.approx(0.150)
    assert "clock_offset_ns" not in aligned
    unknown = summarise(shifted, config=Config())
    assert unknown["train"]["elapsed_s"] == pytest.approx(0.100)  # and not eleven days


def test_what_was_not_done_is_not_measured() -> None:
    config = Config(compute=ComputeConfig(mode="none"))
    rows = steps(*((1, i + 1, TRAIN, 10 * i, 10, 0, 0, 0, 0) for i in range(5)))
    summary = summarise([rows], config=config)
    assert summary["au"]["mean"] is None
    assert summary["au"]["why"] == "no compute was emulated"
    assert summary["compute_error"] is None
    assert summary["shares"] == {
        "fetch": 1.0,
        "copy": None,
        "compute": None,
        "allreduce": None,
        "checkpoint": None,
        "other": 0.0,
        "between_epochs": 0.0,
    }
    assert summary["step"]["allreduce_s"] is None
    assert summary["step"]["fetch_s"]["mean"] == pytest.approx(0.010)
    assert summary["checkpoints"] == {"measured": 0, "duration_s": None}
    assert summary["eval"]["samples_per_s"] is None


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([], "the run ended before its first step"),
        ([(1, 1, WARMUP, 0, 5, 10, 10, 0, 0)], "all 1 training step.* lower train.warmup_steps"),
    ],
)
def test_nothing_measured_says_why(rows: list[tuple[float, ...]], why: str) -> None:

    summary = summarise([steps(*rows)], config=FULL)
    assert re.match(why, summary["train"]["why"])
    assert summary["au"]["why"] == summary["train"]["why"]
    assert summary["train"]["samples_per_s"] is None
    assert summary["au"]["mean"] is None
    assert set(summary["shares"].values()) == {None}
    assert set(summary["step"].values()) == {None}
    assert summary["ranks"][0]["fetch_s"] is None
    json.dumps(summary, allow_nan=False)


def test_device_share_is_known_only_if_every_rank_knows() -> None:
    known = {"rchar": 1000, "read_bytes": 300, "from_device": 250, "cached_share": 0.5}
    io = summarise([EXAMPLE, EXAMPLE], config=FULL, extra={"io": [known, known | {"cached_share": None}]})["io"]
    assert io["device_read_share"] == 0.25
    assert (io["rchar_bytes"], io["read_bytes"], io["cached_share_before"]) == (2000, 600, 0.5)
    for other in (None, {"rchar": 1000, "read_bytes": None, "from_device": None}):
        io = summarise([EXAMPLE, EXAMPLE], config=FULL, extra={"io": [known, other]})["io"]
        assert io["device_read_share"] is None
        assert io["read_bytes"] is None
    assert summarise([EXAMPLE], config=FULL)["io"]["device_read_share"] is None
    nothing = summarise([EXAMPLE], config=FULL, extra={"io": [{"rchar": 1000, "read_bytes": 0, "from_device": 0}]})[
        "io"
    ]
    assert nothing["device_read_share"] == 0.0  # measured, and nothing came from the device


def test_other_figures_are_passed_through() -> None:
    assert summarise([EXAMPLE], config=FULL, extra={"restore": {"bytes": 5}})["restore"] == {"bytes": 5}


@st.composite
def logs(draw: st.DrawFn) -> Steps:
    """Any run: epochs with evaluations, warm-up first, time between and inside steps."""
    rows: list[tuple[int, ...]] = []
    now = draw(st.integers(0, 10**15))
    time = st.integers(0, 10**9)
    warmup = draw(st.integers(0, 4))
    for epoch in range(1, draw(st.integers(1, 3)) + 1):
        loops = [(TRAIN, draw(st.integers(1, 5)))] + [(EVAL, 2)] * draw(st.booleans())
        for phase, count in loops:
            now += draw(time)
            for step in range(1, count + 1):
                kind = WARMUP if phase == TRAIN and epoch == 1 and step <= warmup else phase
                fetch, copy, compute, requested, reduce, save = (draw(time) for _ in range(6))
                rows.append((epoch, step, kind, now, fetch, copy, compute + 1, requested, reduce, save, 1, 10))
                now += fetch + copy + compute + 1 + reduce + save + draw(time)
    return np.array(rows, dtype=STEP_DTYPE)


@given(st.lists(logs(), min_size=1, max_size=3))
def test_shares_add_up_to_one(runs: list[Steps]) -> None:
    summary = summarise(runs, config=FULL)
    json.dumps(summary, allow_nan=False)
    if summary["train"]["why"]:
        assert set(summary["shares"].values()) == {None}
        return
    assert set(summary["shares"]) == set(SHARES)
    known = {name: share for name, share in summary["shares"].items() if share is not None}
    assert set(SHARES) - set(known) <= {"other"}  # where no step follows another one, it is not seen
    assert math.isclose(sum(known.values()), 1.0, rel_tol=1e-9)
    assert all(share >= 0 for share in known.values())
    for part in PARTS:
        if part == "other" and part not in known:
            assert summary["step"]["other_s"] is None
            continue
        stats = summary["step"][f"{part}_s"]
        assert 0 <= stats["median"] <= stats["p95"] <= stats["max"]
    for row in summary["ranks"]:
        if row["steps"]:
            spent = sum(row[f"{part}_s"] for part in PARTS if part != "other") * row["steps"]
            assert spent <= row["elapsed_s"] * (1 + 1e-9)


def test_copies_to_a_gpu_are_a_part_of_the_step_with_a_rate() -> None:
    rows = steps(*((1, i + 1, TRAIN, 20 * i, 4, 10, 10, 0, 0) for i in range(4))).copy()
    rows["copy_ns"] = np.array([2, 4, 0, 2]) * MS  # the third step uses the batch of the second
    rows["bytes"] = np.array([6, 6, 6, 12]) * 10**6
    summary = summarise([rows, rows], config=FULL)
    assert summary["copies"]["bytes_per_s"] == pytest.approx(24e6 / 8e-3)
    assert summary["copies"]["duration_s"]["median"] == pytest.approx(2e-3)
    assert summary["shares"]["copy"] == pytest.approx(8 / 76)  # the last step takes 16 ms
    assert summary["step"]["copy_s"]["max"] == pytest.approx(4e-3)
    assert summarise([EXAMPLE], config=FULL)["copies"] is None


# --- the log ----------------------------------------------------------------------------------------


def fill(log: StepLog, rows: Steps) -> None:
    for row in rows:
        named = dict(zip(STEP_DTYPE.names or (), row.item(), strict=True))
        log.append(named.pop("epoch"), named.pop("step"), named.pop("phase"), **named)


def test_csv_keeps_every_digit(tmp_path: Path) -> None:
    rows = EXAMPLE.copy()
    rows["start_ns"] += 9_007_199_254_740_993  # 104 days: beyond what a float holds exactly
    log = StepLog(tmp_path / "steps.csv", rank=3)
    fill(log, rows)
    np.testing.assert_array_equal(log.to_array(), rows)
    log.close()
    log.close()
    assert [path.name for path in tmp_path.iterdir()] == ["steps.csv"]
    lines = (tmp_path / "steps.csv").read_text().splitlines()
    assert lines[0] == (
        "rank,epoch,step,phase,start_s,fetch_s,copy_s,compute_s,requested_s,allreduce_s,checkpoint_s,samples,bytes"
    )
    assert lines[1].startswith("3,1,1,warmup,9007199.254740993,0.005000000,0.000000000,0.010000000,")
    assert [line.split(",")[3] for line in lines[1:]] == ["warmup", "train", "train", "eval", "eval", "train", "train"]
    [(rank, read)] = read_steps(tmp_path / "steps.csv").items()
    assert rank == 3
    np.testing.assert_array_equal(read, rows)


def test_ranks_share_a_file(tmp_path: Path) -> None:
    write_steps(tmp_path / "steps.csv", {1: EXAMPLE[:2], 0: EXAMPLE})
    read = read_steps(tmp_path / "steps.csv")
    assert list(read) == [0, 1]
    np.testing.assert_array_equal(read[0], EXAMPLE)
    np.testing.assert_array_equal(read[1], EXAMPLE[:2])


def test_flush_waits_for_its_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10**12]
    monkeypatch.setattr("dlio_torch.train.steps.time.perf_counter_ns", lambda: now[0])
    log = StepLog(tmp_path / "steps.csv")
    empty = journal_of(tmp_path / "steps.csv").stat().st_size
    fill(log, EXAMPLE)
    log.maybe_flush()
    assert journal_of(tmp_path / "steps.csv").stat().st_size == empty
    now[0] += 10**9
    log.maybe_flush()
    assert journal_of(tmp_path / "steps.csv").stat().st_size == empty + EXAMPLE.nbytes
    log.close()


def test_a_csv_file_of_before_copies_is_read(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    path.write_text(
        "rank,epoch,step,phase,start_s,fetch_s,compute_s,requested_s,allreduce_s,checkpoint_s,samples,bytes\n"
        "1,1,2,train,5.0,0.25,0.5,0.5,0.0,0.125,4,100\n"
    )
    (row,) = read_steps(path)[1]
    assert row["copy_ns"] == 0
    assert (row["fetch_ns"], row["compute_ns"], row["checkpoint_ns"]) == (250 * MS, 500 * MS, 125 * MS)


KILLED = """
import os, signal, sys
from dlio_torch.train.steps import StepLog
log = StepLog(sys.argv[1], rank=2)
for step in range(1, 8):
    log.append(1, step, 1, start_ns=step, fetch_ns=1, copy_ns=0, compute_ns=2, requested_ns=2, allreduce_ns=0,
               checkpoint_ns=0, samples=4, bytes=100)
    if step == 5:
        log.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_run_keeps_what_it_had(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    read = read_steps(path)
    assert read[2]["step"].tolist() == [1, 2, 3, 4, 5]
    os.truncate(journal_of(path), journal_of(path).stat().st_size - 10)
    assert read_steps(path)[2]["step"].tolist() == [1, 2, 3, 4]
    os.truncate(journal_of(path), 0)  # made, and not yet begun
    assert read_steps(path) == {}


def test_a_line_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    write_steps(tmp_path / "steps.csv", {0: EXAMPLE})
    os.truncate(tmp_path / "steps.csv", (tmp_path / "steps.csv").stat().st_size - 5)
    np.testing.assert_array_equal(read_steps(tmp_path / "steps.csv")[0], EXAMPLE[:-1])


@pytest.mark.parametrize("content", ["a,b\n1,2\n", "", "garbage"])
def test_a_damaged_file_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "steps.csv").write_text(content)
    with pytest.raises(DataError, match=r"steps\.csv is damaged"):
        read_steps(tmp_path / "steps.csv")


def test_damaged_values_and_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"steps\.csv cannot be read"):
        read_steps(tmp_path / "steps.csv")
    write_steps(tmp_path / "steps.csv", {0: EXAMPLE})
    text = (tmp_path / "steps.csv").read_text()
    (tmp_path / "steps.csv").write_text(text.replace("train", "tram"))
    with pytest.raises(DataError, match=r"steps\.csv is damaged"):
        read_steps(tmp_path / "steps.csv")
    journal_of(tmp_path / "other.csv").write_bytes(b"garbage that is long enough")
    with pytest.raises(DataError, match=r"other\.csv\.journal is damaged: the file is not a journal"):
        read_steps(tmp_path / "other.csv")


def test_a_full_device_is_named_and_steps_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal_of(tmp_path / "steps.csv").symlink_to("/dev/full")
    log = StepLog(tmp_path / "steps.csv")
    for step in (1, 2):
        log.append(
            1, step, TRAIN, start_ns=step, fetch_ns=0, copy_ns=0, compute_ns=1, requested_ns=1, allreduce_ns=0,
            checkpoint_ns=0, samples=4, bytes=10,
        )  # fmt: skip
        log.flush()
    said = capsys.readouterr().err
    assert re.search(r"steps\.csv: No space left .*the run continues", said)
    assert len(said.splitlines()) == 1
    log.close()
    assert read_steps(tmp_path / "steps.csv")[0]["step"].tolist() == [1, 2]
