"""TFRecord files: framing, Example protos, the calls that TensorFlow makes, and TensorFlow itself."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from example_protos import example_class
from hypothesis import given
from hypothesis import strategies as st
from optional_parts import tensorflow_python

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import ConfigError, MissingPackageError
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.testing.contract import FormatContract, check_batch, read, refusal, write
from dlio_torch.formats.tfrecord.example_proto import Decoder, Feature, encode
from dlio_torch.formats.tfrecord.format import CLASSES
from dlio_torch.formats.tfrecord.framing import crc32c, frame, masked
from dlio_torch.formats.tfrecord.options import TfrecordConfig
from dlio_torch.formats.tfrecord.record_block import by_columns, one_by_one

ARRAYS = DatasetConfig(
    format="tfrecord",
    fields=[FieldConfig("x", "float32", [30, 20]), FieldConfig("half", "float16", [3]), FieldConfig("y", "int64", [5])],
)
IMAGES = DatasetConfig(
    format="tfrecord",
    fields=[
        FieldConfig("image/encoded", "uint8", [], length_mean=3000, length_stdev=900),
        FieldConfig("image/class/label", "int64", []),
        FieldConfig("track", "float64", [3], length_mean=9, length_stdev=4),
        FieldConfig("weights", "float32", [4]),
    ],
    tfrecord=TfrecordConfig(transfer_size=1000, float_lists=["weights"]),
)
COSMOFLOW = DatasetConfig(
    format="tfrecord",
    fields=[
        FieldConfig("3Dmap", "float32", [128, 128, 128, 4]),
        FieldConfig("unitPar", "float32", [4]),
        FieldConfig("physPar", "float32", [4]),
    ],
)
INDEXED = replace(ARRAYS, tfrecord=TfrecordConfig(index=True))
GZIP = replace(ARRAYS, tfrecord=TfrecordConfig(compression="gzip", compressibility=0.5, transfer_size=700))


class TestContract(FormatContract):
    configs: ClassVar[Mapping[str, DatasetConfig]] = {
        "arrays": ARRAYS,
        "images": IMAGES,
        "indexed": INDEXED,
        "unverified": replace(IMAGES, tfrecord=replace(IMAGES.tfrecord, verify_crc=False)),
        "gzip": GZIP,
        "zlib": replace(ARRAYS, tfrecord=TfrecordConfig(compression="zlib", compressibility=0.5, transfer_size=700)),
        "gzip indexed": replace(IMAGES, tfrecord=TfrecordConfig(compression="gzip", index=True)),
    }


def joined(pieces: list[Any]) -> bytes:
    return b"".join(bytes(piece) for piece in pieces)


def streamed(fmt: Format, path: Path) -> list[dict[str, np.ndarray[Any, Any]]]:
    with closing(fmt.open(path)) as reader:
        return list(fmt.stream(reader))


# --- bytes ------------------------------------------------------------------------------------------


def test_an_empty_record_is_what_tensorflow_writes() -> None:
    assert joined(frame([])).hex() == "0000000000000000" + "29039807" + "d8ea82a2"


def test_checksums_are_those_of_the_standard() -> None:
    crc = crc32c()(0, bytes(32))
    assert crc == 0x8A9136AA  # RFC 3720, B.4
    assert masked(crc) == (((crc >> 15) | (crc << 17 & 0xFFFFFFFF)) + 0xA282EAD8) % (1 << 32)


def test_a_cosmoflow_file_has_the_published_size(tmp_path: Path) -> None:
    fmt = create(replace(COSMOFLOW, samples_per_file=1), 1)
    size = write(fmt, tmp_path / "one", 0, 1).stat().st_size
    assert size == 33_554_432 + 114
    assert 64 * size == 2_147_490_944
    assert fmt.stored_bytes() == pytest.approx(size, abs=20)
    assert fmt.differences(0, streamed(fmt, tmp_path / "one")[0]) is None


def test_gzip_holds_the_same_bytes_in_one_stream_without_a_time(tmp_path: Path) -> None:
    compressed = write(create(GZIP, 1), tmp_path / "gz", 0, 900).read_bytes()
    plain = write(create(replace(GZIP, tfrecord=TfrecordConfig(compressibility=0.5)), 1), tmp_path / "plain", 0, 900)
    assert gzip.decompress(compressed) == plain.read_bytes()
    assert plain.stat().st_size > 2 << 20  # more parts than one
    assert compressed[:10].hex() == "1f8b0800000000000003"
    assert len(compressed) < 0.8 * plain.stat().st_size


FEATURES = [
    Feature(ArraySpec("a", np.dtype("float32"), (2,), variable=True), "bytes"),
    Feature(ArraySpec("b", np.dtype("int64"), (), variable=True), "integers"),
    Feature(ArraySpec("c", np.dtype("float32"), (), variable=True), "floats"),
]
INT64 = st.integers(-(2**63), 2**63 - 1)


@given(
    rows=st.integers(1, 40),
    integers=st.lists(st.one_of(INT64, st.integers(0, 300)), min_size=1, max_size=30),
    floats=st.integers(1, 9),
)
@pytest.mark.parametrize("packed", [True, False])
def test_examples_are_those_of_protobuf(packed: bool, rows: int, integers: list[int], floats: int) -> None:
    sample = {
        "a": np.arange(2 * rows, dtype=np.float32).reshape(rows, 2),
        "b": np.array(integers, np.int64),
        "c": np.arange(floats, dtype=np.float32),
    }
    made = example_class(packed)()
    made.features.feature["a"].bytes_list.value.append(sample["a"].tobytes())
    made.features.feature["b"].int64_list.value.extend(integers)
    made.features.feature["c"].float_list.value.extend(sample["c"].tolist())
    made.features.feature["other"].int64_list.value.append(1)
    theirs = made.SerializeToString(deterministic=True)
    got = Decoder(FEATURES).decode(np.frombuffer(theirs, np.uint8))
    assert {name: array.tolist() for name, array in got.items()} == {k: v.tolist() for k, v in sample.items()}

    ours = joined(encode(FEATURES, sample))
    if packed:  # names in order and no others: the very same bytes
        del made.features.feature["other"]
        assert ours == made.SerializeToString(deterministic=True)
    else:
        parsed = example_class(packed)()
        parsed.ParseFromString(ours)
        assert list(parsed.features.feature["b"].int64_list.value) == integers


@given(data=st.data())
def test_damaged_examples_are_refused_and_nothing_else(data: st.DataObject) -> None:
    """Whatever the bytes, decoding gives arrays as specified or raises ValueError."""
    sample = {"a": np.ones((3, 2), np.float32), "b": np.array([5, -1, 300]), "c": np.ones(2, np.float32)}
    record = bytearray(joined(encode(FEATURES, sample)))
    for _ in range(data.draw(st.integers(1, 3))):
        record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
    record = record[: data.draw(st.integers(0, len(record)))]
    try:
        got = Decoder(FEATURES).decode(np.frombuffer(bytes(record), np.uint8))
    except ValueError:
        return
    assert [array.dtype.name for array in got.values()] == ["float32", "int64", "float32"]


# --- reading ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("transfer_size", [1, 100, 2500, 262_144])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_stream_gives_each_sample_in_order(compression: Any, transfer_size: int, tmp_path: Path) -> None:
    options = replace(IMAGES.tfrecord, compression=compression, transfer_size=transfer_size)
    fmt = create(replace(IMAGES, tfrecord=options), 3)
    path = write(fmt, tmp_path / "file", 5, 4)
    with closing(fmt.open(path)) as reader:
        for _ in range(2):  # the second pass reads anew
            found = list(fmt.stream(reader))
            assert [fmt.differences(5 + i, sample) for i, sample in enumerate(found)] == [None] * 4
        check_batch(fmt, read(fmt, reader, [2, 1], indices=[7, 6]), [7, 6])


def test_streamed_arrays_are_views_aligned_and_writeable(tmp_path: Path) -> None:
    fmt = create(ARRAYS, 3)
    first, *others = (sample["x"] for sample in streamed(fmt, write(fmt, tmp_path / "file", 0, 4)))
    assert all(array.flags.aligned and array.flags.writeable for array in [first, *others])
    assert not any(array.flags.owndata for array in others)
    assert all(array.ctypes.data % 64 == 0 for array in others)


@pytest.mark.parametrize("size", [262_144 - 200, 262_144, 1 << 20, 3_000_001])
def test_content_that_gzip_makes_tiny(size: int, tmp_path: Path) -> None:
    """All of the file is taken long before its content has come out."""
    options = TfrecordConfig(compression="gzip", compressibility=1.0)
    fmt = create(DatasetConfig(format="tfrecord", fields=[FieldConfig("x", "uint8", [size])], tfrecord=options), 1)
    path = write(fmt, tmp_path / "file", 0, 2)
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), 9))
    assert path.stat().st_size < 9000
    assert [fmt.differences(i, s) for i, s in enumerate(streamed(fmt, path))] == [None] * 2


def test_another_gzip_stream_may_follow(tmp_path: Path) -> None:
    fmt = create(GZIP, 3)
    one, two = (write(fmt, tmp_path / str(first), first, 2).read_bytes() for first in (0, 2))
    (tmp_path / "both").write_bytes(one + two)
    assert [fmt.differences(i, s) for i, s in enumerate(streamed(fmt, tmp_path / "both"))] == [None] * 4


def test_the_index_is_what_dali_reads(tmp_path: Path) -> None:
    fmt = create(INDEXED, 3)
    path = write(fmt, tmp_path / "file.tfrecord", 0, 5)
    lines = (tmp_path / "file.tfrecord.idx").read_text().splitlines()
    offset, found = 0, []
    while offset < path.stat().st_size:  # as NVIDIA's tfrecord2idx does
        length = struct.unpack_from("<q", path.read_bytes(), offset)[0] + 16
        found.append(f"{offset} {length}")
        offset += length
    assert lines == found
    assert len(lines) == 5
    assert fmt.companions() == (".idx",)
    assert create(ARRAYS, 3).companions() == ()


def test_without_its_index_a_file_is_looked_through(tmp_path: Path) -> None:
    fmt = create(INDEXED, 3)
    path = write(fmt, tmp_path / "file", 0, 5)
    (tmp_path / "file.idx").unlink()
    with closing(fmt.open(path)) as reader:
        check_batch(fmt, read(fmt, reader, [4, 0]), [4, 0])
    assert fmt.inspect(path).num_samples == 5


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["uint8", "bool", "int16", "float32", "int64"]), st.lists(st.integers(1, 4), max_size=2)
        ),
        min_size=1,
        max_size=3,
    ),
    st.integers(1, 9),
    st.randoms(use_true_random=False),
)
def test_records_made_by_columns_are_those_made_one_by_one(
    fields: list[tuple[str, list[int]]], count: int, random: Any
) -> None:
    features, arrays = [], []
    for number, (dtype, shape) in enumerate(fields):
        kind: Any = (
            "integers" if dtype == "int64" else random.choice(["bytes", "floats"]) if dtype == "float32" else "bytes"
        )
        features.append(Feature(ArraySpec(f"f{number}", np.dtype(dtype), tuple(shape)), kind))
        made = np.frombuffer(random.randbytes(8 * count * int(np.prod(shape))), np.uint64)
        # Integers of any length, negative ones, too; floats that are no numbers are equal as bytes.
        values = (
            (made >> np.uint64(random.choice([0, 20, 50, 57]))).view(np.int64)
            if dtype == "int64"
            else made.astype(dtype)
        )
        arrays.append(values.reshape(count, *shape))
    pieces, lengths = by_columns(features, [array.reshape(count, -1) for array in arrays])
    single, alone = one_by_one(features, [list(array) for array in arrays])
    assert lengths.tolist() == alone.tolist()
    assert joined(pieces) == joined(single)


@pytest.mark.parametrize("index", [False, True])
def test_small_samples_make_the_same_file_as_large_ones(
    index: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(ARRAYS, samples_per_file=50, tfrecord=TfrecordConfig(index=index))
    made = []
    for small in (0, 1 << 20):
        monkeypatch.setattr("dlio_torch.formats.tfrecord.format.SMALL", small)
        fmt = create(config, 3)
        path = tmp_path / str(small)
        write(fmt, path, 0, 50)
        made.append([other.read_bytes() for other in fmt.files(path) if other.exists()])
    assert made[0] == made[1]
    assert len(made[0]) == 1 + index


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the records in the index are not adjacent"),
        ("0 2500\n", "has .* bytes, but its index"),
        ("0 2500\n9 2500\n", "the records in the index are not adjacent"),
        ("0 2500\nabc 9\n", "is not an index"),
        ("0\n", "is not an index"),
        (f"0 {1 << 70}\n", "is not an index"),
        ("0 -20\n-20 40\n", "the records in the index are not adjacent"),
    ],
)
def test_a_damaged_index_is_refused(text: str, words: str, tmp_path: Path) -> None:
    fmt = create(INDEXED, 3)
    path = write(fmt, tmp_path / "file", 0, 5)
    (tmp_path / "file.idx").write_text(text)
    assert re.search(words, refusal(lambda: fmt.open(path)))


def test_an_index_that_lies_inside_the_file_is_found_out(tmp_path: Path) -> None:
    fmt = create(INDEXED, 3)
    path = write(fmt, tmp_path / "file", 0, 2)
    size = path.stat().st_size
    (tmp_path / "file.idx").write_text(f"0 1000\n1000 {size - 1000}\n")
    with closing(fmt.open(path)) as reader:
        assert "the index states 984" in refusal(lambda: read(fmt, reader, [0]))
        assert "record 1 at byte 1000: the checksum of the record's length" in refusal(lambda: read(fmt, reader, [1]))


# --- damage -----------------------------------------------------------------------------------------


def record_of(length: int, data: bytes = b"") -> bytes:
    """A record whose header tells any length, with the right checksum."""
    header = struct.pack("<Q", length)
    return header + struct.pack("<I", masked(crc32c()(0, header))) + data


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 1 << 45, (1 << 62) - 16])
def test_an_absurd_length_is_refused(length: int, compression: Any, verify: bool, tmp_path: Path) -> None:
    options = TfrecordConfig(compression=compression, verify_crc=verify)
    fmt = create(replace(ARRAYS, tfrecord=options), 3)
    good = write(fmt, tmp_path / "good", 0, 1).read_bytes()
    bad = record_of(length, b"abc")
    (tmp_path / "bad").write_bytes(good + (gzip.compress(bad) if compression == "gzip" else bad))
    line = refusal(lambda: streamed(fmt, tmp_path / "bad"))
    assert re.search(rf"bad: record 1 at byte \d+: the record's length of {length} bytes", line)
    assert "record 1 at" in refusal(lambda: fmt.inspect(tmp_path / "bad"))


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (0, "of the record's length"),
        (8, "of the record's length"),
        (12, "of the record's data"),
        (-1, "of the record's data"),
    ],
)
def test_a_wrong_byte_is_told_with_record_and_offset(at: int, words: str, tmp_path: Path) -> None:
    fmt = create(ARRAYS, 3)
    path = write(fmt, tmp_path / "file", 0, 1)
    size = path.stat().st_size
    record = bytearray(write(fmt, path, 0, 3).read_bytes())
    record[size + at if at >= 0 else 2 * size - 1] ^= 1
    path.write_bytes(record)
    message = f"{path}: record 1 at byte {size}: the checksum {words} is wrong"
    assert message in refusal(lambda: streamed(fmt, path))
    with closing(fmt.open(path)) as reader:
        assert message in refusal(lambda: read(fmt, reader, [1]))
    if at == -1:  # nobody looks at the checksum, and the data are sound
        trusting = create(replace(ARRAYS, tfrecord=TfrecordConfig(verify_crc=False)), 3)
        assert len(streamed(trusting, path)) == 3


@pytest.mark.parametrize("config", [ARRAYS, GZIP], ids=["plain", "gzip"])
def test_a_cut_file_gives_what_is_whole_and_then_an_error(config: DatasetConfig, tmp_path: Path) -> None:
    fmt = create(config, 3)
    path = write(fmt, tmp_path / "file", 0, 3)
    whole = path.read_bytes()
    for size in range(1, len(whole) - 1, 97):
        path.write_bytes(whole[:size])
        line = refusal(lambda: streamed(fmt, path))
        assert str(path) in line


def test_a_compressed_file_is_recognised(tmp_path: Path) -> None:
    path = write(create(GZIP, 3), tmp_path / "file", 0, 1)
    assert "compression=gzip" in refusal(lambda: create(ARRAYS, 3).open(path))
    path = write(create(ARRAYS, 3), tmp_path / "file", 0, 1)
    assert "is not a gzip or zlib file or is damaged" in refusal(lambda: create(GZIP, 3).open(path))


def test_other_features_are_told(tmp_path: Path) -> None:
    path = write(create(ARRAYS, 3), tmp_path / "file", 0, 1)
    for field, words in [
        (FieldConfig("z", "uint8", [4]), "the record has no feature 'z'; its features are: half, x, y"),
        (FieldConfig("x", "float32", [31, 20]), "feature 'x' has 2400 bytes, but dataset.fields expect 2480"),
        (FieldConfig("x", "float32", [7], length_mean=3), "expect a multiple of 28"),
        (FieldConfig("y", "uint8", [4]), "feature 'y' is a list of integers, but dataset.fields expect bytes"),
        (FieldConfig("y", "int64", [4]), "feature 'y' has 40 bytes, but dataset.fields expect 32"),
    ]:
        fmt = create(DatasetConfig(format="tfrecord", fields=[field]), 3)
        line = refusal(lambda: fmt.inspect(path))  # noqa: B023
        assert words in line
        assert f"{path}: record 0 at byte 0" in line


# --- options ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (TfrecordConfig(float_lists=["nothing"]), "float_lists names 'nothing'"),
        (TfrecordConfig(float_lists=["half"]), "half: dtype=float16 cannot be stored as a list of floats"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: TfrecordConfig, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        create(replace(ARRAYS, tfrecord=options), 1)


def test_a_missing_package_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    with pytest.raises(MissingPackageError, match=re.escape("pip install 'dlio-torch[tfrecord]'")):
        create(ARRAYS, 1)


def test_options_of_reading_leave_the_files_alone() -> None:
    one = create(ARRAYS, 1).layout_options()
    assert (
        create(replace(ARRAYS, tfrecord=TfrecordConfig(transfer_size=5, verify_crc=False)), 1).layout_options() == one
    )
    assert create(replace(ARRAYS, tfrecord=TfrecordConfig(compression_level=9)), 1).layout_options() == one
    assert create(INDEXED, 1).layout_options() != one


def test_generated_integers_are_labels() -> None:
    labels = np.concatenate([create(ARRAYS, 1).expected(sample)["y"] for sample in range(400)])
    assert 0 <= labels.min() < labels.max() < CLASSES
    assert len(set(labels.tolist())) > 0.8 * CLASSES


# --- system calls -----------------------------------------------------------------------------------

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")

PROGRAM = """
import sys
from pathlib import Path
from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.formats.tfrecord.options import TfrecordConfig
from dlio_torch.formats.core.batch import BatchBuffer
from dlio_torch.formats.core.registry import create

