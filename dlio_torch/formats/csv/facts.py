"""Facts about text tables that need no open file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from dlio_torch.formats.core.content import least
from dlio_torch.formats.core.facts import WHOLE_FILES, Axis, FormatFacts, Unused
from dlio_torch.formats.core.tuning import TRANSFERS, sizes
from dlio_torch.formats.csv.options import CsvConfig
from dlio_torch.units import counted

if TYPE_CHECKING:
    from dlio_torch.config.schema import Config


class CsvFacts(FormatFacts):
    """Facts about format ``csv``."""

    name: ClassVar[str] = "csv"
    format: ClassVar[str] = "dlio_torch.formats.csv.format:CsvFormat"
    options: ClassVar[type | None] = CsvConfig
    transfer_option: ClassVar[str] = "read_bytes"
    suffixes: ClassVar[tuple[str, ...]] = (".csv", ".tsv")
    unmapped: ClassVar[tuple[str, Any] | None] = ("reader", "buffered")
    describe: ClassVar[str] = "dlio_torch.formats.csv.describe:describe"
    recreate: ClassVar[str] = "dlio_torch.formats.csv.recreate:recreate"
    content: ClassVar[str] = "dlio_torch.formats.csv.content:read_content"

    def unused(self, config: Config) -> Sequence[Unused]:
        if self.maps_files(config):
            return ()
        reason = f"{self.key('reader')}=buffered parses a file in one thread; set {self.key('reader')}=mapped"
        return (Unused(self.key("threads"), reason),)

    def unused_by_decoupled(self, config: Config) -> Sequence[Unused]:
        names = ("read_bytes", "chunk_rows", "threads")
        mapped = Unused(self.key("reader"), "the engine reads each file whole and maps none", ("buffered",))
        return (*(Unused(self.key(name), WHOLE_FILES) for name in names), mapped)

    def axes(self, config: Config) -> Iterator[Axis]:
        options = config.dataset.of(CsvConfig)
        if self.maps_files(config):
            yield self.key("threads"), tuple(str(count) for count in sorted({1, 2, 4, options.threads}))
        else:
            yield self.key("read_bytes"), sizes(TRANSFERS, options.read_bytes)

    def content_text(self, content: Mapping[str, Any]) -> str:
        if "lines" not in content:
            return ""
        return f"{least(content)}{counted(content['lines'], 'line')} of {counted(content['columns'], 'column')}"
