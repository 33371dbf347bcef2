"""The format indexed_binary: files as Megatron-LM's, system calls as its two readers'."""

from __future__ import annotations

import hashlib
import pickle
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from straced import needs_strace, results, straced

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.batch import BatchBuffer
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.payload import document_lengths
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.indexed_binary.index import read_index
from dlio_torch.formats.indexed_binary.options import BinaryConfig
from dlio_torch.formats.testing.contract import SEED, FormatContract, check_batch, is_open, read, refusal, write
from dlio_torch.native.build import find_compiler

TEXT = {"length_mean": 300, "length_stdev": 90}


def config(field: FieldConfig, **options: Any) -> DatasetConfig:
    return DatasetConfig(format="indexed_binary", fields=[field], binary=BinaryConfig(**options))


TOKENS = FieldConfig("tokens", "uint16", [1001])
ROWS = FieldConfig("rows", "int32", [33, 41])


class TestContract(FormatContract):
    configs: ClassVar = {
        "file": config(TOKENS),
        "mmap": config(TOKENS, access="mmap"),
        "variable_file": config(FieldConfig("tokens", "int32", [], **TEXT)),
        "variable_mmap": config(FieldConfig("tokens", "uint8", [3], **TEXT), access="mmap"),
        "other_types": config(FieldConfig("x", "float16", [9], **TEXT)),
        "documents_file": config(TOKENS, document_mean=700, document_stdev=250),
        "documents_mmap": config(TOKENS, access="mmap", document_mean=90, document_stdev=30),
        "records_file": config(ROWS, index=False),
        "records_mmap": config(ROWS, access="mmap", index=False),
    }


def test_the_layout_is_megatron_s(tmp_path: Path) -> None:
    fmt = create(config(FieldConfig("tokens", "uint16", [], **TEXT)), SEED)
    path = write(fmt, tmp_path / "text.bin", 4, 3)
    want = [fmt.expected(sample)["tokens"] for sample in (4, 5, 6)]
    assert path.read_bytes() == b"".join(array.tobytes() for array in want)
    lengths = np.array([len(array) for array in want])
    pointers = np.concatenate([[0], np.cumsum(lengths)[:-1]]) * 2
    index = (
        b"MMIDIDX\0\0"
        + struct.pack("<QBQQ", 1, 8, 3, 4)
        + lengths.astype(np.int32).tobytes()
        + pointers.astype(np.int64).tobytes()
        + np.arange(4, dtype=np.int64).tobytes()
    )
    assert len(index) == 34 + 3 * 4 + 3 * 8 + 4 * 8
    assert (tmp_path / "text.idx").read_bytes() == index


def test_documents_fill_the_file(tmp_path: Path) -> None:
    fmt = create(config(TOKENS, document_mean=50, document_stdev=20), SEED)
    path = write(fmt, tmp_path / "text.bin", 10, 6)
    index = read_index(tmp_path / "text.idx")
    assert index.end() == path.stat().st_size == 6 * 2002 + 2  # and the label of the last token
    assert np.array_equal(index.pointers[1:], np.cumsum(index.lengths.astype(np.int64))[:-1] * 2)
    assert 90 < len(index) < 160
    assert index.lengths[:-1].min() >= 2  # the last one is cut off
    assert 45 < index.lengths.mean() < 55
    assert fmt.inspect(path).num_samples == 6


def test_a_temporary_name(tmp_path: Path) -> None:
    """The generator gives a finished file its name; its index has its own by then."""
    fmt = create(config(TOKENS), SEED)
    part = write(fmt, tmp_path / ".train_0000001.bin.99.part", 7, 2)
    assert sorted(p.name for p in tmp_path.iterdir()) == [part.name, "train_0000001.idx"]
    path = part.rename(tmp_path / "train_0000001.bin")
    with closing(fmt.open(path)) as reader:
        check_batch(fmt, read(fmt, reader, [1, 0]), [8, 7])


