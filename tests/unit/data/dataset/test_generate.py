"""Generation: the same bytes from any number of ranks, and nothing half-written under a final name."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from data_files import RawFormat, config_of, make, run_threads
from data_sets import Accompanied, generated
from ranks import SUPPORT, clean_environ

from dlio_torch.config.schema import FieldConfig
from dlio_torch.data.dataset import description
from dlio_torch.data.dataset.generation import generate
from dlio_torch.data.dataset.manifest import data_folder, existing_manifest, generated_manifests
from dlio_torch.data.dataset.map_dataset import SampleDataset
from dlio_torch.dist.base import SingleCommunicator
from dlio_torch.errors import DataError, DlioError, PreconditionError
from dlio_torch.files.atomic_file import PART
from dlio_torch.formats.core import registry
from dlio_torch.formats.hdf5.options import Hdf5Config
from dlio_torch.iotrace.recorder.spans import NULL


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}


def python(program: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    environ = clean_environ()
    environ["PYTHONPATH"] = os.pathsep.join([str(SUPPORT), environ["PYTHONPATH"]])
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


# --- what is written ------------------------------------------------------------------------------


def test_samples_are_those_that_the_format_expects(tmp_path: Path) -> None:
    config = config_of(tmp_path, num_files_eval=2, samples_per_file_eval=3)
    done, folder = generated(config)
    assert (done.written, done.reused) == (5, 0)
    assert done.bytes == sum(path.stat().st_size for path in folder.rglob("*.h5"))
    assert done.seconds > 0
    fmt = registry.create(config.dataset, config.seed)
    for manifest in generated_manifests(config, fmt).values():
        dataset = SampleDataset(fmt, manifest, NULL, verify=True)
        dataset.__getitems__(range(len(dataset)))


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("chunked", [False, True])
def test_ranks_in_parallel_write_the_same_bytes_as_one(tmp_path: Path, world_size: int, chunked: bool) -> None:
    hdf5 = Hdf5Config(chunk_bytes=64, compression="gzip") if chunked else Hdf5Config()
    one = config_of(tmp_path / "one", num_files=7, num_files_eval=2, samples_per_file_eval=3, hdf5=hdf5)
    _, alone = generated(one, num_workers=1)
    many = config_of(tmp_path / "many", num_files=7, num_files_eval=2, samples_per_file_eval=3, hdf5=hdf5)
    results = run_threads(world_size, lambda comm: generated(many, comm=comm))
    assert contents(results[0][1]) == contents(alone)
    assert [(done.written, done.reused, done.bytes) for done, _ in results] == [
        (9, 0, results[0][0].bytes)
    ] * world_size


def test_the_bytes_of_all_files_are_known_on_each_rank(tmp_path: Path) -> None:
    config = config_of(tmp_path, num_files=5, num_files_eval=2, samples_per_file_eval=3)
    _, folder = generated(config)
    files = sorted(folder.rglob("*.h5"))
    size = sum(path.stat().st_size for path in files)
    files[1].unlink()
    files[5].unlink()
    for options in ({}, {}, {"overwrite": True}):
        found = run_threads(3, lambda comm, options=options: generated(config, comm=comm, **options)[0])
        assert {one.data_bytes for one in found} == {size}
    existing = replace(config, dataset=replace(config.dataset, path=str(folder)))
    for manifest, _ in run_threads(
        3, lambda comm: existing_manifest(existing, registry.create(config.dataset, 1), comm)
    ):
        assert (manifest.num_files, manifest.bytes) == (7, size)


def test_each_rank_tells_its_own_progress(tmp_path: Path) -> None:
    config = config_of(tmp_path, num_files=5)
    told: dict[int, list[tuple[int, int]]] = {0: [], 1: []}

    def work(comm: SingleCommunicator) -> None:
        fmt = registry.create(config.dataset, config.seed)
        generate(config, fmt, comm, NULL, lambda done, total: told[comm.rank].append((done, total)))

    run_threads(2, work)
    assert told == {0: [(0, 3), (1, 3), (2, 3), (3, 3)], 1: [(0, 2), (1, 2), (2, 2)]}


@pytest.mark.parametrize("subfolders", [0, 1, 3])
def test_files_are_spread_over_subfolders(tmp_path: Path, subfolders: int) -> None:
    done, folder = generated(config_of(tmp_path, 5, num_subfolders=subfolders))
    places = sorted(str(path.parent.relative_to(folder)) for path in folder.rglob("*.h5"))
    want = {
        0: ["train"] * 5,
        1: ["train/00000"] * 5,
        3: ["train/00000"] * 2 + ["train/00001"] * 2 + ["train/00002"],
    }
    assert places == want[subfolders]
    assert done.written == 5


# --- what is there already ------------------------------------------------------------------------


def test_finished_files_are_left_alone_and_missing_ones_are_written(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    _, folder = generated(config)
    before = stamps(folder)
    again, _ = generated(config)
    assert (again.written, again.reused, again.bytes) == (0, 3, 0)
    assert stamps(folder) == before
    (folder / "train" / "train_0000001.h5").unlink()
    again, _ = generated(config)
    assert (again.written, again.reused) == (1, 2)
    after = stamps(folder)
    assert {name for name in after if after[name] != before[name]} == {"train_0000001.h5"}


def test_more_files_extend_a_data_set_and_fewer_use_a_part_of_it(tmp_path: Path) -> None:
    _, folder = generated(config_of(tmp_path, 3, num_files_eval=1, samples_per_file_eval=2))
    before = stamps(folder)
    more, same = generated(config_of(tmp_path, 6, num_files_eval=1, samples_per_file_eval=2))
    assert same == folder
    assert (more.written, more.reused) == (3, 4)
    after = stamps(folder)
    assert {name for name in before if after[name] != before[name]} == {"dlio_torch.json"}  # it lists them
    assert json.loads((folder / "dlio_torch.json").read_text())["files"] == {"eval": 1, "train": 6}
    fewer, _ = generated(config_of(tmp_path, 2, num_files_eval=1, samples_per_file_eval=2))
    assert (fewer.written, fewer.reused) == (0, 3)
    assert stamps(folder) == after


def test_a_changed_option_makes_another_folder_and_touches_no_other(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    _, folder = generated(config)
    before = contents(tmp_path)
    _, other = generated(replace(config, seed=2))
    _, third = generated(replace(config, recipe="another"))
    assert len({folder, other, third}) == 3
    after = contents(tmp_path)
    assert {name: after[name] for name in before} == before
    first = "train/train_0000000.h5"
    assert (folder / first).read_bytes() != (other / first).read_bytes()
    assert (folder / first).read_bytes() == (third / first).read_bytes()


def test_overwrite_writes_all_again(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    _, folder = generated(config)
    before = stamps(folder)
    content = contents(folder)
    again, _ = generated(config, overwrite=True)
    assert (again.written, again.reused) == (3, 0)
    assert all(stamps(folder)[name] != before[name] for name in before if name.endswith(".h5"))
    assert contents(folder) == content


def test_a_damaged_description_stops_the_generation(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    _, folder = generated(config)
    (folder / description.DESCRIPTION).write_text("{")
    before = contents(folder)
    with pytest.raises(DataError, match=description.DESCRIPTION):
        generated(config)
    assert contents(folder) == before


def test_parameters_of_a_data_set_are_fixed_when_it_is_made(tmp_path: Path) -> None:
    class Tuned(RawFormat):
        def __init__(self, found: float) -> None:
            super().__init__()
            self.found = found

        def parameters(self) -> dict[str, float]:
            return {"level": self.found}

        def use_parameters(self, parameters: Any) -> None:
            self.found = parameters["level"]

    config = config_of(tmp_path, format="raw")
    _, folder = generated(config, Tuned(0.1 + 0.2))
    formats = [Tuned(9.0), Tuned(8.0)]
    run_threads(2, lambda comm: generated(config, formats[comm.rank], comm))
    assert [fmt.found for fmt in formats] == [0.1 + 0.2] * 2
    assert json.loads((folder / description.DESCRIPTION).read_text())["parameters"] == {"level": 0.1 + 0.2}


# --- interrupted ----------------------------------------------------------------------------------

WRITE = """
import sys; from pathlib import Path; from data_files import RawFormat, config_of; from data_sets import generated
config = config_of(Path(sys.argv[1]), 6, 20, num_subfolders=2, format="raw")
fmt = RawFormat(config.dataset); fmt.write_s = float(sys.argv[2]); print("go", flush=True)
try:
    generated(config, fmt)
