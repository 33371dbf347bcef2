"""Files that are read whole: by how many calls, what is compared, what stays in memory."""

from __future__ import annotations

import gc
import pickle
import sys
import threading
import time
import weakref
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_files import config_of, make
from decoupled_data import FIXED, PIXELS, VARIABLE, data_of, decoupled
from straced import needs_strace, straced

from dlio_torch.config.compose import compose
from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.data.engines.decoupled.open_files import Files
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.errors import ConfigError, DataError, MissingPackageError
from dlio_torch.formats.core import registry
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.layout import FileLayout
from dlio_torch.formats.core.layout_whole_file import read_whole
from dlio_torch.formats.image.options import ImageConfig
from dlio_torch.formats.numpy.options import NpzConfig
from dlio_torch.iotrace.recorder.spans import NULL
from dlio_torch.native.extents import open_mover

PROGRAM = """
import pickle
import sys
from pathlib import Path
from dlio_torch.formats.core.registry import create
for config, name in pickle.loads(bytes.fromhex(sys.argv[1])):
    create(config, 1).layout(Path(name))
"""

SMALL: dict[str, dict[str, Any]] = {
    "npy": {"format": "npy", "fields": [FieldConfig("a", shape=[1000])]},
    "npz": {"format": "npz", "fields": VARIABLE},
    "npz, deflated": {"format": "npz", "fields": VARIABLE, "npz": NpzConfig(compressed=True)},
    "jpeg": {"format": "jpeg", "fields": PIXELS, "image": ImageConfig(decode=False)},
    "png": {"format": "png", "fields": PIXELS},
    "csv": {"format": "csv", "fields": FIXED},
}