def test_an_index_of_many_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Indices are written and checked in blocks."""
    fmt = create(config(FieldConfig("tokens", "int64", [], **TEXT)), SEED)
    write(fmt, tmp_path / "one.bin", 3, 40)
    for module in ("format", "index"):
        monkeypatch.setattr(f"dlio_torch.formats.indexed_binary.{module}._BLOCK", 7)
    path = write(fmt, tmp_path / "many.bin", 3, 40)
    assert (tmp_path / "one.idx").read_bytes() == (tmp_path / "many.idx").read_bytes()
    assert fmt.inspect(path).num_samples == 40


@pytest.mark.parametrize("access", ["file", "mmap"])
def test_sequences_in_another_order(access: str, tmp_path: Path) -> None:
    """Sequences of an existing file may lie anywhere in the .bin."""
    tokens = np.arange(40, dtype=np.uint16)
    path = tmp_path / "a.bin"
    path.write_bytes(tokens.tobytes())
    write_raw(tmp_path / "a.idx", [10, 10, 10], [40, 0, 20], code=8)
    fixed = create(config(FieldConfig("tokens", "uint16", [10]), access=access), SEED)
    varied = create(config(FieldConfig("tokens", "uint16", [], length_mean=5), access=access), SEED)
    want = np.concatenate([tokens[20:30], tokens[0:10], tokens[10:20]])
    for fmt in (fixed, varied):
        with closing(fmt.open(path)) as reader:
            buffer = BatchBuffer(fmt.specs(), range(3))
            reader.read(0, 3, buffer, 0)
            assert np.array_equal(buffer.finish()["tokens"].numpy().reshape(-1), want)


def write_raw(path: Path, lengths: list[int], pointers: list[int], **header: int) -> None:
    values = {"version": 1, "code": 8, "count": len(lengths), "documents": len(lengths) + 1} | header
    path.write_bytes(
        b"MMIDIDX\0\0"
        + struct.pack("<QBQQ", *values.values())
        + np.array(lengths, np.int32).tobytes()
        + np.array(pointers, np.int64).tobytes()
        + np.arange(len(lengths) + 1, dtype=np.int64).tobytes()
    )


def both(fmt: Format, path: Path) -> list[str]:
    """The refusals of inspect and of open with a read of all; each names the file."""

    def use() -> None:
        with closing(fmt.open(path)) as reader:
            read(fmt, reader, range(reader.num_samples or 1))

    lines = [refusal(lambda: fmt.inspect(path)), refusal(use)]
    assert all(str(path.with_suffix("")) in line for line in lines), lines
    assert not is_open(path)
    assert not is_open(path.with_suffix(".idx"))
    return lines


HOSTILE: dict[str, Callable[[Path], None]] = {
    "many": lambda path: write_raw(path, [10, 10], [0, 20], count=1 << 60),
    "overflow": lambda path: write_raw(path, [10, 10], [0, 20], count=(1 << 64) - 1, documents=(1 << 64) - 1),
    "documents": lambda path: write_raw(path, [10, 10], [0, 20], documents=1 << 50),
    "version": lambda path: write_raw(path, [10, 10], [0, 20], version=2),
    "code": lambda path: write_raw(path, [10, 10], [0, 20], code=9),
    "code_0": lambda path: write_raw(path, [10, 10], [0, 20], code=0),
    "other_type": lambda path: write_raw(path, [10, 10], [0, 20], code=4),
    "negative": lambda path: write_raw(path, [10, -10], [0, 20]),
    "before": lambda path: write_raw(path, [10, 10], [-20, 0]),
    "far": lambda path: write_raw(path, [10, 10], [0, (1 << 63) - 8]),
    "beyond": lambda path: write_raw(path, [10, 10], [0, 30]),
    "long": lambda path: write_raw(path, [10, (1 << 31) - 1], [0, 0]),
    "short": lambda path: path.write_bytes(b"MMIDIDX\0\0" + b"\1"),
    "empty": lambda path: path.write_bytes(b""),
    "missing": lambda path: None,
    "magic": lambda path: path.write_bytes(b"TNTIDX\0\0" * 20),
}


@pytest.mark.parametrize("access", ["file", "mmap"])
@pytest.mark.parametrize("variable", [False, True])
@pytest.mark.parametrize("spoil", HOSTILE.values(), ids=list(HOSTILE))
def test_hostile_indices(spoil: Callable[[Path], None], variable: bool, access: str, tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(np.arange(20, dtype=np.uint16).tobytes())
    field = FieldConfig("x", "uint16", [], length_mean=10) if variable else FieldConfig("x", "uint16", [10])
    fmt = create(config(field, access=access), SEED)
    write_raw(tmp_path / "a.idx", [10, 10], [0, 20])
    assert fmt.inspect(path).num_samples == 2
    (tmp_path / "a.idx").unlink()
    spoil(tmp_path / "a.idx")
    both(fmt, path)


def test_samples_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(40))
    write_raw(tmp_path / "a.idx", [9, 11], [0, 18])
    assert all("18 bytes" in line or "9 elements" in line for line in both(fixed(10), path))
    assert create(config(FieldConfig("x", "uint16", [], length_mean=10)), SEED).inspect(path).num_samples == 2
    rows = create(config(FieldConfig("x", "uint16", [2], length_mean=10)), SEED)
    with closing(rows.open(path)) as reader:
        assert "18 bytes" in refusal(lambda: read(rows, reader, [0]))
    assert all("is not a multiple of" in line for line in both(fixed(7, index=False), path))


def test_lengths_of_documents() -> None:
    """Of real text: no document is empty, most are shorter than the mean, a few much longer."""
    lengths = document_lengths(SEED, 1, 0, 200_000, 1128, 1731, (2, 1 << 30))
    assert abs(lengths.mean() / 1128 - 1) < 0.02
    assert abs(lengths.std() / 1731 - 1) < 0.1
    assert 0.45 * 1128 < np.median(lengths) < 0.65 * 1128
    assert (lengths < 16).mean() < 0.001  # a normal distribution that is cut has a quarter of them at the least length
    assert lengths.max() > 20 * 1128
    assert np.array_equal(document_lengths(SEED, 1, 777, 10, 1128, 1731, (2, 1 << 30)), lengths[777:787])


def walked(lengths: list[int], documents: list[int], sample: int) -> list[tuple[int, int]]:
    """The sample index as helpers.cpp of Megatron-LM makes it: document by document."""
    count = (sum(lengths) - 1) // sample
    found, at, offset = [(0, 0)], 0, 0
    while len(found) <= count:
        remaining = sample + 1
        while remaining:
            length = lengths[documents[at]] - offset
            remaining -= length
            if remaining <= 0:
                offset += remaining + length - 1
                remaining = 0
            else:
                at, offset = at + 1, 0
        found.append((at, offset))
    return found


@pytest.mark.parametrize("mean", [3, 40, 700])
def test_samples_are_cut_as_gptdataset_cuts_them(mean: float, tmp_path: Path) -> None:
    fmt = create(config(FieldConfig("x", "uint16", [101]), document_mean=mean, document_stdev=mean), SEED)
    path = write(fmt, tmp_path / "text.bin", 0, 300)
    lengths = read_index(tmp_path / "text.idx").lengths
    random = np.random.RandomState(SEED)
    documents = np.arange(len(lengths), dtype=np.int32)
    random.shuffle(documents)
    samples = np.array(walked(lengths.tolist(), documents.tolist(), 101), np.int32)
    shuffle = np.arange(len(samples) - 1, dtype=np.uint32)
    random.shuffle(shuffle)
    for name, array in {"document": documents, "sample": samples, "shuffle": shuffle}.items():
        [cache] = tmp_path.glob(f"*-GPTDataset-train-{name}_index.npy")
        kept = np.load(cache)
        assert kept.dtype == array.dtype
        assert np.array_equal(kept, array), name
    [description] = tmp_path.glob("*-GPTDataset-train-description.txt")
    digest = hashlib.md5(description.read_bytes(), usedforsecurity=False).hexdigest()
    assert {file.name.split("-")[0] for file in tmp_path.glob("*-GPTDataset-*")} == {digest}
    assert set(fmt.files(path)) == set(tmp_path.iterdir())


def test_documents_without_caches(tmp_path: Path) -> None:
    """As of a data set from elsewhere, whose sequences may lie anywhere."""
    path = tmp_path / "a.bin"
    tokens = np.arange(60, dtype=np.uint16)
    path.write_bytes(tokens.tobytes())
    write_raw(tmp_path / "a.idx", [20, 25], [62, 4])
    fmt = fixed(10, document_mean=9)
    random = np.random.RandomState(SEED)
    documents = np.arange(2)
    random.shuffle(documents)
    stream = np.concatenate([[tokens[31:51], tokens[2:27]][document] for document in documents])
    shuffle = np.arange(4)
    random.shuffle(shuffle)
    with closing(fmt.open(path)) as reader:
        assert reader.num_samples == 4
        got = read(fmt, reader, range(4))["x"].numpy()
    assert np.array_equal(got, [stream[10 * slot : 10 * slot + 10] for slot in shuffle])
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.bin", "a.idx"]


@pytest.mark.parametrize("name", ["document", "sample", "shuffle"])
def test_caches_that_do_not_fit(name: str, tmp_path: Path) -> None:
    fmt = fixed(10, document_mean=9)
    path = write(fmt, tmp_path / "a.bin", 0, 20)
    [cache] = tmp_path.glob(f"*-{name}_index.npy")
    sound = np.load(cache)
    for bad in (sound + 1000, sound.astype(np.int64) - 50, sound[:-1], sound[None], sound.astype(np.float32)):
        np.save(cache, bad)

        def use() -> None:
            with closing(fmt.open(path)) as reader:
                read(fmt, reader, range(20))

        def plan() -> None:
            layout = fmt.layout(path).arrays["x"]
            layout.plan(np.arange(20), np.arange(20) * 20)

        for attempt in (use, plan):
            assert "index of samples" in refusal(attempt)


def fixed(elements: int, **options: Any) -> Format:
    return create(config(FieldConfig("x", "uint16", [elements]), **options), SEED)


def test_configurations_that_cannot_be() -> None:
    variable = FieldConfig("x", length_mean=4)
    wrong = {
        "index=false": config(variable, index=False),
        "document_mean": config(variable, document_mean=4),
        "is below the minimum of 2 elements per document": config(TOKENS, document_mean=1),
        "2147483647": config(FieldConfig("x", "uint8", [1 << 31])),
        "2 arrays": DatasetConfig(format="indexed_binary", fields=[FieldConfig("x"), FieldConfig("y")]),
    }
    for words, bad in wrong.items():
        with pytest.raises(ConfigError, match=words):
            create(bad, SEED)
    # A sample of DLRM: 4,194,304 rows of 160 bytes.
    assert create(config(FieldConfig("x", "uint8", [4194304, 160])), SEED).sample_bytes() == 671088640


def test_the_way_of_reading_does_not_name_the_data_set() -> None:
    names = [create(config(TOKENS, access=access), SEED).layout_options() for access in ("file", "mmap")]
    assert names[0] == names[1]
    assert create(config(TOKENS, index=False), SEED).layout_options() != names[0]
    assert create(config(TOKENS, document_mean=9), SEED).layout_options() != names[0]


# --- system calls ---

# What stands for Megatron-LM makes the calls of its _IndexReader, _FileBinReader and _MMapBinReader.
PROGRAM = """
import pickle, struct
import numpy as np
from pathlib import Path
from dlio_torch.formats.core.batch import BatchBuffer
fmt = pickle.loads(Path("format").read_bytes())
reader = fmt.open(Path("ours.bin").resolve())
for sample in (4, 0, 2):
    reader.read(sample, 1, BatchBuffer(fmt.specs(), [sample]), 0)
