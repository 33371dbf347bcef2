"""Direct reads: the same content as buffered ones, whole blocks at the system, and clear refusals elsewhere."""

from __future__ import annotations

import io
import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from straced import needs_strace, results, straced

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.direct_file import BLOCK, DirectRaw
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.image.options import ImageConfig
from dlio_torch.formats.indexed_binary.options import BinaryConfig
from dlio_torch.formats.numpy.options import NpzConfig
from dlio_torch.formats.testing.contract import SEED, FormatContract, read, write
from dlio_torch.formats.tfrecord.options import TfrecordConfig

ROWS = FieldConfig("x", "float32", [33, 41])
TEXT = FieldConfig("text", "int32", [], length_mean=700, length_stdev=90)
LABEL = FieldConfig("label", "int64", [])


def config(name: str, *fields: FieldConfig, **options: Any) -> DatasetConfig:
    return DatasetConfig(format=name, fields=list(fields or [ROWS]), direct_io=True, **options)


@pytest.fixture(autouse=True)
def _permitted(tmp_path: Path) -> None:
    path = tmp_path / "trial"
    path.write_bytes(b"x")
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        pytest.skip("this file system does not permit direct reads")
    path.unlink()


class TestContract(FormatContract):
    configs: ClassVar = {
        "tfrecord": config("tfrecord", ROWS, LABEL, tfrecord=TfrecordConfig(transfer_size=10000)),
        "tfrecord_gzip": config("tfrecord", TEXT, tfrecord=TfrecordConfig(compression="gzip", compressibility=0.5)),
        "npz": config("npz", ROWS, TEXT, npz=NpzConfig(buffer_bytes=8192)),
        "npy": config("npy"),
    }


class TestOneSample(FormatContract):
    """Formats and layouts of one sample a file, and those with an index beside."""

    num_samples: ClassVar[int] = 1
    configs: ClassVar = {
        "npy_small": config("npy", FieldConfig("x", "uint8", [100])),
        "npy_large": config("npy", FieldConfig("x", "float64", [300, 257])),
        "jpeg": config("jpeg", FieldConfig("image", "uint8", [64, 48, 3])),
        "png_stored": config("png", FieldConfig("image", "uint8", [32, 48, 3]), image=ImageConfig(decode=False)),
    }

    def knows_its_length(self, config: DatasetConfig) -> bool:
        return config.image.decode  # else the bytes of the file are the sample


class TestBinary(FormatContract):
    configs: ClassVar = {
        "documents": config("indexed_binary", binary=BinaryConfig(document_mean=700, document_stdev=250)),
        "records": config("indexed_binary", binary=BinaryConfig(index=False)),
    }


def use(fmt: Format, path: Path) -> None:
    with closing(fmt.open(path)) as reader:
        read(fmt, reader, [0])


PROGRAM = """
import sys
from contextlib import closing
from pathlib import Path
from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.testing.contract import read
from dlio_torch.formats.core.registry import create
name, suffix = sys.argv[1:]
fields = [FieldConfig("x", "float32", [33, 41])]
fmt = create(DatasetConfig(format=name, fields=fields, direct_io=True, samples_per_file=4), 20)
with closing(fmt.open(Path("file" + suffix).absolute())) as reader:
    read(fmt, reader, [2, 0])
"""


@needs_strace
@pytest.mark.parametrize("name", ["tfrecord", "npy"])
def test_every_read_of_the_data_is_of_whole_blocks_past_the_cache(name: str, tmp_path: Path) -> None:
    fmt = create(replace(config(name), samples_per_file=4), SEED)
    write(fmt, tmp_path / f"file{fmt.suffix}", 0, 4)
    calls = straced(PROGRAM, tmp_path, name, fmt.suffix)[f"file{fmt.suffix}"]
    opens = [arguments for call, arguments, _ in calls if call == "openat"]
    assert opens
    assert all("O_DIRECT" in arguments for arguments in opens)
    assert results(calls, "read", "readv", "pread64", "mmap") == []
    reads = [(arguments, result) for call, arguments, result in calls if call == "preadv2"]
    assert reads
    size = (tmp_path / f"file{fmt.suffix}").stat().st_size
    for arguments, result in reads:
        offset = int(arguments.split(", ")[-2])
        assert offset % BLOCK == 0
        assert result % BLOCK == 0 or offset + result == size


def test_a_buffered_file_over_direct_reads_is_a_file(tmp_path: Path) -> None:
    content = os.urandom(3 * BLOCK + 77)
    path = tmp_path / "file"
    path.write_bytes(content)
    with io.BufferedReader(DirectRaw(path), 5000) as file:
        assert file.read(10) == content[:10]
        assert file.seek(-100, os.SEEK_END) == len(content) - 100
        assert file.read() == content[-100:]
        assert file.read(1) == b""
        assert file.seek(BLOCK - 1) == BLOCK - 1
        assert file.read(BLOCK + 2) == content[BLOCK - 1 : 2 * BLOCK + 1]
        file.seek(1)
        file.seek(1, os.SEEK_CUR)
        assert file.read() == content[2:]
        with pytest.raises(OSError, match="Invalid"):
            file.seek(-1)


@pytest.mark.parametrize("name", ["hdf5", "csv", "parquet"])
def test_a_format_that_cannot_says_which_can(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        create(config(name), SEED)
    line = str(refused.value)
    assert f"dataset.direct_io=true cannot be used with dataset.format='{name}'" in line
    assert line.endswith(
        "choose a format with direct reads: imagefolder, indexed_binary, jpeg, npy, npz, png, tfrecord"
    )


def test_mapped_files_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"dataset\.binary\.access=mmap"):
        create(config("indexed_binary", binary=BinaryConfig(access="mmap")), SEED)


@pytest.mark.parametrize("name", ["tfrecord", "npy", "npz", "jpeg", "indexed_binary"])
def test_a_file_system_without_direct_reads_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    field = FieldConfig("x", "uint8", [8, 8, 3])
    fmt = create(replace(config(name, field), samples_per_file=1), SEED)
    path = write(fmt, tmp_path / f"file{fmt.suffix}", 0, 1)
    system = os.open

    def refuse(path: Any, flags: int, *mode: Any, **options: Any) -> int:
        if flags & os.O_DIRECT:
            raise OSError(22, "Invalid argument")
        return system(path, flags, *mode, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(DataError, match=r"does not permit direct reads.*dataset\.direct_io=false"):
        use(fmt, path)
