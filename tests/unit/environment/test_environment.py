from __future__ import annotations

import json
import mmap
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dlio_torch import __version__
from dlio_torch.environment.cpu_lists import format_cpus
from dlio_torch.environment.machine import describe
from dlio_torch.environment.mounts import _find_mount, _unescape, describe_mount
from dlio_torch.iotrace.recorder.io_counters import IoCounters, io_counters
from dlio_torch.storage.local.eviction import MEMORY_FILE_SYSTEMS, evict
from dlio_torch.storage.local.page_cache import cached_share

MIB = 1 << 20


def nulls(value: object, name: str = "") -> set[str]:
    if isinstance(value, dict):
        return set().union(*(nulls(inner, f"{name}.{key}" if name else key) for key, inner in value.items()), set())
    return {name} if value is None else set()


def test_the_description_is_json_and_explains_every_null(tmp_path: Path) -> None:
    found = describe({"data": tmp_path, "runs": tmp_path / "not" / "yet"})
    assert json.loads(json.dumps(found)) == found
    reasons = found.pop("not_measured")
    for name in nulls(found) - {"job", "launcher"}:  # these two are absent, not unmeasured
        assert any(name == reason or name.startswith(reason + ".") for reason in reasons), name
    assert 0 < found["cpu"]["cores_usable"] <= len(os.sched_getaffinity(0))
    assert found["memory"]["total_bytes"] > 64 * MIB
    assert found["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["versions"]["dlio-torch"] == __version__
    assert found["versions"]["torch"].startswith("2.")
    assert found["mounts"]["runs"]["measured_at"] == str(tmp_path)
    assert found["mounts"]["data"]["preferred_io_bytes"] == tmp_path.stat().st_blksize
    assert found["mounts"]["data"]["free_bytes"] > 0


def test_the_mount_is_the_one_that_stat_and_findmnt_see(tmp_path: Path) -> None:
    for place in (tmp_path, Path("/proc/self"), Path("/")):
        mount = _find_mount(place.resolve())
        assert mount is not None
        assert os.path.ismount(str(mount["mount_point"]))
        assert place.resolve().is_relative_to(str(mount["mount_point"]))
    proc = _find_mount(Path("/proc/self/fd"))
    assert proc is not None
    assert (proc["mount_point"], proc["file_system"]) == ("/proc", "proc")


def test_mount_points_with_blanks_are_understood() -> None:
    assert _unescape(rb"/mnt/my\040disk\134x") == "/mnt/my disk\\x"


@pytest.mark.parametrize(("numbers", "text"), [([], ""), ([0], "0"), ([0, 1, 2, 3, 8], "0-3,8"), ([1, 3, 4], "1,3-4")])
def test_affinity_is_short(numbers: list[int], text: str) -> None:
    assert format_cpus(numbers) == text


def test_describing_imports_neither_torch_nor_h5py() -> None:
    program = (
        "import sys\n"
        "from dlio_torch.environment.machine import describe\n"
        "found = describe({})\n"
        "assert not {'torch', 'h5py', 'numpy', 'pandas'} & set(sys.modules)\n"
        "assert found['versions']['hdf5'] is None and found['not_measured']['versions.hdf5']\n"
        "import h5py\n"
        "assert describe({})['versions']['hdf5'] == h5py.version.hdf5_version\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_variables_that_may_hold_secrets_stay_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HDF5_USE_FILE_LOCKING", "FALSE")
    monkeypatch.setenv("DLIO_TOKEN", "hush")
    monkeypatch.setenv("DATABASE_URL", "hush")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    found = describe({})
    assert found["variables"]["HDF5_USE_FILE_LOCKING"] == "FALSE"
    assert "hush" not in json.dumps(found)
    assert found["job"] == {"system": "slurm", "id": "4711"}
    assert found["launcher"] == "torchrun"


@pytest.mark.parametrize(
    ("answer", "gpus", "reason"),
    [
        ("echo 'NVIDIA H200, 143771, 570.1, GPU-1'; echo 'GB10, [N/A], 570.1, GPU-2'",
         [("NVIDIA H200", 143771 * MIB), ("GB10", None)], None),
        ("echo no driver >&2; exit 9", None, "nvidia-smi failed"),
        ("echo rubbish", None, "nvidia-smi failed"),
    ],
)  # fmt: skip
def test_gpus_come_from_nvidia_smi(
    answer: str,
    gpus: list[tuple[str, int | None]] | None,
    reason: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = describe({})
    seen = None if found["gpus"] is None else [(gpu["name"], gpu["memory_bytes"]) for gpu in found["gpus"]]
    assert seen == gpus
    assert (reason is None) == ("gpus" not in found["not_measured"])


def test_counters_count_what_this_process_reads_and_writes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    before = io_counters()
    assert before is not None
    path.write_bytes(bytes(MIB))
    path.read_bytes()
    after = io_counters()
    assert after is not None
    used = after - before
    assert used.wchar >= MIB
    assert used.rchar >= MIB
    assert used.syscw >= 1
    assert used.syscr >= 1
    assert before + used == after


def test_counters_of_another_process_and_of_one_that_ended(tmp_path: Path) -> None:
    program = f"open({str(tmp_path / 'x')!r}, 'wb').write(bytes({MIB})); print(flush=True); input()"
    before = io_counters()
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        living = io_counters(child.pid)
        assert living is not None
        assert living.wchar >= MIB
        child.communicate("\n")
    assert io_counters(child.pid) is None
    # What the class says of children that were waited for.
    after = io_counters()
    assert before is not None
    assert after is not None
    assert (after - before).wchar >= MIB


def test_counters_subtract_field_by_field() -> None:
    assert IoCounters(9, 8, 7, 6, 5, 4) - IoCounters(1, 1, 1, 1, 1, 1) == IoCounters(8, 7, 6, 5, 4, 3)


def on_disk(path: Path, size: int) -> bool:
    """Make a file that lies on its device and not in the cache; False where the file system cannot do that."""
    with open(path, "wb") as file:
        file.write(os.urandom(size))
        file.flush()
        os.fsync(file.fileno())
        warm = cached_share(path)
    assert warm in (None, 1.0)
    if warm is None or describe_mount("", path, {})["file_system"] in MEMORY_FILE_SYSTEMS:
        return False
    for _ in range(20):  # the kernel may hold a page for a moment
        assert evict(path) is None
        if cached_share(path) == 0.0:
            return True
        time.sleep(0.1)
    raise AssertionError(f"{cached_share(path)} of the file stay in the cache")


@pytest.mark.parametrize("whose", ["ours", "of another user"])
def test_cached_share_tells_cold_from_warm_and_does_not_warm(
    whose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if whose != "ours":
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        monkeypatch.setattr(os, "access", lambda path, mode: False)
    path = tmp_path / "file"
    if not on_disk(path, 16 * MIB):
        pytest.skip("this file system does not tell what is cached, or keeps everything in memory")
    for _ in range(5):
        share = cached_share(path)
        assert share is not None
        assert share < 0.1
    with open(path, "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no readahead beyond the half
        while file.tell() < 8 * MIB:
            file.read(MIB)
    assert cached_share(path, 0, 8 * MIB) == 1.0
    share = cached_share(path)
    assert share is not None
    assert 0.4 < share < 0.6
    share = cached_share(path, 9 * MIB)
    assert share is not None
    assert share < 0.1
    path.read_bytes()
    assert cached_share(path) == 1.0


def test_pages_are_counted_and_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, page = tmp_path / "file", mmap.PAGESIZE
    if not on_disk(path, 64 * page - 5):
        pytest.skip("this file system does not tell what is cached, or keeps everything in memory")
    monkeypatch.setattr("dlio_torch.storage.local.page_cache._WINDOW", 24 * page)
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for number in (3, 30, 31, 63):
            os.pread(file.fileno(), 1, number * page)
    for _ in range(3):
        assert cached_share(path) == 4 / 64
        assert cached_share(path, 30 * page + 9, page) == 1.0  # parts of two pages
        assert cached_share(path, 62 * page) == 0.5


@pytest.mark.parametrize("path", ["/proc/self/status", "/dev/null", "/", "/no/such/file"])
def test_cached_share_is_none_where_it_cannot_be_told(path: str) -> None:
    assert cached_share(path) is None


def test_cached_share_of_an_empty_part_is_none(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    assert cached_share(path, 100) is None
    assert cached_share(path, 5, 0) is None