path, compression, index, rows = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "index", sys.argv[4:]
fields = [FieldConfig("x", "uint8", [], length_mean=90000, length_stdev=20000), FieldConfig("y", "int64", [])]
fmt = create(
    DatasetConfig(format="tfrecord", fields=fields, tfrecord=TfrecordConfig(compression=compression, index=index)), 1
)
reader = fmt.open(path)
if rows:
    for row in rows:
        reader.read(int(row), 1, BatchBuffer(fmt.specs(), [0]), 0)
else:
    assert sum(1 for _ in fmt.stream(reader)) == 8
reader.close()
"""


def program_format(**options: Any) -> Format:
    """The format that PROGRAM uses."""
    fields = [FieldConfig("x", "uint8", [], length_mean=90000, length_stdev=20000), FieldConfig("y", "int64", [])]
    return create(DatasetConfig(format="tfrecord", fields=fields, tfrecord=TfrecordConfig(**options)), 1)


def calls(path: Path, *command: str) -> list[tuple[str, int, int, int]]:
    """Calls of ``command`` on the file: name, bytes asked for, offset, bytes got."""
    log = path.parent / "strace"
    options = ["-f", "--seccomp-bpf", "-y", "-s", "0", "-o", str(log)]
    trace = "-etrace=openat,read,readv,pread64,preadv,lseek,mmap,stat,fstat,newfstatat,close"
    subprocess.run(["strace", *options, trace, *command], check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    found = []
    for line in log.read_text(errors="replace").splitlines():
        match = re.match(r"\d+\s+(\w+)\((.*)\) += (\d+)", line)
        if match and (
            f"<{path}>" in match[2] or f'"{path}"' in match[2] or (match[1] == "openat" and f"<{path}>" in line)
        ):
            numbers = [int(n) for n in re.findall(r", (\d+)(?=,|$)", match[2])]
            if match[1] == "pread64":
                found.append((match[1], numbers[0], numbers[1], int(match[3])))
            else:
                found.append((match[1], 0, 0, 0))
    return found


def transfers(size: int, transfer: int = 262_144) -> list[tuple[str, int, int, int]]:
    """What TensorFlow calls to read a file of ``size`` bytes from start to end."""
    made = [("openat", 0, 0, 0)]
    for offset in range(0, size, transfer):
        made.append(("pread64", transfer, offset, min(transfer, size - offset)))
    tail = size % transfer
    return [*made, ("pread64", transfer - tail, size, 0), ("close", 0, 0, 0)]


@needs_strace
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_stream_makes_the_calls_of_tensorflow(compression: Any, tmp_path: Path) -> None:
    path = write(program_format(compression=compression), tmp_path / "file", 0, 8)
    size = path.stat().st_size
    assert size > 2 * 262_144
    assert calls(path, sys.executable, "-c", PROGRAM, str(path), compression, "none") == transfers(size)


def test_transfers_end_as_tensorflow_s_do() -> None:
    """Traced with TensorFlow 2.21: files of 800,704 bytes and of twice the buffer."""
    assert [call[1:] for call in transfers(800_704)[-4:-1]] == [
        (262_144, 524_288, 262_144),
        (262_144, 786_432, 14_272),
        (247_872, 800_704, 0),
    ]
    assert [call[1:] for call in transfers(524_288)[-3:-1]] == [(262_144, 262_144, 262_144), (262_144, 524_288, 0)]


@needs_strace
def test_random_access_reads_the_very_records(tmp_path: Path) -> None:
    path = write(program_format(index=True), tmp_path / "file", 0, 8)
    index = np.loadtxt(tmp_path / "file.idx", dtype=np.int64)
    found = calls(path, sys.executable, "-c", PROGRAM, str(path), "none", "index", "5", "0", "7")
    assert [call for call in found if call[0] == "pread64"] == [
        ("pread64", index[row, 1], index[row, 0], index[row, 1]) for row in (5, 0, 7)
    ]
    assert [call[0] for call in found if "stat" not in call[0]] == ["openat", *["pread64"] * 3, "close"]


@needs_strace
def test_a_compressed_file_that_is_read_in_order_is_read_once(tmp_path: Path) -> None:
    path = write(program_format(compression="gzip"), tmp_path / "file", 0, 8)
    found = calls(path, sys.executable, "-c", PROGRAM, str(path), "gzip", "none", *map(str, range(8)))
    offsets = [call[2] for call in found if call[0] == "pread64"]
    assert offsets == sorted(offsets)
    assert len(set(offsets)) == len(offsets)


# --- TensorFlow -------------------------------------------------------------------------------------

TENSORFLOW = """
import hashlib, json, sys
import tensorflow as tf

