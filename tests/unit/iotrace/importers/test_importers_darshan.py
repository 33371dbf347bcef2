"""Darshan logs become recordings; published figures of real ones come out of them exactly."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from real_data import real_input

from dlio_torch.errors import DataError, MissingPackageError
from dlio_torch.iotrace.events.event_table import COLUMNS
from dlio_torch.iotrace.events.recording import COUNTERS, Recording
from dlio_torch.iotrace.importers.darshan import read_darshan

TRAIN = "cosmic_tagging_train.h5"
GIB = 1 << 30


def example(name: str) -> Path:
    """A log that the package which reads logs brings along."""
    found = importlib.util.find_spec("darshan")
    if found is None or found.origin is None:
        pytest.skip("pydarshan is not installed")
    path = Path(found.origin).parent / "examples" / "example_logs" / name
    if not path.is_file():
        pytest.skip(f"this pydarshan does not bring {name}")
    return path


@pytest.fixture(scope="module")
def cosmic() -> Recording:
    return read_darshan(real_input("cosmic_tagger_8ranks.darshan"))


def without_python(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of the files that VaniDL counts."""
    left_out = table["file"].astype(str).str.contains("py|<STD", regex=True)
    return table[~left_out]


def accesses(frame: pd.DataFrame) -> tuple[int, int]:
    """Sequential and consecutive accesses as Darshan counts them."""
    ends = frame["offset"] + frame["bytes"]
    # The last byte is 0 before the first access.
    reached = ends.groupby([frame["rank"], frame["file"], frame["op"]], observed=True).shift(fill_value=1)
    return int((frame["offset"] >= reached).sum()), int((frame["offset"] == reached).sum())


def test_the_cosmic_tagger_has_its_published_figures(cosmic: Recording) -> None:
    assert cosmic.kind == "darshan"
    assert cosmic.sees == {"read", "write"}
    assert (cosmic.world_size, cosmic.runtime_s, len(cosmic.events.frame)) == (8, 988.0, 313_872)
    frame = without_python(cosmic.io)
    assert frame["file"].nunique() == 21
    assert cosmic.counters is not None
    counters = without_python(cosmic.counters)
    moved = (counters["bytes_read"] + counters["bytes_written"]).groupby(counters["layer"], observed=True).sum()
    assert round(moved["posix"] / GIB, 3) == 1.508
    assert round(moved["stdio"] / GIB, 3) == 0.931
    assert round(moved.sum() / GIB, 2) == 2.44
    sizes = frame["bytes"]
    assert sizes.sum() == moved["posix"]
    assert (sizes.min(), sizes.max(), round(sizes.mean()), sizes.median()) == (0, 6_553_600, 5170, 2529)
    sequential, consecutive = accesses(frame)
    assert (sequential, consecutive) == (299_795, 276_221)
    assert round(100 * sequential / len(frame), 2) == 95.71
    assert round(100 * consecutive / len(frame), 2) == 88.18
    posix = counters[counters["layer"] == "posix"]
    assert posix[["sequential_reads", "sequential_writes"]].sum().sum() == sequential
    assert posix[["consecutive_reads", "consecutive_writes"]].sum().sum() == consecutive


def test_its_training_file_has_its_published_figures(cosmic: Recording) -> None:
    frame = cosmic.io[cosmic.io["file"].astype(str).str.endswith(TRAIN)]
    assert len(frame) == 302_771
    assert set(frame["op"]) == {"read"}
    assert (round(frame["bytes"].mean()), frame["bytes"].median()) == (4179, 2530)
    sequential, consecutive = accesses(frame)
    assert round(100 * sequential / len(frame), 2) == 95.77
    assert round(100 * consecutive / len(frame), 2) == 88.31


def test_its_times_have_their_published_sums(cosmic: Recording) -> None:
    frame = without_python(cosmic.io)
    start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
    assert round(float((end - start).sum()) / 8e9, 2) == 16.12
    # VaniDL: stamps of four decimals, and 1 ms where they are equal.
    ticks = np.rint(end / 1e5) - np.rint(start / 1e5)
    assert round(float(np.where(ticks == 0, 1e-3, ticks * 1e-4).sum()) / 8, 2) == 46.40
    order = np.argsort(start)
    reached = np.maximum.accumulate(end[order])
    gaps = np.maximum(start[order][1:] - reached[:-1], 0).sum()
    assert round(float(reached[-1] - start[order][0] - gaps) / 1e9, 2) == 104.57


