"""The format lmdb: environments as the library writes them, system calls as ``txn.get`` makes them."""

from __future__ import annotations

import gc
import itertools
import os
import pickle
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from data_files import config_of, make
from decoupled_data import assert_same, decoupled, faithful
from straced import needs_strace, straced

from dlio_torch.config.schema import AccessConfig, Config, DatasetConfig, FieldConfig, LoaderConfig
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.errors import ConfigError, DataError, MissingPackageError
from dlio_torch.formats.core.registry import create, facts
from dlio_torch.formats.lmdb.options import LmdbConfig
from dlio_torch.formats.testing.contract import SEED, FormatContract, check_batch, is_open, read, refusal, write

lmdb = pytest.importorskip("lmdb", reason="lmdb is not installed")

IMAGE = FieldConfig("image", "uint8", [], length_mean=9000, length_stdev=3000)
LABEL = FieldConfig("label", "int64", [])
PAIR = {"key": "{field}-{index:09d}", "first_index": 1}


def config(*fields: FieldConfig, **options: Any) -> DatasetConfig:
    return DatasetConfig(format="lmdb", fields=list(fields), lmdb=LmdbConfig(**options))


class TestContract(FormatContract):
    configs: ClassVar = {
        "large": config(FieldConfig("a", "float32", [33, 170])),
        "small": config(FieldConfig("a", "int16", [300])),
        "variable": config(IMAGE),
        "pair": config(IMAGE, LABEL, **PAIR),
        "one file": config(IMAGE, subdir=False, key="{index}"),
        "locked": config(IMAGE, lock=True, readahead=True, max_readers=3),
    }


def test_the_library_reads_what_was_written(tmp_path: Path) -> None:
    fmt = create(config(IMAGE, LABEL, **PAIR), SEED)
    path = write(fmt, tmp_path / "a.lmdb", 5, 20)
    assert [entry.name for entry in path.iterdir()] == ["data.mdb"]
    with lmdb.open(str(path), readonly=True, lock=False) as environment, environment.begin() as transaction:
        assert transaction.stat()["entries"] == 40
        for number in range(20):
            want = fmt.expected(5 + number)
            assert transaction.get(f"image-{number + 1:09d}".encode()) == want["image"].tobytes()
            assert transaction.get(f"label-{number + 1:09d}".encode()) == want["label"].tobytes()


def test_a_file_of_several_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlio_torch.formats.lmdb.format._COMMIT_BYTES", 30_000)
    fmt = create(config(IMAGE), SEED)
    paths = [write(fmt, tmp_path / name, 0, 60) for name in ("a.lmdb", "b.lmdb")]
    contents = [(path / "data.mdb").read_bytes() for path in paths]
    assert contents[0] == contents[1]
    with closing(fmt.open(paths[0])) as reader:
        check_batch(fmt, read(fmt, reader, range(60)), range(60))


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ([FieldConfig("a", shape=[3000])], {}),
        ([FieldConfig("a", "bool", [16], length_mean=3, length_stdev=2)], {"subdir": False}),
        ([LABEL, IMAGE], {"key": "{index}{field}"}),
    ],
)
def test_values_by_their_extents(fields: list[FieldConfig], options: dict[str, Any], tmp_path: Path) -> None:
    dataset = {"format": "lmdb", "fields": fields, "lmdb": LmdbConfig(**options)}
    fmt, manifests = make(config_of(tmp_path, num_files=3, samples_per_file=40, **dataset))
    manifest = manifests["train"]
    for order, (rank, world) in itertools.product(["sequential", "shuffled"], [(0, 1), (1, 2)]):
        spec = SamplerSpec(batch_size=4, order=order, seed=3, rank=rank, world_size=world)
        sampler = BatchSampler(spec, num_samples=manifest.num_samples)
        got, want = decoupled(fmt, manifest, sampler), faithful(fmt, manifest, sampler)
        for batches in zip(want.epoch(0), got.epoch(0), strict=True):
            assert_same(*batches)
        got.close()