except Exception as error:
    print(error, file=sys.stderr); sys.exit(getattr(error, "exit_code", 99))
"""


@pytest.mark.ranks
def test_nothing_half_written_survives_sigkill(tmp_path: Path) -> None:
    config = config_of(tmp_path, 6, 20, num_subfolders=2, format="raw")
    fmt = RawFormat(config.dataset)
    folder = data_folder(config, fmt)
    manifest = generated_manifests(config, fmt)["train"]
    rng = random.Random(7)
    finished: dict[str, tuple[int, int]] = {}
    parts = 0
    for _ in range(5):
        writer = python(WRITE, tmp_path, 0.005)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.05 + rng.random() * 0.2)
        writer.kill()
        writer.communicate()
        parts += len(list(folder.rglob(f"*{PART}")))
        for file in range(6):
            if manifest.path(file).exists():
                whole = b"".join(fmt.expected(20 * file + row)["data"].tobytes() for row in range(20))
                assert manifest.path(file).read_bytes() == whole
        now = {name: stamp for name, stamp in stamps(folder).items() if name.endswith(".raw")}
        assert {name: now[name] for name in finished} == finished  # reused, not written again
        finished = now
    assert parts
    done, _ = generated(config, RawFormat(config.dataset))
    assert (done.written, done.reused) == (6 - len(finished), len(finished))
    assert list(folder.rglob(f"*{PART}")) == []
    dataset = SampleDataset(fmt, manifest, NULL, verify=True)
    dataset.__getitems__(range(120))


@pytest.mark.ranks
def test_a_second_generation_at_the_same_time_is_refused(tmp_path: Path) -> None:
    first = python(WRITE, tmp_path, 0.02)
    config = config_of(tmp_path, 6, 20, num_subfolders=2, format="raw")
    folder = data_folder(config, RawFormat(config.dataset))
    end = time.monotonic() + 60
    while not list(folder.rglob(f"*{PART}")):
        assert time.monotonic() < end
        time.sleep(0.01)
    with pytest.raises(PreconditionError) as caught:
        generated(config, RawFormat(config.dataset))
    assert caught.value.exit_code == 3
    assert (
        str(caught.value)
        == f"another process is writing {folder}; wait for the other process, or choose another dataset.root"
    )
    first.communicate()
    assert first.returncode == 0
    done, _ = generated(config, RawFormat(config.dataset))
    assert (done.written, done.reused) == (0, 6)


def test_an_interrupt_leaves_no_part_file(tmp_path: Path) -> None:
    class Interrupted(RawFormat):
        def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
            super().write(path, first_sample, num_samples, pool)
            if first_sample:
                signal.raise_signal(signal.SIGINT)

    config = config_of(tmp_path, format="raw")
    with pytest.raises(KeyboardInterrupt):
        generated(config, Interrupted())
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == [
        ".lock",
        description.DESCRIPTION,
        "train_0000000.raw",
    ]


# --- files that lie beside ------------------------------------------------------------------------


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("train_*"))


FAMILY = ["train_0000000.raw", "train_0000000.raw.a", "train_0000000.raw.b"]


def test_companions_get_their_names_before_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    flushed: list[str] = []
    real_fsync, real_replace = os.fsync, Path.replace

    def note_fsync(descriptor: int) -> None:
        flushed.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        real_fsync(descriptor)

    def note_replace(self: Path, target: Path) -> Path:
        assert self.name in flushed
        order.append(target.name)
        return real_replace(self, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    done, folder = generated(config_of(tmp_path, 1, format="raw"), Accompanied(), fsync=True)
    assert order == [description.DESCRIPTION, "train_0000000.raw.a", "train_0000000.raw.b", "train_0000000.raw"]
    assert names(folder) == FAMILY
    assert done.bytes == sum(path.stat().st_size for path in folder.rglob("train_*")) == 7 * 32 + 2 * 20


def test_a_write_that_fails_leaves_no_companion(tmp_path: Path) -> None:
    fmt = Accompanied()
    fmt.fails = 7
    with pytest.raises(DlioError, match="train_0000001"):
        generated(config_of(tmp_path, 3, format="raw"), fmt)
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == [
        ".lock",
        description.DESCRIPTION,
        *FAMILY,
    ]


def test_a_companion_that_was_not_written_is_a_failure(tmp_path: Path) -> None:
    class Forgetful(Accompanied):
        def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
            super().write(path, first_sample, num_samples, pool)
            path.with_name(path.name + ".b").unlink()

    with pytest.raises(DlioError, match="train_0000000"):
        generated(config_of(tmp_path, 1, format="raw"), Forgetful())
    assert names(tmp_path) == []
    assert list(tmp_path.rglob(f"*{PART}*")) == []


def test_a_file_that_lost_a_companion_is_written_again(tmp_path: Path) -> None:
    config = config_of(tmp_path, 3, format="raw")
    _, folder = generated(config, Accompanied())
    before = contents(folder)
    next(folder.rglob("train_0000001.raw.b")).unlink()
    done, _ = generated(config, Accompanied())
    assert (done.written, done.reused) == (1, 2)
    assert contents(folder) == before


def test_companions_count_where_files_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Large(Accompanied):
        def stored_bytes(self) -> float:
            return (7 * 32 + 2 * 20) / 7

    config = config_of(tmp_path, 3, format="raw")
    generated(config, Large())
    free(monkeypatch, 1, 10**9)
    assert generated(config, Large(), overwrite=True)[0].written == 3


WRITE_FAMILIES = """
import sys; from pathlib import Path; from data_files import config_of; from data_sets import Accompanied, generated
fmt = Accompanied(); fmt.write_s = 0.005; print("go", flush=True)
generated(config_of(Path(sys.argv[1]), 30, 2, num_subfolders=2, format="raw"), fmt)
"""


@pytest.mark.ranks
def test_companions_of_a_killed_generation_are_removed(tmp_path: Path) -> None:
    rng = random.Random(3)
    config = config_of(tmp_path, 30, 2, num_subfolders=2, format="raw")
    folder = data_folder(config, Accompanied())
    parts: set[str] = set()
    for _ in range(5):
        writer = python(WRITE_FAMILIES, tmp_path)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.03 + rng.random() * 0.1)
        writer.kill()
        writer.communicate()
        parts.update(path.name.partition(PART)[2] for path in folder.rglob(f"*{PART}*"))
        for path in folder.rglob("train_*"):
            if path.suffix == ".raw":  # where a file is, all that belongs to it is
                assert path.stat().st_size == 64
                assert all(path.with_name(path.name + suffix).is_file() for suffix in (".a", ".b"))
            else:
                assert path.read_bytes() == path.suffix.encode() * 10
    assert parts & {".a", ".b"}
    generated(config, Accompanied())
    assert list(folder.rglob(f"*{PART}*")) == []
    assert len(names(folder)) == 90


# --- a file system that does not play along -------------------------------------------------------


def test_a_root_that_cannot_be_written_is_a_precondition(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for root in (tmp_path / "file", Path("/proc/nowhere")):
        with pytest.raises(PreconditionError, match=r"cannot be written to .*choose another dataset\.root") as caught:
            generated(config_of(root))
        assert caught.value.exit_code == 3


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    folder = data_folder(config, registry.create(config.dataset, config.seed))
    folder.mkdir()
    (folder / "train").write_text("")
    with pytest.raises(DlioError, match=r"train_0000000\.h5 could not be written: (Not a directory|File exists)"):
        generated(config)


def free(monkeypatch: pytest.MonkeyPatch, *sizes: int) -> None:
    """The file system has so many bytes left, at one look after another."""
    left = list(sizes)
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=left.pop(0) if len(left) > 1 else left[0]))


def test_too_little_space_is_said_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(tmp_path, 3, 10, format="raw")  # 960 bytes
    free(monkeypatch, 959)
    with pytest.raises(PreconditionError, match=r"needs 960 B, but the file system has only 959 B left"):
        generated(config, RawFormat())
    assert list(tmp_path.rglob("*.raw")) == []
    free(monkeypatch, 960)
    assert generated(config, RawFormat())[0].written == 3


def test_only_what_is_missing_needs_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generated(config_of(tmp_path, 3, 10, format="raw"), RawFormat())
    free(monkeypatch, 321)
    assert generated(config_of(tmp_path, 4, 10, format="raw"), RawFormat())[0].written == 1
    # Files that are replaced give their space back.
    assert generated(config_of(tmp_path, 4, 10, format="raw"), RawFormat(), overwrite=True)[0].written == 4


def test_a_disk_that_fills_up_ends_the_generation_and_keeps_what_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, 10**9, 10**9, 5)
    with pytest.raises(
        PreconditionError, match=r"0000001\.raw could not be written: No space left on device; free space"
    ) as caught:
        generated(config_of(tmp_path, 3, 10, format="raw"), RawFormat())
    assert caught.value.exit_code == 3
    assert [path.name for path in tmp_path.rglob("*.raw*")] == ["train_0000000.raw"]


LIMITED = """
import resource, sys; from pathlib import Path
from data_files import RawFormat, config_of; from data_sets import generated
config = config_of(Path(sys.argv[1]), 2, 2000, format=sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
try:
    generated(config, RawFormat(config.dataset) if sys.argv[2] == "raw" else None)
except Exception as error:
    print(error, file=sys.stderr); sys.exit(getattr(error, "exit_code", 99))
"""


@pytest.mark.ranks
@pytest.mark.parametrize(
    "name",
    [
        "raw",
        pytest.param("hdf5", marks=pytest.mark.xfail(reason="HDF5 crashes when it closes such a file", strict=True)),
    ],
)
def test_a_write_that_the_system_refuses_is_one_line(tmp_path: Path, name: str) -> None:
    writer = python(LIMITED, tmp_path, name)
    _, message = writer.communicate()
    assert writer.returncode == 3, message
    assert len(message.splitlines()) == 1
    assert "train_0000000" in message
    assert "could not be written" in message
    assert "too large" in message
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == [".lock", description.DESCRIPTION]


def test_a_failing_rank_does_not_keep_the_others_waiting(tmp_path: Path) -> None:
    class Failing(RawFormat):
        def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
            path.write_bytes(b"begun")
            raise OSError(28, "No space left on device")

    config = config_of(tmp_path, 4, format="raw")
    with pytest.raises(DlioError, match="0000001"):
        run_threads(2, lambda comm: generated(config, Failing() if comm.rank else RawFormat(), comm))
    assert list(tmp_path.rglob(f"*{PART}")) == []


# --- flushing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fsync", [True, False])
def test_files_are_flushed_before_they_get_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: bool
) -> None:
    calls: list[tuple[str, str]] = []
    real_fsync, real_replace = os.fsync, Path.replace

    def note_fsync(descriptor: int) -> None:
        calls.append(("fsync", Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))
        real_fsync(descriptor)

    def note_replace(self: Path, target: Path) -> Path:
        calls.append(("name", target.name))
        return real_replace(self, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    _, folder = generated(config_of(tmp_path, 1, format="raw"), RawFormat(), fsync=fsync)
    if not fsync:
        assert calls == [("name", description.DESCRIPTION), ("name", "train_0000000.raw")]
        return
    part = f".{{}}.{os.getpid()}{PART}"
    assert calls == [
        ("fsync", part.format(description.DESCRIPTION)),
        ("name", description.DESCRIPTION),
        ("fsync", folder.name),
        ("fsync", part.format("train_0000000.raw")),
        ("name", "train_0000000.raw"),
        ("fsync", "train"),
    ]


@pytest.mark.ranks
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("fsync", [True, False])
def test_the_kernel_sees_the_flushes(tmp_path: Path, fsync: bool) -> None:
    program = (
        "import sys; from pathlib import Path; from data_files import config_of; from data_sets import generated;"
        f"generated(config_of(Path(sys.argv[1])), fsync={fsync})"
    )
    environ = clean_environ()
    environ["PYTHONPATH"] = os.pathsep.join([str(SUPPORT), environ["PYTHONPATH"]])
    log = tmp_path / "strace"
    command = ["strace", "-f", "--seccomp-bpf", "-y", "-e", "trace=fsync,fdatasync", "-o", log, sys.executable, "-c"]
    subprocess.run([*map(str, command), program, str(tmp_path / "data")], env=environ, check=True)
    flushed = [line for line in log.read_text().splitlines() if "fsync(" in line and ".h5." in line]
    assert len(flushed) == (3 if fsync else 0)


# --- size -----------------------------------------------------------------------------------------


def test_many_files_are_looked_at_without_a_list_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A rank holds next to nothing for each file that is there.
    config = config_of(tmp_path, 100_000, 10, format="raw")
    fmt = RawFormat(config.dataset)
    make(config_of(tmp_path, 1, 10, format="raw"), fmt)
    monkeypatch.setattr(fmt, "stored_size", lambda path: 320)
    tracemalloc.start()
    try:
        done, _ = generated(config, fmt)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (done.written, done.reused) == (0, 100_000)
    assert peak < 100_000 * 160  # a path and a number alone take four times that


# --- files under way at once ----------------------------------------------------------------------


class Together(RawFormat):
    """Several of its files may be written at once; ``most``: how many were.  Waits until two are under way."""

    writes_at_once = True
    fails = -1

    def __init__(self, dataset: Any = None) -> None:
        super().__init__(dataset)
        self.lock, self.now, self.most = threading.Lock(), 0, 0
        self.meet = threading.Barrier(2)

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        if not first_sample or first_sample == num_samples:
            self.meet.wait(60)
        super().write(path, first_sample, num_samples, pool)
        with self.lock:
            self.now -= 1
        if first_sample == self.fails:
            raise OSError(28, "No space left on device")


def test_files_are_written_at_once_where_the_format_stands_it(tmp_path: Path) -> None:
    fmt = Together()
    done, folder = generated(config_of(tmp_path / "one", 12, format="raw"), fmt)
    assert 2 <= fmt.most <= 8
    other, serial = generated(config_of(tmp_path / "other", 12, format="raw"), RawFormat())
    assert contents(folder) == contents(serial)
    assert (done.written, done.bytes) == (other.written, other.bytes)


def test_a_failure_among_several_files_leaves_none_half_written(tmp_path: Path) -> None:
    fmt = Together()
    fmt.fails = 14
    with pytest.raises(DlioError, match="train_0000002"):
        generated(config_of(tmp_path, 40, format="raw"), fmt)
    assert list(tmp_path.rglob(f"*{PART}*")) == []
    assert len(list(tmp_path.rglob("*.raw"))) < 39


@pytest.mark.parametrize("name", ["npz", "npy", "hdf5", "indexed_binary", "csv", "tfrecord", "png"])
def test_bytes_do_not_depend_on_files_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    shape = [8, 8, 3] if name == "png" else [24]
    fields = [FieldConfig(shape=shape, dtype="uint8" if name == "png" else "float32")]
    folders = []
    for at_once in (False, True):
        root = tmp_path / str(at_once)
        config = config_of(root, 6, 1 if name == "png" else 3, format=name, fields=fields)
        fmt = registry.create(config.dataset, config.seed)
        assert fmt.writes_at_once
        monkeypatch.setattr(type(fmt), "writes_at_once", at_once)
        folders.append(generated(config, fmt, num_workers=4 if at_once else 1)[1])
        monkeypatch.undo()
    assert contents(folders[0]) == contents(folders[1])


def test_the_names_of_many_files_are_flushed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    real_fsync = os.fsync

    def note_fsync(descriptor: int) -> None:
        flushed.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note_fsync)
    generated(config_of(tmp_path, 9, num_subfolders=3, format="raw"), RawFormat(), fsync=True)
    assert [name for name in flushed if name.startswith("0")] == flushed[-3:]
    assert sorted(flushed[-3:]) == ["00000", "00001", "00002"]
    assert len([name for name in flushed if ".raw." in name]) == 9