@needs_strace
def test_a_small_file_is_opened_read_and_closed_by_three_calls(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    todo = []
    for number, options in enumerate(SMALL.values()):
        fmt, manifests = make(config_of(tmp_path / str(number), num_files=1, samples_per_file=1, **options))
        name = f"{number}{fmt.suffix}"
        manifests["train"].path(0).rename(folder / name)
        config = DatasetConfig(samples_per_file=1, **options)
        todo.append((config, name))
    calls = straced(PROGRAM, folder, pickle.dumps(todo).hex())
    assert len(calls) == len(SMALL)
    for made in calls.values():
        assert [name for name, _, _ in made] == ["openat", "read", "close"]


@pytest.mark.parametrize("expected", [0, 10, 100_000, 400_000])
def test_whatever_is_expected_all_is_read(expected: int, tmp_path: Path) -> None:
    content = np.random.default_rng(1).bytes(200_000)
    (tmp_path / "x").write_bytes(content)
    assert read_whole(tmp_path / "x", expected) == content


@pytest.mark.parametrize("samples", [1, 7])
def test_checksums_of_members_that_are_read_whole_are_compared(samples: int, tmp_path: Path) -> None:
    config = config_of(tmp_path, num_files=1, samples_per_file=samples, format="npz", fields=FIXED)
    fmt, manifests = make(config)
    path = manifests["train"].path(0)
    with zipfile.ZipFile(path) as archive:
        at = archive.getinfo("a.npy").header_offset + 250
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    loader = decoupled(fmt, manifests["train"], BatchSampler(SamplerSpec(batch_size=1), num_samples=samples))
    with pytest.raises(DataError, match="checksum"):
        next(loader.epoch(0))
    loader.close()


@pytest.mark.parametrize("name", ["npy", "npz"])
def test_what_is_read_past_the_page_cache_is_not_read_whole(name: str, tmp_path: Path) -> None:
    fmt, manifests = make(config_of(tmp_path, num_files=1, samples_per_file=1, **SMALL[name]))
    direct = registry.create(DatasetConfig(samples_per_file=1, direct_io=True, **SMALL[name]), 1)
    path = manifests["train"].path(0)
    assert fmt.layout(path).read_bytes == path.stat().st_size
    file = direct.layout(path)
    assert (file.read_bytes, file.descriptors) == (0, {})


@pytest.mark.parametrize("options", [["dataset=tfrecord"], ["dataset.format=npz", "dataset.npz.compressed=true"]])
def test_direct_reads_of_such_files_are_refused(options: list[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"dataset\.direct_io=false"):
        compose(["recipe=minimal", "loader=decoupled", "dataset.direct_io=true", *options], cwd=tmp_path)


def test_a_file_is_opened_once_whoever_asks(tmp_path: Path) -> None:
    fmt, manifest = data_of(tmp_path, "csv")
    opened: list[Path] = []
    layout = fmt.layout

    def slow(path: Path) -> FileLayout:
        opened.append(path)
        time.sleep(0.05)
        return layout(path)

    fmt.layout = slow  # type: ignore[method-assign]
    files = Files(fmt, manifest, NULL, 2)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(files.get(1))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 1
    assert len(set(map(id, found))) == 1
    files.close()


def test_no_more_files_stay_in_memory_than_may(tmp_path: Path) -> None:
    fmt, manifest = data_of(tmp_path, "npz, deflated")
    files = Files(fmt, manifest, NULL, 9, held=2)
    first, second, third = (weakref.ref(files.get(number)) for number in range(3))
    gc.collect()
    assert [one() is None for one in (first, second, third)] == [True, False, False]
    files.get(1)
    files.get(0)
    gc.collect()
    assert [one() is None for one in (second, third)] == [False, True]
    files.close()


def test_a_file_that_fails_fails_for_everybody_and_is_tried_again(tmp_path: Path) -> None:
    fmt, manifest = data_of(tmp_path, "npz")
    sound = manifest.path(0).read_bytes()
    manifest.path(0).write_bytes(b"no archive")
    files = Files(fmt, manifest, NULL, 2)
    for _ in range(2):
        with pytest.raises(DataError):
            files.get(0)
    manifest.path(0).write_bytes(sound)
    assert files.get(0).layout.num_samples == 7
    files.close()


# --- CSV ------------------------------------------------------------------------------------------

TEXTS: dict[str, tuple[list[FieldConfig], str]] = {
    "plain": ([FieldConfig("a", shape=[2]), FieldConfig("n", "int32")], "0.5,1.25,3\n-1,2e3,4\n"),
    "no line end": ([FieldConfig("a", shape=[2])], "1,2\n3,4"),
    "empty lines": ([FieldConfig("a", shape=[2])], "1,2\n\n3,4\n\n"),
    "quoted": ([FieldConfig("a", shape=[2])], '"1",2\n3,4\n'),
    "integers with a point": ([FieldConfig("n", "int64", shape=[2])], "1.0,2\n3,4\n"),
    "large integers": ([FieldConfig("a", "float32", shape=[2])], "9007199254740993,2\n16777217,4\n"),
    "truth": ([FieldConfig("t", "bool", shape=[2])], "0,1\n1,1\n"),
    "no truth": ([FieldConfig("t", "bool", shape=[2])], "0,1\n2,1\n"),
    "too large": ([FieldConfig("n", "int8", shape=[2])], "1,2\n3,400\n"),
    "a word": ([FieldConfig("a", shape=[2])], "1,2\n3,four\n"),
    "an empty field": ([FieldConfig("a", shape=[2])], "1,2\n3,\n"),
    "a short row": ([FieldConfig("a", shape=[2])], "1,2\n3\n"),
    "a long row": ([FieldConfig("a", shape=[2])], "1,2\n3,4,5\n"),
    "nothing": ([FieldConfig("a", shape=[2])], ""),
    "infinite": ([FieldConfig("a", "float64", shape=[2])], "1,inf\n-inf,4\n"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_csv_is_what_pandas_says(case: str, tmp_path: Path) -> None:
    fields, text = TEXTS[case]
    path = tmp_path / "x.csv"
    path.write_text(text)
    fmt = registry.create(DatasetConfig(format="csv", fields=fields), 1)
    assert by_layout(fmt, path) == by_stream(fmt, path)


def by_stream(fmt: Format, path: Path) -> Any:
    try:
        reader = fmt.open(path)
        return [[(name, a.dtype, a.shape, a.tobytes()) for name, a in sample.items()] for sample in fmt.stream(reader)]
    except DataError as error:
        return str(error)


def by_layout(fmt: Format, path: Path) -> Any:
    try:
        file = fmt.layout(path)
    except DataError as error:
        return str(error)
    made = []
    for row in range(file.num_samples):
        sample = []
        for spec in fmt.specs():
            memory = np.empty(spec.shape, spec.dtype)
            copies = file.arrays[spec.name].plan(np.array([row]), np.array([memory.ctypes.data]))
            open_mover().copy(copies.sources, copies.lengths, copies.to)  # type: ignore[union-attr]
            sample.append((spec.name, memory.dtype, memory.shape, memory.tobytes()))
        made.append(sample)
    return made


def test_without_pyarrow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1,2\n")
    fmt = registry.create(DatasetConfig(format="csv", fields=[FieldConfig("a", shape=[2])]), 1)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingPackageError, match=r"pyarrow.*parquet"):
        fmt.layout(tmp_path / "x.csv")