def test_a_deep_tree(tmp_path: Path) -> None:
    fmt = create(config(FieldConfig("a", "uint8", [1200])), SEED)
    path = write(fmt, tmp_path / "a.lmdb", 0, 2000)
    layout = fmt.layout(path)
    content = (path / "data.mdb").read_bytes()
    rows = np.arange(2000)
    extents = layout.arrays["a"].plan(rows, rows * 1200)
    for row in (0, 1, 999, 1999):
        low = int(extents.offsets[row])  # type: ignore[union-attr]
        assert content[low : low + 1200] == fmt.expected(row)["a"].tobytes()


@pytest.mark.parametrize("lock", [False, True])
def test_an_environment_is_open_once_and_again_in_a_fork(lock: bool, tmp_path: Path) -> None:
    fmt = create(config(IMAGE, lock=lock), SEED)
    path = write(fmt, tmp_path / "a.lmdb", 0, 8)
    first, second = fmt.open(path), fmt.open(path)
    first.close()
    check_batch(fmt, read(fmt, second, [3]), [3])
    for late in (False, True):  # with the parent's reader, and with one of its own
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                reader = fmt.open(path) if late else second
                check_batch(fmt, read(fmt, reader, [5]), [5])
                reader.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
    check_batch(fmt, read(fmt, second, [7]), [7])
    second.close()
    assert not is_open(path / "data.mdb")


def test_an_environment_closes_with_its_last_reader(tmp_path: Path) -> None:
    fmt = create(config(IMAGE), SEED)
    path = write(fmt, tmp_path / "a.lmdb", 0, 8)
    readers = [fmt.open(path) for _ in range(3)]
    with closing(fmt.open(path)):
        pass
    del readers[1:]
    gc.collect()
    check_batch(fmt, read(fmt, readers[0], [3]), [3])
    del readers[:]
    gc.collect()
    assert not is_open(path / "data.mdb")
    assert str(path / "data.mdb") not in Path("/proc/self/maps").read_text()


def test_threads_of_a_fork_share_one_environment(tmp_path: Path) -> None:
    fmt = create(config(IMAGE), SEED)
    path = write(fmt, tmp_path / "a.lmdb", 0, 8)
    reader = fmt.open(path)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda sample: check_batch(fmt, read(fmt, reader, [sample]), [sample]), range(8)))
            del reader
            gc.collect()
            code = int(is_open(path / "data.mdb"))
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    reader.close()
    assert not is_open(path / "data.mdb")


PROGRAM = """
import sys
import numpy as np, lmdb, pickle
from pathlib import Path
from dlio_torch.formats.core.batch import BatchBuffer
fmt = pickle.loads(Path("format").read_bytes())
reader = fmt.open(Path("ours").resolve())
for sample in (3, 1, 3):
    reader.read(sample, 1, BatchBuffer(fmt.specs(), [0]), 0)
reader.close()
lock, readahead = (word == "true" for word in sys.argv[1:])
path = str(Path("theirs").resolve())
env = lmdb.open(path, readonly=True, lock=lock, readahead=readahead, meminit=False)
for sample in (3, 1, 3):
    with env.begin(write=False) as txn:
        np.frombuffer(txn.get(f"{sample:08d}".encode()), np.uint8)
env.close()
"""


@needs_strace
@pytest.mark.parametrize(("lock", "readahead"), [(False, False), (True, True)])
def test_system_calls_are_those_of_get(lock: bool, readahead: bool, tmp_path: Path) -> None:
    fmt = create(config(IMAGE, lock=lock, readahead=readahead), SEED)
    folder = tmp_path / "sets"
    folder.mkdir()
    write(fmt, folder / "ours", 0, 6)
    shutil.copytree(folder / "ours", folder / "theirs")
    (folder / "format").write_bytes(pickle.dumps(fmt))
    calls = straced(PROGRAM, folder, *(str(value).lower() for value in (lock, readahead)))
    for name in ("data.mdb", *(["lock.mdb"] if lock else [])):
        assert calls[f"ours/{name}"] == calls[f"theirs/{name}"]
        assert "mmap" in [call[0] for call in calls[f"ours/{name}"]]
    text = (tmp_path / "sets.strace").read_text()
    assert "lock.mdb" not in text or lock


