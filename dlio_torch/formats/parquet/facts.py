"""Facts about Parquet tables that need no open file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from dlio_torch.formats.core.call_text import call_text
from dlio_torch.formats.core.facts import Axis, Call, FormatFacts, LayoutAdvice, Unused
from dlio_torch.formats.parquet.options import ParquetConfig
from dlio_torch.units import counted

if TYPE_CHECKING:
    from dlio_torch.config.schema import Config


class ParquetFacts(FormatFacts):
    """Facts about format ``parquet``."""

    name: ClassVar[str] = "parquet"
    format: ClassVar[str] = "dlio_torch.formats.parquet.format:ParquetFormat"
    options: ClassVar[type | None] = ParquetConfig
    uncompressed: ClassVar[tuple[str, Any] | None] = ("compression", "none")
    magics: ClassVar[tuple[bytes, ...]] = (b"PAR1",)
    unmapped: ClassVar[tuple[str, Any] | None] = ("memory_map", False)
    suffixes: ClassVar[tuple[str, ...]] = (".parquet", ".pq")
    describe: ClassVar[str] = "dlio_torch.formats.parquet.describe:describe"
    recreate: ClassVar[str] = "dlio_torch.formats.parquet.recreate:recreate"
    content: ClassVar[str] = "dlio_torch.formats.parquet.content:read_content"

    def calls(self, config: Config) -> Iterator[Call]:
        options = config.dataset.of(ParquetConfig)
        keywords = {"row_group_size": options.row_group_samples, "compression": options.compression}
        yield "write_table(...)", call_text("pyarrow.parquet.write_table", ["table", "path"], keywords)
        columns = [field.name for field in config.dataset.fields]
        reading = {"memory_map": options.memory_map, "pre_buffer": options.pre_buffer}
        threads = {"use_threads": options.use_threads}
        if options.read == "table":
            call = call_text("pyarrow.parquet.read_table", ["path"], {"columns": columns, **reading, **threads})
            yield "read_table(...)", call
            return
        file = call_text("pyarrow.parquet.ParquetFile", ["path"], reading)
        yield "ParquetFile(...)", file
        if config.access.pattern == "stream" and options.batch_rows:
            batches = {"batch_size": options.batch_rows, "columns": columns, **threads}
            yield "iter_batches(...)", call_text("file.iter_batches", [], batches)
        else:
            yield "read_row_group(...)", call_text("file.read_row_group", ["group"], {"columns": columns, **threads})

    def axes(self, config: Config) -> Iterator[Axis]:
        yield self.key("pre_buffer"), ("false", "true")
        yield self.key("memory_map"), ("false", "true")

    def unused(self, config: Config) -> Sequence[Unused]:
        key = self.key("batch_rows")
        if config.access.pattern != "stream":
            return (Unused(key, "samples are read by row groups; batches belong to access.pattern=stream"),)
        if config.dataset.of(ParquetConfig).read == "table":
            return (Unused(key, f"{self.key('read')}=table reads a file as a whole"),)
        return ()

    def unused_by_decoupled(self, config: Config) -> Sequence[Unused]:
        options = config.dataset.of(ParquetConfig)
        reason = "the engine reads each row group once, and keeps its samples in memory"
        unused = {"read": options.read != "row_group", "batch_rows": options.batch_rows > 0}
        return [Unused(self.key(option), reason) for option, changed in unused.items() if changed]

    def layout_advice(self, config: Config, amplification: float) -> LayoutAdvice | None:
        if config.access.pattern != "samples" or config.access.order == "sequential":
            return None
        group, batch = config.dataset.of(ParquetConfig).row_group_samples, config.train.batch_size
        if group <= batch:
            return None
        why = f"a read of a few samples reads whole row groups of {group} samples"
        return LayoutAdvice(self.key("row_group_samples"), str(batch), why)

    def content_text(self, content: Mapping[str, Any]) -> str:
        if "rows" not in content:
            return ""
        groups, columns = content["row_groups"], len(content["columns"])
        return f"{counted(content['rows'], 'row')} in {counted(groups, 'row group')}, {counted(columns, 'column')}"
