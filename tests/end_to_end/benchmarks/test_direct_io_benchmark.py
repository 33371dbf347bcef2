"""The benchmark of direct reads: every way is measured or left out with a reason, and compared with its fio."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import direct_io
from benchmarks.harness import command
from dlio_torch.storage.local import raw_readers

WAYS = (
    "fio, psync", "fio, io_uring", "limit, threads", "limit, io_uring", "decoupled, threads", "decoupled, io_uring",
)  # fmt: skip


def measured(folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    arguments = ["--quick", "--bytes", "1000000", "--output", str(folder), "--directory", str(folder)]
    assert command.main(["direct_io", *arguments]) == 0
    record = json.loads((folder / "direct_io.json").read_text(encoding="utf-8"))
    rows = {row["way"]: row for table in record["tables"].values() for row in table}
    return rows, {way["way"]: way["why"] for way in record["missing"]}


def test_every_way_is_measured_or_left_out_with_a_reason(tmp_path: Path) -> None:
    rows, missing = measured(tmp_path)
    if "the decoupled engine" in missing:
        pytest.skip(missing["the decoupled engine"])
    assert sorted([*rows, *missing]) == sorted(WAYS)
    assert all(row["MB/s"][0] > 0 and row["sample (bytes)"] == 40000 for row in rows.values())
    for name, row in rows.items():
        assert row["in flight per thread"] == (direct_io.DEPTH if "io_uring" in name else 1)
        assert (row["of fio"] is None) == ("fio, psync" in missing)
        assert row["of the limit"][0] > 0


def test_without_fio_and_io_uring_the_others_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_io, "fio_version", lambda: None)
    monkeypatch.setattr(direct_io, "refused_uring", lambda loader: "a test" if loader.io == "io_uring" else None)
    rows, missing = measured(tmp_path)
    if "the decoupled engine" in missing:
        pytest.skip(missing["the decoupled engine"])
    assert list(rows) == ["limit, threads", "decoupled, threads"]
    assert rows["decoupled, threads"]["of fio"] is None
    refused = dict.fromkeys(("limit, io_uring", "decoupled, io_uring"), "a test")
    assert missing == {**dict.fromkeys(WAYS[:2], "fio is not installed"), **refused}


@pytest.mark.needs("fio")
def test_fio_reads_by_the_engine_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1 << 20))
    path = str(tmp_path / "file")
    reading = raw_readers.read_with_fio(path, "random", "warm", 4096, 1, 1 << 20, 0.05, engine=["sync"])
    assert reading.calls > 0
    with pytest.raises(OSError, match="fio failed"):
        raw_readers.read_with_fio(path, "random", "warm", 4096, 1, 1 << 20, 0.05, engine=["nonesuch"])