@pytest.mark.parametrize("readahead", [False, True])
@needs_strace
def test_readahead_is_what_the_kernel_is_told(readahead: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("straced.TRACED", "openat,madvise")
    fmt = create(config(IMAGE, readahead=readahead), SEED)
    folder = tmp_path / "sets"
    folder.mkdir()
    write(fmt, folder / "ours", 0, 6)
    write(fmt, folder / "theirs", 0, 6)
    (folder / "format").write_bytes(pickle.dumps(fmt))
    straced(PROGRAM, folder, "false", str(readahead).lower())
    text = (tmp_path / "sets.strace").read_text()
    assert text.count("MADV_RANDOM") == (0 if readahead else 2)


def test_the_file_is_mapped_for_reports_and_storages() -> None:
    about = facts("lmdb")
    assert about.maps_files(Config())
    assert not about.maps_files(Config(loader=LoaderConfig(engine="decoupled")))
    assert not about.maps_files(Config(access=AccessConfig(io="collective")))
    assert [title for title, _ in about.calls(Config())] == ["lmdb.open(...)"]


@pytest.mark.parametrize(
    ("fields", "options", "words"),
    [
        ([IMAGE, LABEL], {}, "equal keys for different fields or samples"),
        ([IMAGE], {"key": "same"}, "equal keys for different samples"),
        ([IMAGE], {"key": "{index:q}"}, "is not a format"),
        ([IMAGE], {"key": "{other}"}, "is not a format"),
        ([IMAGE], {"key": "{index.real.x}"}, "is not a format"),
        ([IMAGE], {"key": "{index:0600d}"}, "gives a key of 600 bytes"),
        ([IMAGE], {"key": ""}, "listed from existing files"),
    ],
)
def test_keys_that_cannot_be(fields: list[FieldConfig], options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        create(config(*fields, **options), SEED)


def test_another_number_or_size_of_entries(tmp_path: Path) -> None:
    fmt = create(config(IMAGE), SEED)
    path = write(fmt, tmp_path / "a.lmdb", 0, 7)
    existing = replace(fmt.config, path=str(path))
    for change, words in (
        ({"lmdb": LmdbConfig(first_index=5)}, "has no entry '00000011'"),
        ({"fields": [IMAGE, LABEL], "lmdb": LmdbConfig(**PAIR)}, "7 entries, which are not 2 for each sample"),
        ({"fields": [FieldConfig("image", "uint8", [5])]}, "expects 5"),
        ({"lmdb": LmdbConfig(other_entries=["a"] * 8)}, "8 others"),
    ):
        other = create(replace(existing, **change), SEED)
        assert words in refusal(lambda: other.inspect(path))  # noqa: B023


def test_damaged_files(tmp_path: Path) -> None:
    fmt = create(config(IMAGE), SEED)
    path = write(fmt, tmp_path / "a.lmdb", 0, 7)
    data = path / "data.mdb"
    sound = data.read_bytes()
    data.write_bytes(sound[:-4096])
    assert "is incomplete" in refusal(lambda: fmt.open(path))
    assert "a.lmdb" in refusal(lambda: fmt.layout(path))
    data.write_bytes(sound[:16] + b"x" * 4 + sound[20:])
    assert "a.lmdb" in refusal(lambda: fmt.open(path))
    for page in range(2, len(sound) // 4096):  # the decoupled engine reads the tree itself
        broken = bytearray(sound)
        broken[page * 4096 : page * 4096 + 40] = b"\xff" * 40
        data.write_bytes(broken)
        try:
            message = f"{path}: {fmt.layout(path).num_samples} samples"
        except DataError as error:
            message = str(error)
        assert message.startswith(str(path))
        assert "\n" not in message


def test_a_missing_package_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lmdb", None)
    with pytest.raises(MissingPackageError, match="needs lmdb") as caught:
        create(config(IMAGE), SEED)
    assert caught.value.hint == "pip install 'dlio-torch[lmdb]'"
