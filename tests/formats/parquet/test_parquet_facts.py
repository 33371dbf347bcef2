"""The calls that a study prints, and options that the decoupled engine does not use."""

from __future__ import annotations

from dlio_torch.config.compose import compose
from dlio_torch.formats.core.registry import facts

FIELDS = "dataset.fields=[{name: a}, {name: b}]"


def calls(*settings: str) -> dict[str, str]:
    config = compose(["recipe=minimal", "dataset=parquet", FIELDS, *settings]).config
    return dict(facts("parquet").calls(config))


def test_the_calls_are_those_that_the_options_make() -> None:
    reading = "pyarrow.parquet.ParquetFile(path, memory_map=False, pre_buffer=True)"
    shown = calls("dataset.parquet.pre_buffer=true")
    assert shown["ParquetFile(...)"] == reading
    assert shown["read_row_group(...)"] == "file.read_row_group(group, columns=['a', 'b'], use_threads=False)"
    table = calls("dataset.parquet.read=table", "dataset.parquet.use_threads=true")
    assert "pyarrow.parquet.read_table" in table["read_table(...)"]
    assert "use_threads=True" in table["read_table(...)"]
    stream = calls("access=stream", "dataset.parquet.batch_rows=70")
    assert stream["iter_batches(...)"] == "file.iter_batches(batch_size=70, columns=['a', 'b'], use_threads=False)"


def test_the_decoupled_engine_names_what_it_does_not_use() -> None:
    for settings, unused in (
        ((), []),
        (("dataset.parquet.read=table",), ["dataset.parquet.read"]),
        (("dataset.parquet.batch_rows=9",), ["dataset.parquet.batch_rows"]),
    ):
        config = compose(["recipe=minimal", "dataset=parquet", FIELDS, *settings]).config
        assert [entry.key for entry in facts("parquet").unused_by_decoupled(config)] == unused