def options(path):
    return "GZIP" if path.endswith("gz") else ""

spec = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string), "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    "track": tf.io.FixedLenFeature([], tf.string), "weights": tf.io.FixedLenFeature([4], tf.float32),
}
task, *paths = sys.argv[1:]
answers = {}
for path in paths:
    if task == "write":
        with tf.io.TFRecordWriter(path, options(path)) as writer:
            for i in range(5):
                lists = {
                    "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[bytes([i]) * (100000 + i)])),
                    "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[i - 2])),
                    "track": tf.train.Feature(bytes_list=tf.train.BytesList(value=[bytes(24 * (i + 1))])),
                    "weights": tf.train.Feature(float_list=tf.train.FloatList(value=[i, 0.5, 1.5, 2.5])),
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=lists)).SerializeToString())
        continue
    digest, error, count = hashlib.sha256(), None, 0
    try:
        for record in tf.data.TFRecordDataset([path], compression_type=options(path)):
            example = tf.io.parse_single_example(record, spec)
            for name in spec:
                value = example[name].numpy()
                digest.update(value if isinstance(value, bytes) else value.tobytes())
            count += 1
    except tf.errors.DataLossError as caught:
        error = type(caught).__name__
    answers[path] = [count, error, digest.hexdigest()]
print(json.dumps(answers))
"""


def tensorflow(*arguments: str, before: tuple[str, ...] = ()) -> Any:
    """What TensorFlow says of files."""
    command = [*before, str(tensorflow_python()), "-c", TENSORFLOW, *arguments]
    quiet = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    out = subprocess.run(command, check=True, env=quiet, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return json.loads(out.stdout)


@pytest.mark.needs("tensorflow")
def test_tensorflow_reads_our_files_and_refuses_bad_ones(tmp_path: Path) -> None:
    import hashlib

    formats = {
        "file.plain": create(replace(IMAGES, tfrecord=TfrecordConfig(float_lists=["weights"])), 3),
        "file.gz": create(replace(IMAGES, tfrecord=TfrecordConfig(float_lists=["weights"], compression="gzip")), 3),
    }
    paths = [str(write(fmt, tmp_path / name, 0, 900)) for name, fmt in formats.items()]
    assert (tmp_path / "file.plain").stat().st_size > 2 << 20
    content = (tmp_path / "file.plain").read_bytes()
    for name, at in [("bad_length", 9), ("bad_data", len(content) // 2)]:
        broken = bytearray(content)
        broken[at] ^= 1
        (tmp_path / name).write_bytes(broken)
        paths.append(str(tmp_path / name))
    digest = hashlib.sha256()
    fmt = formats["file.plain"]
    for sample in range(900):
        for array in fmt.expected(sample).values():
            digest.update(array.tobytes())
    found = tensorflow("read", *paths)
    assert found[paths[0]] == found[paths[1]] == [900, None, digest.hexdigest()]
    assert found[paths[2]][:2] == [0, "DataLossError"]
    assert found[paths[3]][1] == "DataLossError"
    assert 0 < found[paths[3]][0] < 900


@pytest.mark.needs("tensorflow")
def test_we_read_tensorflow_s_files(tmp_path: Path) -> None:
    paths = [tmp_path / "theirs.plain", tmp_path / "theirs.gz"]
    tensorflow("write", *map(str, paths))
    for path, compression in zip(paths, ("none", "gzip"), strict=True):
        options: Any = {"float_lists": ["weights"], "compression": compression}
        fmt = create(replace(IMAGES, tfrecord=TfrecordConfig(**options)), 3)
        found = streamed(fmt, path)
        assert fmt.inspect(path).num_samples == len(found) == 5
        for i, sample in enumerate(found):
            assert sample["image/encoded"].tobytes() == bytes([i]) * (100_000 + i)
            assert sample["image/class/label"] == i - 2
            assert sample["track"].shape == (i + 1, 3)
            assert sample["weights"].tolist() == [i, 0.5, 1.5, 2.5]


@pytest.mark.needs("tensorflow")
@needs_strace
def test_tensorflow_makes_the_calls_that_we_make(tmp_path: Path) -> None:
    options = TfrecordConfig(float_lists=["weights"])
    path = write(create(replace(IMAGES, tfrecord=options), 3), tmp_path / "file", 0, 200)
    command = [str(tensorflow_python()), "-c", TENSORFLOW, "read", str(path)]
    assert calls(path, *command) == transfers(path.stat().st_size)
