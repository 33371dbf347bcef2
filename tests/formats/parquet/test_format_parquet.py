"""Parquet: row groups through pyarrow, with reads that depend on the file alone."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from strace import OPENS, READS, need_strace, trace
from table_fields import FIELDS

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import MissingPackageError
from dlio_torch.formats.parquet.format import ParquetFormat
from dlio_torch.formats.parquet.options import ParquetConfig
from dlio_torch.formats.testing.contract import FormatContract, read, refusal, write

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")


def options(**values: Any) -> DatasetConfig:
    return DatasetConfig(format="parquet", fields=FIELDS, parquet=ParquetConfig(**values))


class TestContract(FormatContract):
    configs: ClassVar[Mapping[str, DatasetConfig]] = {
        "one_group": options(),
        "groups_of_three": options(row_group_samples=3),
        "groups_of_one": options(row_group_samples=1, compression="none"),
        "gzip": options(row_group_samples=4, compression="gzip"),
        "zstd": options(row_group_samples=4, compression="zstd", compressibility=0.5),
    }


PLAIN = DatasetConfig(
    format="parquet",
    fields=[
        FieldConfig("label", "int64", []),
        FieldConfig("x", "float32", [2, 2]),
        FieldConfig("tokens", "int32", [], length_mean=3),
    ],
)


def plain_table() -> Any:
    """Columns as other writers make them: 32-bit lists that may be empty."""
    return pa.table(
        {
            "other": ["a", "b", "c"],
            "label": pa.array([5, 6, 7], pa.int64()),
            "x": pa.array([[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]], pa.list_(pa.float32())),
            "tokens": pa.array([[1], [], [2, 3]], pa.list_(pa.int32())),
        }
    )


def test_files_of_other_writers_are_read(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    pq.write_table(plain_table(), path, row_group_size=2)
    fmt = ParquetFormat(PLAIN, 1)
    assert fmt.inspect(path).details["row_groups"] == 2
    with closing(fmt.open(path)) as reader:
        batch = read(fmt, reader, [2, 1, 0])
        streamed = list(fmt.stream(reader))
    assert batch["label"].tolist() == [7, 6, 5]
    assert batch["x"].tolist() == [[[8, 9], [10, 11]], [[4, 5], [6, 7]], [[0, 1], [2, 3]]]
    assert batch["tokens"].tolist() == [2, 3, 1]
    assert batch["tokens:lengths"].tolist() == [2, 0, 1]
    assert [sample["tokens"].tolist() for sample in streamed] == [[1], [], [2, 3]]
    assert [sample["label"].tolist() for sample in streamed] == [5, 6, 7]


def test_columns_are_what_other_readers_expect(tmp_path: Path) -> None:
    fmt = ParquetFormat(options(row_group_samples=4), 3)
    table = pq.read_table(write(fmt, tmp_path / "a.parquet", 0, 10))
    assert table.schema.field("image").type == pa.list_(pa.field("element", pa.float32(), nullable=False), 192)
    assert table.schema.field("jpeg").type == pa.large_binary()
    want = fmt.expected(9)
    assert table["label"][9].as_py() == want["label"]
    np.testing.assert_array_equal(np.array(table["image"][9].as_py(), np.float32).reshape(16, 12), want["image"])
    assert table["group/mask"][9].as_py() == want["group/mask"].tobytes()
    assert table["jpeg"][9].as_py() == want["jpeg"].tobytes()
    assert table["tokens"][9].as_py() == want["tokens"].tolist()
    np.testing.assert_array_equal(np.array(table["points"][9].as_py()).reshape(-1, 3), want["points"])


@pytest.mark.parametrize("size", [1, 4, 100])
def test_row_groups_and_codec_are_as_configured(tmp_path: Path, size: int) -> None:
    fmt = ParquetFormat(options(row_group_samples=size, compression="zstd"), 3)
    meta = pq.ParquetFile(write(fmt, tmp_path / "a.parquet", 0, 10)).metadata
    rows = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
    assert sum(rows) == 10
    assert set(rows[:-1]) <= {size}
    codecs = {meta.row_group(0).column(i).compression for i in range(meta.num_columns)}
    assert codecs == {"ZSTD"}


def test_a_stream_gives_every_sample_in_order(tmp_path: Path) -> None:
    fmt = ParquetFormat(options(row_group_samples=3), 3)
    with closing(fmt.open(write(fmt, tmp_path / "a.parquet", 5, 8))) as reader:
        samples = list(fmt.stream(reader))
    assert len(samples) == 8
    for number, sample in enumerate(samples, start=5):
        assert fmt.differences(number, sample) is None
        assert all(array.flags.owndata and array.flags.writeable for array in sample.values())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"label": [1.5, 2, 3]}, "column 'label' is double, but dataset.fields expect int64"),
        ({"label": [[1], [2], [3]]}, "column 'label' is list"),
        ({"label": pa.array([1, None, 3])}, "column 'label' has empty cells"),
        ({"x": pa.array([[1, 2, 3]] * 3, pa.list_(pa.float32()))}, "'x' has cells whose length is not 4 elements"),
        ({"x": ["a", "b", "c"]}, "column 'x' is string, but dataset.fields expect float[2, 2]"),
        ({"x": [b"abcd"] * 3}, "column 'x' is binary"),
        ({"x": None}, "no column 'x'; its columns are: other, label, tokens"),
    ],
)
def test_other_columns_are_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    table = plain_table()
    for name, values in change.items():
        number = table.schema.get_field_index(name)
        table = table.remove_column(number)
        if values is not None:
            table = table.add_column(number, name, pa.array(values))
    path = tmp_path / "other.parquet"
    pq.write_table(table, path)
    fmt = ParquetFormat(PLAIN, 1)

    def attempt() -> None:
        with closing(fmt.open(path)) as reader:
            read(fmt, reader, [0])

    line = refusal(attempt)
    assert words in line
    assert str(path) in line


def test_damaged_pages_are_refused(tmp_path: Path) -> None:
    fmt = ParquetFormat(options(compression="gzip"), 3)
    path = write(fmt, tmp_path / "a.parquet", 0, 7)
    with path.open("r+b") as file:
        file.seek(200)
        file.write(b"\xff" * 2000)
    with closing(fmt.open(path)) as reader:
        assert str(path) in refusal(lambda: read(fmt, reader, [0]))


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'dlio-torch\[parquet\]'"):
        ParquetFormat(options(), 1)


def test_the_reads_are_the_footer_and_then_column_chunks(tmp_path: Path) -> None:
    need_strace()
    config = DatasetConfig(
        format="parquet",
        fields=[FieldConfig("label", "int64", []), FieldConfig("x", "float32", [300])],
        parquet=ParquetConfig(row_group_samples=100),
    )
    fmt = ParquetFormat(config, 1)
    path = write(fmt, tmp_path / "a.parquet", 0, 300)
    meta = pq.ParquetFile(path).metadata
    size = path.stat().st_size
    (tmp_path / "format").write_bytes(pickle.dumps(fmt))
    calls = trace(
        [sys.executable, "-c", PROGRAM, tmp_path / "format", path], tmp_path / "log", cwd=tmp_path, env=os.environ
    )
    mine = [call for call in calls if call.path == str(path)]
    assert [call.name for call in mine if call.name in OPENS] == ["openat"]
    reads = [(call.offset, call.result) for call in mine if call.name in READS]
    # The last 64 KiB, in which the footer lies.
    assert reads[0] == (size - 65536, 65536)

    def chunks(group: int) -> list[tuple[int, int]]:
        columns = [meta.row_group(group).column(i) for i in range(meta.num_columns)]
        return [(column.data_page_offset, column.total_compressed_size) for column in columns]

    # Samples 250 and 299 (one row group, read once), then 0 and 150, then the stream.
    assert reads[1:] == [chunk for group in (2, 0, 1, 0, 1, 2) for chunk in chunks(group)]
    assert len({call.tid for call in mine}) == 1


PROGRAM = """
import pickle, sys
from pathlib import Path
from dlio_torch.formats.testing.contract import read
fmt = pickle.loads(Path(sys.argv[1]).read_bytes())
reader = fmt.open(Path(sys.argv[2]))
read(fmt, reader, [250, 299, 0, 150])
assert len(list(fmt.stream(reader))) == 300
reader.close()
"""