reader.close()

idx, bin = str(Path("theirs.idx").resolve()), str(Path("theirs.bin").resolve())
with open(idx, "rb") as stream:
    stream.read(9); stream.read(8); stream.read(1)
    count, documents = struct.unpack("<QQ", stream.read(16))
    start = stream.tell()
map = np.memmap(idx, mode="r", order="C")
view = memoryview(map)
lengths = np.frombuffer(view, np.int32, count, start)
pointers = np.frombuffer(view, np.int64, count, start + lengths.nbytes)
if fmt.config.binary.access == "mmap":
    file = open(bin, mode="rb")
    data = np.memmap(file, mode="r", order="C")
    for sample in (4, 0, 2):
        np.frombuffer(memoryview(data.data), np.uint16, lengths[sample], pointers[sample]).copy()
    del data
    file.close()
else:
    for sample in (4, 0, 2):
        sequence = np.empty(lengths[sample], np.uint16)
        with open(bin, mode="rb", buffering=0) as file:
            file.seek(pointers[sample])
            file.readinto(sequence)
"""


def traced(fmt: Format, folder: Path, samples: int = 5) -> dict[str, list[tuple[str, str, int]]]:
    folder.mkdir()
    write(fmt, folder / "ours.bin", 0, samples)
    for suffix in (".bin", ".idx"):
        shutil.copyfile(folder / f"ours{suffix}", folder / f"theirs{suffix}")
    (folder / "format").write_bytes(pickle.dumps(fmt))
    return straced(PROGRAM, folder)


@needs_strace
def test_system_calls_of_files(tmp_path: Path) -> None:
    calls = traced(create(config(FieldConfig("tokens", "uint16", [], **TEXT)), SEED), tmp_path / "data")
    assert calls["ours.bin"] == calls["theirs.bin"]
    assert [name for name, _, _ in calls["ours.bin"]] == ["openat", "lseek", "read", "close"] * 3
    index = read_index(tmp_path / "data" / "ours.idx")
    assert results(calls["ours.bin"], "lseek") == index.pointers[[4, 0, 2]].tolist()
    assert results(calls["ours.bin"], "read") == (2 * index.lengths[[4, 0, 2]]).tolist()
    # Read through a buffer, then mapped.
    ours, theirs = ([call for call in calls[f"{who}.idx"] if call[0] != "lseek"] for who in ("ours", "theirs"))
    assert ours[: len(theirs)] == theirs


@needs_strace
def test_system_calls_of_maps(tmp_path: Path) -> None:
    calls = traced(create(config(FieldConfig("tokens", "uint16", [], **TEXT), access="mmap"), SEED), tmp_path / "data")
    assert calls["ours.bin"] == calls["theirs.bin"]
    assert results(calls["ours.bin"], "read") == []
    size = (tmp_path / "data" / "ours.bin").stat().st_size
    assert [arguments for name, arguments, _ in calls["ours.bin"] if name == "mmap"] == [
        f"NULL, {size}, PROT_READ, MAP_SHARED, F, 0"
    ]


# GPTDataset with a cache of its indices: np.load maps each; a piece is read for each document, with the next token.
GPT = """
import pickle
from glob import glob
from pathlib import Path
import numpy as np
from dlio_torch.formats.core.batch import BatchBuffer
from dlio_torch.formats.indexed_binary.index import read_index
fmt = pickle.loads(Path("format").read_bytes())
wanted = (4, 0, 2, 3)
reader = fmt.open(Path("ours/text.bin").resolve())
for sample in wanted:
    reader.read(sample, 1, BatchBuffer(fmt.specs(), [sample]), 0)
