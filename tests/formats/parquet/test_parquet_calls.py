"""The ways in which people read Parquet files: the system calls of the library beside ours."""

from __future__ import annotations

import os

import pytest
from file_calls import FileCall, calls_on_files
from strace import READS, need_strace

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

PLAIN = """
import pyarrow.parquet as pq
columns = ["text", "x"]

file = pq.ParquetFile("row_group.parquet", pre_buffer=False)
for group in (2, 0, 1):
    file.read_row_group(group, columns=columns, use_threads=False)
file.close()

file = pq.ParquetFile("single_row.parquet", pre_buffer=False)
for row in (250, 251, 10):
    file.read_row_group(row // 100, columns=columns, use_threads=False).slice(row % 100, 1).to_pydict()
file.close()

pq.read_table("table.parquet", columns=columns, use_threads=False, pre_buffer=False)

pq.read_table("table_ahead.parquet", columns=columns)

file = pq.ParquetFile("mapped.parquet", memory_map=True, pre_buffer=False)
for group in (2, 0):
    file.read_row_group(group, columns=columns, use_threads=False)
file.close()

file = pq.ParquetFile("ahead.parquet", pre_buffer=True)
for group in (2, 0):
    file.read_row_group(group, columns=columns, use_threads=False)
file.close()

file = pq.ParquetFile("batches.parquet", pre_buffer=False)
for batch in file.iter_batches(batch_size=70, columns=columns, use_threads=False):
    batch.to_pydict()
file.close()
"""
OURS = """
from pathlib import Path
from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.formats.parquet.format import ParquetFormat
from dlio_torch.formats.parquet.options import ParquetConfig
from dlio_torch.formats.testing.contract import read
fields = [FieldConfig("text", "uint8", [], length_mean=9), FieldConfig("x", "float64", [])]
OPTIONS = {
    "row_group": {}, "single_row": {"read": "single_row"}, "table": {"read": "table"}, "mapped": {"memory_map": True},
    "table_ahead": {"read": "table", "pre_buffer": True, "use_threads": True}, "ahead": {"pre_buffer": True},
    "batches": {"batch_rows": 70},
}
ROWS = {"row_group": [250, 299, 0, 150], "single_row": [250, 251, 10], "table": [5], "table_ahead": [5]}
for name, options in OPTIONS.items():
    fmt = ParquetFormat(DatasetConfig(format="parquet", fields=fields, parquet=ParquetConfig(**options)), 1)
    reader = fmt.open(Path(f"{name}.parquet"))
    if name == "batches":
        assert [len(sample["text"]) for sample in fmt.stream(reader)] == [i % 13 for i in range(300)]
    else:
        rows = ROWS.get(name, [250, 10])
        assert read(fmt, reader, rows)["text:lengths"].tolist() == [row % 13 for row in rows]
    reader.close()
"""
IN_THREADS = ("ahead", "table", "table_ahead")
"""Ways in which threads read, in any order; read_table scans row groups in threads in any case."""


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, list[FileCall]], dict[str, list[FileCall]]]:
    need_strace()
    folder = tmp_path_factory.mktemp("parquet")
    table = pa.table(
        {
            "text": ["x" * (i % 13) for i in range(300)],
            "y": [i * 2.5 for i in range(300)],
            "x": [i / 7 for i in range(300)],
        }
    )
    names = ("row_group", "single_row", "table", "table_ahead", "mapped", "ahead", "batches")
    for name in names:
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=100)
    plain, ours = (calls_on_files(program, folder, ".parquet", env=os.environ) for program in (PLAIN, OURS))
    return plain, ours


@pytest.mark.parametrize("name", ["row_group", "single_row", "table", "table_ahead", "mapped", "ahead", "batches"])
def test_the_system_calls_are_those_of_the_library(
    name: str, calls: tuple[dict[str, list[FileCall]], dict[str, list[FileCall]]]
) -> None:
    plain, ours = (side[f"{name}.parquet"] for side in calls)
    if name in IN_THREADS:
        plain, ours = sorted(plain), sorted(ours)
    assert ours == plain
    reads = sum(result for call, _, result in ours if call in READS)
    assert (reads == 0) == (name == "mapped")


def test_advice_on_mapped_memory_is_that_of_the_library(
    calls: tuple[dict[str, list[FileCall]], dict[str, list[FileCall]]],
) -> None:
    plain, ours = (side[""] for side in calls)
    assert ours == plain
