"""Layout of TFRecord files: whatever a writer does, the faithful path's samples; large requests; checked."""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
from data_files import epoch_of
from decoupled_data import faithful
from hypothesis import given, settings
from hypothesis import strategies as st
from native_programs import compiled
from straced import needs_strace, results, straced

from dlio_torch import native
from dlio_torch.config.schema import DatasetConfig, FieldConfig, LoaderConfig
from dlio_torch.data.dataset.file_counts import FileCounts
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.engines.batch_loader import BatchLoader
from dlio_torch.data.engines.decoupled.batch_groups import DecoupledSource
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.errors import DataError
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.tfrecord import layout
from dlio_torch.formats.tfrecord.example_proto import _varint
from dlio_torch.formats.tfrecord.framing import frame
from dlio_torch.formats.tfrecord.options import TfrecordConfig
from dlio_torch.iotrace.recorder.spans import NULL

CONFIG = DatasetConfig(
    format="tfrecord",
    fields=[FieldConfig("a", shape=[40, 30]), FieldConfig("n", "int64", shape=[3]), FieldConfig("w", shape=[700])],
    tfrecord=TfrecordConfig(float_lists=["w"]),
)


DRIVER = Path(__file__).parents[2] / "support" / "read_records_driver.c"


def field_of(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


Lists = dict[str, tuple[int, list[bytes]]]  # name -> kind, and the encoded fields of its list


def usual(rng: np.random.Generator, rows: int = 40) -> Lists:
    numbers = b"".join(_varint(int(n) % (1 << 64)) for n in rng.integers(-3, 300, 3))
    return {
        "a": (1, [field_of(1, rng.random((rows, 30), np.float32).tobytes())]),
        "n": (3, [field_of(1, numbers)]),
        "w": (2, [field_of(1, rng.random(700, np.float32).tobytes())]),
    }


def other_order(rng: np.random.Generator) -> Lists:
    return dict(sorted(usual(rng).items(), key=lambda _: rng.random()))


def more_features(rng: np.random.Generator) -> Lists:
    return {"": (1, []), "other": (1, [field_of(1, bytes(int(rng.integers(0, 90))))]), **usual(rng), "z": (3, [])}


def unpacked(rng: np.random.Generator) -> Lists:
    numbers = [b"\x08" + _varint(int(n)) for n in rng.integers(0, 300, 3)]
    return {**usual(rng), "n": (3, numbers), "w": (2, [b"\x0d" + rng.bytes(4) for _ in range(700)])}


def in_runs(rng: np.random.Generator) -> Lists:
    floats = rng.random(700, np.float32).tobytes()
    return {**usual(rng), "w": (2, [field_of(1, floats[:1200]), field_of(1, floats[1200:])])}


def twice(rng: np.random.Generator) -> Lists:
    return {"a": (1, [field_of(1, bytes(9))]), **{f"{name} ": lists for name, lists in usual(rng).items()}}


WRITERS: dict[str, list[Callable[[np.random.Generator], Lists]]] = {
    "usual": [usual],
    "other order": [other_order],
    "more features": [more_features],
    "unpacked": [unpacked],
    "in runs": [in_runs],
    "all": [usual, other_order, more_features, unpacked, in_runs, usual],
}


def record_of(lists: Lists, extra: bytes = b"") -> bytes:
    entries = b""
    for name, (kind, fields) in lists.items():
        entries += field_of(1, field_of(1, name.encode()) + field_of(2, field_of(kind, b"".join(fields))))
    return b"".join(bytes(piece) for piece in frame([field_of(1, entries) + extra]))


def written(
    root: Path, records: list[bytes], options: TfrecordConfig, config: DatasetConfig = CONFIG
) -> tuple[Format, Manifest]:
    path = root / "file.tfrecord"
    path.write_bytes(b"".join(records))
    fmt = create(replace(config, tfrecord=options), 1)
    count = len(records)
    return fmt, Manifest("train", 0, FileCounts([count]), root, [path.name], ".tfrecord")


def outcome(loader: Any) -> Any:
    """All batches as bytes, or the message of the first error."""
    try:
        batches = epoch_of(loader)
    except DataError as error:
        return str(error)
    finally:
        loader.close()
    return [(name, t.shape, t.dtype, t.numpy().tobytes()) for batch in batches for name, t in batch.items()]


def both(
    root: Path, records: list[bytes], order: Any = "sequential", config: DatasetConfig = CONFIG, **options: Any
) -> tuple[Any, Any]:
    """What comes by the faithful path, and by the decoupled engine."""
    fmt, manifest = written(root, records, TfrecordConfig(float_lists=["w"], **options), config)
    sampler = BatchSampler(SamplerSpec(batch_size=len(records), order=order, seed=2), num_samples=len(records))
    loader = BatchLoader(LoaderConfig(engine="decoupled"), DecoupledSource(fmt, manifest, NULL), sampler)
    return outcome(faithful(fmt, manifest, sampler)), outcome(loader)


@pytest.mark.parametrize("order", ["sequential", "shuffled"])
@pytest.mark.parametrize("writers", WRITERS)
def test_whatever_a_writer_does(writers: str, order: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    records = [record_of(writer(rng), rng.bytes(0)) for _ in range(5) for writer in WRITERS[writers]]
    want, got = both(tmp_path, records, order)
    assert want == got
    assert not isinstance(got, str)


def test_without_a_compiler_it_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any, **__: Any) -> None:
        raise native.NativeUnavailable("a test")

    monkeypatch.setattr(layout, "NativeRecords", none)
    rng = np.random.default_rng(5)
    want, got = both(tmp_path, [record_of(writer(rng)) for writer in WRITERS["all"]])
    assert want == got
    assert not isinstance(got, str)


@pytest.mark.parametrize("verify", [True, False])
def test_damage_is_told_as_the_faithful_path_tells_it(verify: bool, tmp_path: Path) -> None:
    rng, positions = np.random.default_rng(5), random.Random(1)
    records = [record_of(usual(rng)) for _ in range(3)]
    told = 0
    for at in [
        0,
        3,
        9,
        12,
        13,
        30,
        6000,
        *(positions.randrange(len(records[1])) for _ in range(10)),
        len(records[1]) - 1,
    ]:
        bad = bytearray(records[1])
        bad[at] ^= 1 << positions.randrange(8)
        want, got = both(tmp_path, [records[0], bytes(bad), records[2]], verify_crc=verify)
        assert want == got, at
        told += isinstance(got, str)
    assert told >= 15 if verify else told < 15


def test_large_records_are_checked_piece_by_piece(tmp_path: Path) -> None:
    rng, rows = np.random.default_rng(5), 5000
    fields = [FieldConfig("a", shape=[rows, 30]), *CONFIG.fields[1:]]
    config = replace(CONFIG, fields=fields)
    records = [record_of(usual(rng, rows)) for _ in range(3)]
    want, got = both(tmp_path, records, config=config)
    assert want == got
    assert not isinstance(got, str)
    size = len(records[1])
    for at in [0, 9, 13, 30, 100, 150_000, 400_000, 4 * 30 * rows + 90, size - 2000, size - 5, size - 1]:
        bad = bytearray(records[1])
        bad[at] ^= 4
        want, got = both(tmp_path, [records[0], bytes(bad), records[2]], config=config)
        assert want == got, at
        assert isinstance(got, str)
    want, got = both(tmp_path, [*records[:2], records[2][:400_000]], config=config)
    assert want == got
    assert isinstance(got, str)


def test_a_feature_that_is_missing_or_of_another_size_is_told(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    for change in ({"w": (1, [field_of(1, bytes(2800))])}, {"a": (1, [field_of(1, bytes(4796))])}, {"n": (3, [])}):
        want, got = both(tmp_path, [record_of(usual(rng)), record_of({**usual(rng), **change})])
        assert want == got
        assert isinstance(got, str)
    want, got = both(tmp_path, [record_of(usual(rng)), record_of(twice(rng))])
    assert want == got


@pytest.mark.parametrize("rows", [40, 5000])
def test_no_sanitizer_complains(rows: int, tmp_path: Path) -> None:
    program = compiled(
        DRIVER,
        tmp_path / "driver",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        "-Wno-stringop-overread",
    )
    rng, places = np.random.default_rng(5), random.Random(1)
    sound = b"".join(record_of(usual(rng, rows)) for _ in range(4))
    contents = [sound, sound[: len(sound) * 5 // 8]]
    for _ in range(20):
        damaged = bytearray(sound)
        for _ in range(places.randint(1, 3)):
            near = places.choice([0, 12, 60, 120 * rows, len(sound) // 4, len(sound) // 2])
            damaged[(near + places.randrange(200)) % len(sound)] = places.randrange(256)
        contents.append(bytes(damaged))
    files = [tmp_path / f"{number}.tfrecord" for number in range(len(contents))]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    environment = {**os.environ, "LD_PRELOAD": ""}
    done = subprocess.run(
        [program, str(rows), *files], capture_output=True, text=True, check=False, timeout=600, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert 6 * 4 < int(done.stdout) < 6 * 4 * len(files)


@given(st.binary(max_size=9000), st.integers(0, 7))
@settings(max_examples=60, deadline=None)
def test_checksums_are_those_of_the_package(data: bytes, skipped: int) -> None:
    library = native.load("read_records")
    library.dlio_crc32c.restype = ctypes.c_uint32
    data = data[skipped:]
    assert library.dlio_crc32c(ctypes.c_char_p(data), ctypes.c_int64(len(data))) == google_crc32c.value(data)


PROGRAM = """
import sys
import numpy as np
from pathlib import Path
from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.formats.tfrecord.options import TfrecordConfig
from dlio_torch.formats.core.registry import create
fields = [FieldConfig("a", shape=[40, 30]), FieldConfig("n", "int64", shape=[3]), FieldConfig("w", shape=[700])]
options = TfrecordConfig(float_lists=["w"])
fmt = create(DatasetConfig(format="tfrecord", fields=fields, tfrecord=options), 1)
file = fmt.layout(Path("file.tfrecord"))
records = file.records
rows = np.arange(60)
memory = np.zeros((60, 8000), np.uint8)
into = 8000 * rows[:, None] + np.array([0, 4800, 4824])
plan = records.plan(rows, into)
for low in (0, 20):
    records.read(plan, low, low + 20, memory.__array_interface__["data"][0], 100_000)
"""


@needs_strace
def test_neighbours_are_read_together(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    rng = np.random.default_rng(5)
    records = [record_of(usual(rng)) for _ in range(60)]
    written(folder, records, TfrecordConfig())
    calls = straced(PROGRAM, folder)["file.tfrecord"]
    # The scan for records looks at their headers through blocks; then twenty records are two requests.
    sizes = [len(record) for record in records]
    assert results(calls, "pread64", "preadv")[-4:] == [
        sum(sizes[:13]), sum(sizes[13:20]), sum(sizes[20:33]), sum(sizes[33:40]),
    ]  # fmt: skip
    assert [call for call, _, _ in calls if call.startswith("p")][-4:] == ["pread64", *["preadv"] * 3]
    assert len(calls) < 20
