"""What the storage gives at the most: measured with and without fio, kept for a day, and what a run says of it."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dlio_torch.analysis.cache import cache_summary, from_device, share_of, uncached_bytes
from dlio_torch.analysis.storage_share import against_limit
from dlio_torch.config.schema import AccessConfig, CacheConfig, Config, DatasetConfig, LoaderConfig, StorageConfig
from dlio_torch.errors import PreconditionError
from dlio_torch.formats.indexed_binary.options import BinaryConfig
from dlio_torch.iotrace.recorder.io_counters import IoCounters
from dlio_torch.report.cache_text import epochs_text, prepared_line, storage_text
from dlio_torch.storage.cache_state import CachePreparation, DataSize
from dlio_torch.storage.local import device_limits, stored_limits
from dlio_torch.storage.local.device_limits import Limit, ReadWorkload, measure
from dlio_torch.storage.local.eviction import evict
from dlio_torch.storage.local.page_cache import cached_share
from dlio_torch.storage.local.raw_readers import fio_version, parse_fio

MIB = 1 << 20
SMALL: dict[str, Any] = {"seconds": 0.05, "size_bytes": 8 * MIB}
COLD = ReadWorkload("sequential", "cold", 1 << 18, 2)
WARM = ReadWorkload("random", "warm", 4096, 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "trial"
    path.write_bytes(os.urandom(MIB))
    evict(path)
    if cached_share(path) != 0.0:
        pytest.skip("this file system does not tell what is cached, or keeps everything in memory")
    path.unlink()
    return tmp_path


def without_fio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_limits, "fio_version", lambda: None)


def check(found: list[Limit], folder: Path) -> None:
    assert [limit.request for limit in found] == [COLD, WARM, ReadWorkload("random", "direct", 1 << 16, 2)]
    for limit in found:
        assert limit.bytes_per_s > MIB
        assert limit.bytes_per_s / limit.calls_per_s == pytest.approx(limit.request.request_bytes, rel=0.05)
        assert limit.seconds < 5
    assert list(folder.iterdir()) == []


@pytest.mark.needs("fio")
def test_fio_measures(folder: Path) -> None:
    found = measure(folder, [COLD, WARM, ReadWorkload("random", "direct", 1 << 16, 2)], **SMALL)
    check(found, folder)
    assert all(limit.reader.startswith("fio-") for limit in found)
    assert str(found[0]).endswith(": sequential reads of 256 KiB by 2 threads, evicted before")


def test_own_reader_measures(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_fio(monkeypatch)
    found = measure(folder, [COLD, WARM, ReadWorkload("random", "direct", 1 << 16, 2)], **SMALL)
    check(found, folder)
    assert {limit.reader for limit in found} == {"own reader"}


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'fio: no such engine' >&2; exit 1", "fio failed: fio: no such engine"),
        ("echo nonsense", "the output of fio cannot be parsed"),
        ("""echo '{"jobs": [{"error": 0, "read": {"io_bytes": 0, "total_ios": 0, "runtime": 0}}]}'""", "read no bytes"),
    ],
)
def test_a_fio_that_fails_is_replaced(
    script: str, why: str, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    program = tmp_path_factory.mktemp("bin") / "fio"
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo fio-9 && exit\n{script}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    fio_version.cache_clear()
    try:
        found = measure(folder, [WARM], **SMALL)[0]
    finally:
        fio_version.cache_clear()
    assert found.reader.startswith("own reader (")
    assert why in found.reader
    assert found.bytes_per_s > MIB


def test_fio_s_answer_is_summed_over_jobs_behind_its_messages() -> None:
    job = {"error": 0, "read": {"io_bytes": 3000, "total_ios": 3, "runtime": 500}}
    text = "fio: a note\n" + json.dumps({"fio version": "fio-3.33", "jobs": [job, job]})
    found = parse_fio(text)
    assert (found.bytes, found.calls, found.seconds) == (6000, 6, 0.5)
    with pytest.raises(OSError, match="No space"):
        parse_fio(json.dumps({"jobs": [job | {"error": 28}]}))


@pytest.mark.parametrize(
    ("size", "threads", "rounded"),
    [(0, 0, (4096, 1)), (5000, 3, (4096, 4)), (100_000, 5, (131072, 4)), (1 << 30, 1000, (16 * MIB, 64))],
)
def test_requests_are_rounded_to_powers_of_two(size: int, threads: int, rounded: tuple[int, int]) -> None:
    made = ReadWorkload.like("random", "cold", size, threads)
    assert (made.request_bytes, made.threads) == rounded


def test_limits_are_kept_for_a_day_and_measured_anew_on_demand(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    asked: list[ReadWorkload] = []
    now = datetime.now(UTC)

    def measured(_: Path, requests: list[ReadWorkload], **__: Any) -> list[Limit]:
        asked.extend(requests)
        return [Limit(one, 100.0 * len(asked), 1.0, 0.1, "test", now.isoformat()) for one in requests]

    monkeypatch.setattr(stored_limits, "measure", measured)
    cache = tmp_path_factory.mktemp("cache") / "new"
    first = stored_limits.load_or_measure(folder, [COLD], cache=cache)
    assert stored_limits.load_or_measure(folder, [COLD, WARM, COLD], cache=cache)[::2] == first * 2
    assert asked == [COLD, WARM]
    assert set(stored_limits.stored(folder, cache)) == {COLD, WARM}
    assert stored_limits.stored(folder.parent, cache) == {}  # of this folder alone
    again = stored_limits.load_or_measure(folder, [COLD], cache=cache, force=True)
    assert again[0].bytes_per_s == 300
    assert stored_limits.stored(folder, cache)[COLD] == again[0]
    record = next(cache.iterdir())
    old = (now - timedelta(days=1, seconds=1)).isoformat()
    record.write_text(record.read_text().replace(now.isoformat(), old))
    assert stored_limits.stored(folder, cache) == {}
    record.write_text('{"schema": 1, "limits": [{}]}')
    assert stored_limits.stored(folder, cache) == {}


def test_what_cannot_be_measured_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PreconditionError, match="is too small"):
        measure(folder, [ReadWorkload("sequential", "warm", 16 * MIB, 64)], **SMALL)
    with pytest.raises(PreconditionError, match="No such file"):
        measure(folder / "none", [WARM], **SMALL)
    monkeypatch.setattr(device_limits, "cached_share", lambda _: 1.0)
    with pytest.raises(PreconditionError, match="cannot be measured cold"):
        measure(folder, [COLD], **SMALL)
    assert list(folder.iterdir()) == []


# --- what a run says ---

SIZE = DataSize(4, 4 * MIB, 64 * MIB)
DISK = {"device": "/dev/vda", "file_system": "ext4"}
SHARE = {"device": "server:/export", "file_system": "nfs4"}
REACHED = CachePreparation(1, 1, 0.1, 1.0, 0.0, True, None)
ROW = Config(dataset=DatasetConfig(samples_per_file=1), cache=CacheConfig(state="as_is"))


def epoch(number: int, asked: int, delivered: int) -> dict[str, Any]:
    io = IoCounters(rchar=asked, wchar=0, syscr=1, syscw=0, read_bytes=delivered, write_bytes=0)
    return {"epoch": number, "seconds": 2.0, "io": asdict(io)}


def cache_of(
    config: Config,
    prepared: CachePreparation,
    *epochs: dict[str, Any],
    mount: dict[str, str] = DISK,
    size: DataSize = SIZE,
) -> dict[str, Any]:
    return cache_summary(config, config.cache_goal, size, [prepared], [list(epochs), list(epochs)], mount)


def cold(**options: Any) -> Config:
    return replace(ROW, cache=CacheConfig(state="cold", **options))


ONCE = epoch(1, 2 * MIB, 2 * MIB)
FITS = "the data (4 MiB) fit into the 64 MiB that the page cache can use"


@pytest.mark.parametrize(
    ("config", "prepared", "epochs", "mount", "begins"),
    [
        (cold(), REACHED, [ONCE], DISK, []),
        (cold(), replace(REACHED, cached_share=0.4, reached=False, why="x is mapped by y (7)"), [ONCE], DISK,
         ["cache=cold was not reached: 40 % of the data were in the page cache when epoch 1 began; "
          "x is mapped by y (7)"]),
        (cold(), replace(REACHED, cached_share=None, reached=None, why="nobody tells"), [ONCE], SHARE,
         ["cache=cold was prepared, but cannot be checked: nobody tells", "the nfs4 file system does not report"]),
        (cold(), REACHED, [epoch(1, 2 * MIB, 1000)], DISK,
         ["cache=cold, but the device delivered only 0 % of the 4 MiB"]),
        (cold(), REACHED, [ONCE, epoch(2, 2 * MIB, 0), epoch(3, 2 * MIB, 0)], DISK,
         [f"{FITS}, and the device delivered 33 % of the bytes read and memory the rest: the result shows the storage "
          "only in part; to measure the storage, set cache.every_epoch=true"]),
        (replace(ROW, cache=CacheConfig()), replace(REACHED, cached_share=None, reached=None, why="nobody tells"),
         [ONCE], DISK, ["cache=auto (cold) was prepared, but cannot be checked: nobody tells"]),
        (ROW, REACHED, [epoch(1, 2 * MIB, 0)], DISK,
         [f"{FITS}, and the device delivered 0 % of the bytes read: the result shows memory; to measure"]),
        (ROW, REACHED, [epoch(1, 2 * MIB, 99 * MIB // 1000)], DISK,
         [f"{FITS}, and the device delivered 5 % of the bytes read: the result shows memory; to measure"]),
        (ROW, REACHED, [epoch(1, 2 * MIB, 104 * MIB // 1000)], DISK,
         [f"{FITS}, and the device delivered 5 % of the bytes read and memory the rest: the result shows the storage"]),
        (ROW, REACHED, [epoch(1, 2 * MIB, 1799 * MIB // 1000)], DISK,
         [f"{FITS}, and the device delivered 90 % of the bytes read and memory the rest: the result shows the"]),
        (ROW, REACHED, [epoch(1, 2 * MIB, 1801 * MIB // 1000)], DISK, []),
        # What was read ahead in one epoch does not make up for what memory gave in the other.
        (ROW, REACHED, [epoch(1, 2 * MIB, 4 * MIB), epoch(2, 2 * MIB, 0)], DISK,
         [f"{FITS}, and the device delivered 50 % of the bytes read and memory the rest: the result shows the"]),
        (ROW, REACHED, [ONCE], DISK, []),
        (ROW, REACHED, [epoch(1, 2 * MIB, 0)], SHARE,
         ["the nfs4 file system", f"{FITS}, and the device's share of the bytes read is not known: the result may"]),
        (ROW, REACHED, [epoch(1, 2 * MIB, 0)], {"device": "tmpfs", "file_system": "tmpfs"}, ["tmpfs keeps its files"]),
        (replace(ROW, cache=CacheConfig(state="warm")), REACHED, [epoch(1, 2 * MIB, 0)], DISK, []),
        (replace(ROW, dataset=DatasetConfig(direct_io=True)), REACHED, [epoch(1, 2 * MIB, 0)], DISK, []),
    ],
)  # fmt: skip
def test_warnings_say_what_a_run_did_not_measure(
    config: Config, prepared: CachePreparation, epochs: list[dict[str, Any]], mount: dict[str, str], begins: list[str]
) -> None:
    warnings = cache_of(config, prepared, *epochs, mount=mount)["warnings"]
    assert len(warnings) == len(begins), warnings
    for warning, start in zip(warnings, begins, strict=True):
        assert warning.startswith(start)


def test_more_data_than_memory_is_no_warning() -> None:
    large = replace(SIZE, bytes=65 * MIB)
    found = cache_of(ROW, REACHED, epoch(1, 2 * MIB, 0), size=large)
    assert (found["fits_in_memory"], found["warnings"]) == (False, [])
    assert cache_of(ROW, REACHED, epoch(1, 2 * MIB, 0), size=replace(SIZE, room_bytes=None))["fits_in_memory"] is None


def test_epochs_are_summed_over_ranks() -> None:
    found = cache_of(ROW, REACHED, ONCE, epoch(2, 4 * MIB, MIB))["epochs"]
    assert [one["device_read_share"] for one in found] == [1.0, 0.25]
    assert (found[1]["rchar_bytes"], found[1]["read_bytes"], found[1]["seconds"]) == (8 * MIB, 2 * MIB, 2.0)
    unknown = cache_of(ROW, REACHED, {"epoch": 1, "seconds": 1.0, "io": None})["epochs"][0]
    assert (unknown["rchar_bytes"], unknown["read_bytes"], unknown["device_read_share"]) == (None, None, None)
    text = epochs_text({"epochs": found})
    assert text == "epoch 1: 100.0 % from the device, epoch 2: 25.0 %"
    assert epochs_text({"epochs": found[:1]}) is None


def test_the_device_share_is_of_what_was_asked_for() -> None:
    ahead, memory = IoCounters(100, 0, 1, 0, 130, 0), IoCounters(100, 0, 1, 0, 20, 0)
    assert from_device([(ahead, None), (memory, None)]) == 120
    assert from_device([(ahead, 30), (memory, 30)]) == 50  # the rest of the data was in memory: other pages
    assert from_device([]) == 0
    assert from_device([(ahead, None), (None, None)]) is None
    found = cache_of(ROW, REACHED, epoch(1, 2 * MIB, 3 * MIB), epoch(2, 4 * MIB, MIB), epoch(3, 0, 0))["epochs"]
    assert [one["device_read_share"] for one in found] == [1.0, 0.25, None]
    assert found[0]["read_bytes"] == 6 * MIB  # all that the device delivered
    assert share_of(found) == share_of(found[:2]) == 0.5
    assert share_of(found[2:]) is None


def test_what_was_in_memory_before_did_not_come_from_the_device() -> None:
    """Libraries that are loaded in the first epoch come from the device, too."""
    looked = replace(REACHED, cached_share=0.75)
    found = cache_of(ROW, looked, epoch(1, SIZE.bytes, SIZE.bytes), epoch(2, SIZE.bytes, 0))["epochs"]
    assert [one["device_read_share"] for one in found] == [0.25, 0.0]
    assert uncached_bytes(ROW, SIZE, [looked], 2) == SIZE.bytes // 4
    assert uncached_bytes(ROW, SIZE, [replace(looked, cached_share=None)], 1) is None
    assert uncached_bytes(ROW, SIZE, [], 1) is None
    direct = replace(ROW, dataset=replace(ROW.dataset, direct_io=True))
    assert uncached_bytes(direct, SIZE, [looked], 1) is None  # past the page cache
    copied = replace(ROW, stage=replace(ROW.stage, every_epoch=True))
    assert uncached_bytes(copied, SIZE, [looked], 2) is None  # other files than those that were looked at
    assert (
        uncached_bytes(ROW, replace(SIZE, room_bytes=SIZE.bytes - 1), [looked], 1) is None
    )  # pages may have gone since


def test_the_device_share_of_mapped_files_is_not_known() -> None:
    mapped = replace(ROW, dataset=DatasetConfig(format="indexed_binary", binary=BinaryConfig(access="mmap")))
    found = cache_of(mapped, REACHED, epoch(1, 1000, 2 * MIB))
    assert (found["epochs"][0]["device_read_share"], found["epochs"][0]["read_bytes"]) == (None, 4 * MIB)
    assert found["warnings"][0].startswith(f"{FITS}, and the device's share of the bytes read is not known")


def summary_of(folder: Path, config: Config, *epochs: dict[str, Any], machines: int = 1) -> dict[str, Any]:
    cache = cache_of(config, REACHED, *epochs, size=replace(SIZE, machines=machines))
    asked, delivered = (sum(one[key] for one in cache["epochs"]) for key in ("rchar_bytes", "read_bytes"))
    io = {
        "rchar_bytes": asked,
        "read_bytes": delivered,
        "device_read_share": delivered / asked,
        "cached_share_before": 0,
    }
    return {
        "cache": cache,
        "io": io,
        "world_size": 2,
        "dataset": {"path": str(folder / "data" / "mine"), "layout": None},
        "reads": {"samples": 10, "mean_bytes": 100_000.0},
    }


def stored_at(folder: Path, monkeypatch: pytest.MonkeyPatch, *known: tuple[ReadWorkload, float]) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    now = datetime.now(UTC).isoformat()
    (folder / "data").mkdir()
    monkeypatch.setattr(
        stored_limits,
        "measure",
        lambda _, ones, **__: [Limit(one, dict(known)[one], 1, 1, "fio-9", now) for one in ones],
    )
    stored_limits.load_or_measure(folder / "data", [one for one, _ in known])


def test_a_run_is_a_share_of_the_limit_at_its_own_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = DatasetConfig(root=str(tmp_path / "data"), samples_per_file=8)
    config = Config(dataset=dataset, access=AccessConfig(order="shuffled"), loader=LoaderConfig(num_workers=2))
    like = ReadWorkload("random", "cold", 1 << 17, 4)
    stored_at(tmp_path, monkeypatch, (like, 4.0 * MIB), (ReadWorkload.most("cold"), 16.0 * MIB))
    found = against_limit(summary_of(tmp_path, config, ONCE), config, None)
    assert found["why"] is None
    assert (found["bytes_per_s"], found["limit_bytes_per_s"], found["share"]) == (2 * MIB, 4 * MIB, 0.5)
    assert (found["most_bytes_per_s"], found["share_of_most"]) == (16 * MIB, 0.125)
    assert (found["pattern"], found["cached"], found["request_bytes"], found["threads"]) == (
        "random",
        "cold",
        1 << 17,
        4,
    )
    assert storage_text(found) == (
        "2 MiB/s read on average over the epochs: 50.0 % of the limit 4 MiB/s (fio-9: random reads of 128 KiB by 4 "
        "threads, evicted before), 12.5 % of the largest measured rate 16 MiB/s"
    )


def test_a_run_from_the_page_cache_is_compared_with_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config(dataset=DatasetConfig(root=str(tmp_path / "data")))
    like = ReadWorkload("sequential", "warm", 1 << 12, 2)
    faster, cold = replace(like, threads=4), replace(like, cached="cold")
    stored_at(tmp_path, monkeypatch, (like, 4.0 * MIB), (faster, 16.0 * MIB), (cold, 32.0 * MIB))
    posix = {"io": {"sizes": {"read": {"median": 3000.0}}}}
    found = against_limit(summary_of(tmp_path, config, epoch(1, 2 * MIB, 0)), config, posix)
    assert (found["cached"], found["share"], found["share_of_most"]) == ("warm", 0.5, 0.125)


@pytest.mark.parametrize(
    ("options", "machines", "why"),
    [
        ({"limits": "off"}, 1, "storage.limits=off"),
        ({}, 2, "the ranks run on 2 machines"),
        ({}, 1, "the limit of this folder was not measured in the last 24 hours; set storage.limits=measure"),
        ({"limits": "measure"}, 1, "No such file"),
    ],
)
def test_what_is_not_compared_is_null_and_says_why(
    options: dict[str, Any], machines: int, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = Config(dataset=DatasetConfig(root=str(tmp_path / "none")), storage=StorageConfig(**options))
    found = against_limit(summary_of(tmp_path, config, ONCE, machines=machines), config, None)
    assert (found["share"], found["limit_bytes_per_s"], found["share_of_most"]) == (None, None, None)
    assert why in found["why"]
    assert storage_text(found) == f"not measured: {found['why']}"


def test_a_run_without_files_has_no_share() -> None:
    summary = {"cache": None, "io": {"rchar_bytes": None}}
    assert against_limit(summary, Config(), None)["why"] == "the epochs read no files"


@pytest.mark.parametrize(
    ("prepared", "line"),
    [
        (REACHED, "cache: cold: 4 MiB evicted in 100 ms; 0.0 % of the data are in the page cache"),
        (replace(REACHED, attempts=3, cached_share=0.5, reached=False, why="it is mapped"),
         "cache: cold: 4 MiB evicted 3 times in 100 ms; the requested state was not reached: 50.0 % of the "
         "data are in the page cache: "
         "it is mapped"),
        (replace(REACHED, cached_share=None, reached=None, why="nobody tells"),
         "cache: cold: 4 MiB evicted in 100 ms; the result was not checked: nobody tells"),
    ],
)  # fmt: skip
def test_one_line_says_what_was_done(prepared: CachePreparation, line: str) -> None:
    assert prepared_line("cold", prepared, SIZE) == line