def test_its_table_is_one_of_events(cosmic: Recording) -> None:
    frame = cosmic.events.frame
    assert tuple(frame.columns) == COLUMNS
    assert frame["start_ns"].is_monotonic_increasing
    assert sorted(frame["rank"].unique()) == list(range(8))
    assert {*frame["pid"], *frame["tid"], *frame["step"]} == {-1}
    assert set(frame["layer"]) == {"posix"}
    # Stamps are rounded to the nearest nanosecond of what the log holds (0.04185414 s).
    assert 41_854_143 in frame["start_ns"].to_numpy()
    assert cosmic.events.anchor_time_ns == 1_591_845_934 * 10**9
    assert [process.rank for process in cosmic.events.processes] == list(range(8))
    assert {process.host for process in cosmic.events.processes} == set(cosmic.facts["hosts"])
    assert any("STDIO" in note for note in cosmic.notes)


def test_a_serial_program_is_read() -> None:
    found = read_darshan(real_input("nonmpi_dxt.darshan"))
    assert len(found.events.frame) == 17_652
    assert found.world_size == 1
    assert found.events.frame["op"].value_counts().to_dict() == {"write": 9830, "read": 7822}


def test_a_log_without_dxt_has_counters_only() -> None:
    found = read_darshan(real_input("dlio_unet3d_counters.darshan"))
    assert len(found.events.frame) == 0
    assert tuple(found.events.frame.columns) == COLUMNS
    assert found.sees == frozenset()
    assert found.counters is not None
    posix = found.counters[found.counters["layer"] == "posix"]
    assert (posix["reads"].sum(), posix["opens"].sum()) == (3038, 100)
    assert found.runtime_s == pytest.approx(135.2836)
    assert "counters only" in found.notes[0]


def test_a_log_that_ran_out_of_memory_is_refused() -> None:
    with pytest.raises(DataError, match=r"DXT_POSIX and DXT_MPIIO ran out of memory.*DARSHAN_MODMEM") as caught:
        read_darshan(real_input("partial_dxt.darshan"))
    assert caught.value.exit_code == 3


def test_mpiio_is_a_layer_of_its_own() -> None:
    found = read_darshan(example("ior_hdf5_example.darshan"))
    frame = found.events.frame
    counts = frame.groupby(["layer", "op"], observed=True).size().to_dict()
    assert found.counters is not None
    assert tuple(found.counters.columns) == COUNTERS
    counters = found.counters.groupby("layer", observed=True)[["reads", "writes"]].sum()
    assert counts["posix", "read"] == counters.loc["posix", "reads"]
    assert counts["mpiio", "file_write"] == counters.loc["mpiio", "writes"] > 0
    mpiio = found.counters[found.counters["layer"] == "mpiio"]
    assert set(mpiio["seeks"]) == set(mpiio["sequential_reads"]) == {-1}
    written = frame[(frame["layer"] == "mpiio") & (frame["op"] == "file_write")]
    assert written["bytes"].sum() == mpiio["bytes_written"].sum()
    assert sorted(written["rank"].unique()) == [0, 1, 2, 3]


@pytest.mark.parametrize("kept", [16, 700, 0.3, 0.999])
def test_a_log_that_is_cut_off_is_an_error(kept: float, tmp_path: Path) -> None:
    whole = example("ior_hdf5_example.darshan").read_bytes()
    path = tmp_path / "cut.darshan"
    path.write_bytes(whole[: int(kept * len(whole)) if kept < 1 else int(kept)])
    with pytest.raises(DataError, match=r"cut\.darshan is damaged or cut off") as caught:
        read_darshan(path)
    assert "\n" not in str(caught.value)


def test_a_damaged_log_is_an_error(tmp_path: Path) -> None:
    whole = bytearray(example("ior_hdf5_example.darshan").read_bytes())
    # The job, the names and the records are compressed one after the other behind the header.
    for at in (1500, 1600, 1700, len(whole) // 2, len(whole) - 200):
        whole[at] ^= 0x55
    path = tmp_path / "damaged.darshan"
    path.write_bytes(whole)
    with pytest.raises(DataError, match=r"damaged\.darshan"):
        read_darshan(path)


def test_the_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"pip install 'dlio-torch\[logs\]'"):
        read_darshan(tmp_path / "any.darshan")
