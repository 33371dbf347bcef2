"""The analysis of the real Cosmic Tagger's log (8 ranks on Theta), against what is known of it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from real_data import real_input

from dlio_torch.analysis.run_recording import open_recording
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.figures import access_order, bandwidth, counter_sums, io_metrics, io_tables
from dlio_torch.iotrace.figures.call_selection import data_only

GIB = 2**30
TRAINING = "*/cosmic_tagging_train.h5"
# The published figures leave out Python's own files and the terminal.
NO_DATA = ("*py*", "<STDERR>", "<STDOUT>")


@pytest.fixture(scope="module")
def log() -> Recording:
    if importlib.util.find_spec("darshan") is None:
        pytest.skip("pydarshan is not installed")
    return open_recording(real_input("cosmic_tagger_8ranks.darshan"))


@pytest.fixture(scope="module")
def data(log: Recording) -> pd.DataFrame:
    return io_metrics.select(log, exclude=NO_DATA)


def test_volume(log: Recording, data: pd.DataFrame) -> None:
    assert len(io_metrics.select(log)) == 313_872
    assert data["file"].nunique() == 21
    assert log.counters is not None
    files = io_tables.files(log)
    stdio = files[(files["layer"] == "stdio") & ~io_metrics.matching(files["file"].tolist(), NO_DATA)]
    posix_gib = io_metrics.transfer_sizes(data).bytes / GIB
    stdio_gib = int((stdio["bytes_read"] + stdio["bytes_written"]).sum()) / GIB
    assert (round(posix_gib, 3), round(stdio_gib, 3), round(posix_gib + stdio_gib, 2)) == (1.508, 0.931, 2.44)


def test_transfer_sizes(log: Recording, data: pd.DataFrame) -> None:
    sizes = io_metrics.transfer_sizes(data)
    assert (sizes.min, sizes.max, sizes.median) == (0, 6_553_600, 2529)
    assert sizes.mean == pytest.approx(5170, abs=0.5)
    training = io_metrics.sizes_by_class(io_metrics.select(log, files=TRAINING))
    assert (training["read"].count, training["write"].count) == (302_771, 0)
    assert training["read"].mean == pytest.approx(4179, abs=0.5)
    assert training["read"].median == 2530


def test_order(log: Recording, data: pd.DataFrame) -> None:
    for frame, sequential, consecutive in (
        (data, 95.71, 88.18),
        (io_metrics.select(log, files=TRAINING), 95.77, 88.31),
    ):
        found = access_order.shares(frame)["all"]
        assert (round(100 * found.sequential, 2), round(100 * found.consecutive, 2)) == (sequential, consecutive)


def test_darshan_counted_the_same(log: Recording) -> None:
    """Darshan's runtime counts in other ways, while the program runs: sums of all files, and sizes by class."""
    assert log.counters is not None
    counted = counter_sums.by_layer(log.counters)["posix"]
    found = access_order.follow(io_metrics.select(log)).groupby("class")[["sequential", "consecutive"]].sum()
    for name in ("sequential", "consecutive"):
        assert [found.loc[kind, name] for kind in ("read", "write")] == [
            counted[f"{name}_reads"],
            counted[f"{name}_writes"],
        ]
    sizes = io_metrics.sizes_by_class(io_metrics.select(log))
    assert (sizes["read"].count, sizes["write"].count) == (counted["reads"], counted["writes"])
    assert (sizes["read"].bytes, sizes["write"].bytes) == (counted["bytes_read"], counted["bytes_written"])


def test_time(data: pd.DataFrame) -> None:
    time = io_metrics.io_time(data, ranks=8)
    assert time.mean_per_rank_s == pytest.approx(16.12, abs=0.005)
    assert time.global_s == pytest.approx(104.57, abs=0.005)
    # VaniDL's figure, from stamps of four decimals of which a difference of 0 counts as 1 ms.
    ticks = np.rint(data["end_ns"].to_numpy() / 1e5) - np.rint(data["start_ns"].to_numpy() / 1e5)
    assert np.where(ticks == 0, 1e-3, ticks * 1e-4).sum() / 8 == pytest.approx(46.40, abs=0.005)


def test_program_files_are_left_out_of_reports(log: Recording) -> None:
    """The rule of ``compare``, without patterns for this log, gives the published figures."""
    found = io_metrics.analyse(data_only(log), top_files=5)
    files, io = found["files"], found["io"]
    assert (files["count"], files["rows_in_all"], files["rows_given"], len(files["rows"])) == (47, 63, 5, 5)
    assert "632 calls on 237 program files (Python modules, libraries, ...) are left out" in found["source"]["notes"]
    shares = io["shares"]["process"]["all"]
    assert (round(100 * shares["sequential"], 2), round(100 * shares["consecutive"], 2)) == (95.71, 88.18)
    assert io["sizes"]["all"]["mean"] == pytest.approx(5170, abs=0.5)
    assert io["io_time"]["global_s"] == pytest.approx(104.57, abs=0.005)
    assert io["io_time"]["mean_per_rank_s"] == pytest.approx(16.12, abs=0.005)
    assert data_only(data_only(log)).notes == tuple(found["source"]["notes"])


def test_nothing_is_lost_on_the_way(log: Recording) -> None:
    found = io_metrics.analyse(log)
    moved = found["counters"]["posix"]["bytes_read"]
    assert sum(found["over_time"]["read_bytes"]) == pytest.approx(moved, rel=1e-12)
    assert sum(row["bytes_read"] for row in found["ranks"]) == moved
    assert found["files"]["count"] == 284
    assert io_tables.files(log).loc[0, "opens"] == 16  # of the training file, known from the counters only
    assert bandwidth.over_time(io_metrics.select(log), 50)["busy"].max() <= 1
    assert Path(found["source"]["path"]).name == "cosmic_tagger_8ranks.darshan"