reader.close()

bin = str(Path("theirs/text.bin").resolve())
mapped = fmt.config.binary.access == "mmap"
if mapped:
    file = open(bin, mode="rb")
    data = memoryview(np.memmap(file, mode="r", order="C").data)
index = read_index(Path("theirs/text.idx").resolve())
documents, samples, shuffle = (
    np.load(*glob(f"{Path('theirs').resolve()}/*-{name}_index.npy"), allow_pickle=True, mmap_mode="r")
    for name in ("document", "sample", "shuffle")
)
for sample in wanted:
    (first, start), (last, end) = samples[shuffle[sample]], samples[shuffle[sample] + 1]
    for position in range(first, last + 1):
        offset = start if position == first else 0
        stop = end + 1 if position == last else index.lengths[documents[position]]
        place = index.pointers[documents[position]] + 2 * offset
        if mapped:
            np.frombuffer(data, np.uint16, stop - offset, place)
        else:
            sequence = np.empty(stop - offset, np.uint16)
            with open(bin, mode="rb", buffering=0) as file:
                file.seek(place)
                file.readinto(sequence)
"""


@needs_strace
@pytest.mark.parametrize("access", ["file", "mmap"])
def test_system_calls_of_documents(access: str, tmp_path: Path) -> None:
    field = FieldConfig("tokens", "uint16", [400])
    fmt = create(config(field, document_mean=150, document_stdev=140, access=access), SEED)
    folder = tmp_path / "data"
    (folder / "ours").mkdir(parents=True)
    write(fmt, folder / "ours" / "text.bin", 0, 5)
    shutil.copytree(folder / "ours", folder / "theirs")
    (folder / "format").write_bytes(pickle.dumps(fmt))
    calls = straced(GPT, folder)
    names = [file.name for file in (folder / "ours").iterdir() if not file.name.endswith(("description.txt", ".idx"))]
    assert len(names) == 4
    for name in names:
        ours, theirs = calls[f"ours/{name}"], calls[f"theirs/{name}"]
        assert [call for call in ours if call[0] != "close"] == [call for call in theirs if call[0] != "close"], name
    if access == "file":
        reads = results(calls["ours/text.bin"], "read")
        assert len(reads) > 6
        assert sum(reads) == 4 * (2 * 401)
    # The .bin first, then its index, then the caches [IndexedDataset.initialize, GPTDataset].
    opened = [name.removeprefix("ours/")[-18:] for name in calls if name.startswith("ours/")]
    kept = ["document_index.npy", "n-sample_index.npy", "-shuffle_index.npy"]
    assert opened == (["text.bin", "text.idx", *kept] if access == "mmap" else ["text.idx", *kept, "text.bin"])


CUT = """
import os, sys
from pathlib import Path
from dlio_torch.formats.indexed_binary.file import MappedFile
path = Path(sys.argv[1])
file = MappedFile(path)
into = memoryview(bytearray(10))
file.read(0, into)
os.truncate(path, 0)
file.read(0, into)
"""


@pytest.mark.skipif(find_compiler() is None, reason="without a compiler nobody can say a word")
def test_a_file_that_is_cut_while_it_is_mapped_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a b.bin"
    path.write_bytes(bytes(9000))
    done = subprocess.run([sys.executable, "-c", CUT, path], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 3
    problem = "was truncated while it was mapped, or its storage failed; generate or fetch it again"
    assert done.stderr == f"dlio_torch: error: {path} {problem}\n"
