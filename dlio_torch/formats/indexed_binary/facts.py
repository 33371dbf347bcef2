"""Facts about format ``indexed_binary`` that need no open file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dlio_torch.formats.core.call_text import CodeText, call_text
from dlio_torch.formats.core.facts import Axis, Call, FormatFacts, Unused
from dlio_torch.formats.indexed_binary.options import BinaryConfig

if TYPE_CHECKING:
    from dlio_torch.config.schema import Config

INDEX_MAGIC = b"MMIDIDX\0\0"
"""First bytes of an index."""


class IndexedBinaryFacts(FormatFacts):
    """Facts about format ``indexed_binary``."""

    name: ClassVar[str] = "indexed_binary"
    format: ClassVar[str] = "dlio_torch.formats.indexed_binary.format:IndexedBinaryFormat"
    options: ClassVar[type | None] = BinaryConfig
    group: ClassVar[str] = "binary"
    unmapped: ClassVar[tuple[str, Any] | None] = ("access", "file")
    posix_only: ClassVar[Mapping[str, Any]] = {"access": "file"}
    describe: ClassVar[str] = "dlio_torch.formats.indexed_binary.describe:describe"
    recreate: ClassVar[str] = "dlio_torch.formats.core.recreation:as_described"

    def recognises(self, path: Path, head: bytes) -> bool:
        if path.suffix != ".bin":
            return False
        try:
            with path.with_suffix(".idx").open("rb") as index:
                return index.read(len(INDEX_MAGIC)) == INDEX_MAGIC
        except OSError:
            return False

    def plain_ranges(self, config: Config) -> bool:
        return True

    def unused_by_decoupled(self, config: Config) -> Sequence[Unused]:
        return (Unused(self.key("access"), "the engine reads samples by their extents and maps no files", ("file",)),)

    def axes(self, config: Config) -> Iterator[Axis]:
        yield self.key("access"), ("file", "mmap")

    def calls(self, config: Config) -> Iterator[Call]:
        if self.maps_files(config):
            yield "memmap(...)", 'numpy.memmap(path, mode="r")'
            return
        field = next(iter(config.dataset.fields), None)
        keywords = {
            "dtype": field.dtype if field else "uint8",
            "count": math.prod(field.shape) if field else "count",
            "offset": CodeText("at"),
        }
        yield "fromfile(...)", call_text("numpy.fromfile", ["path"], keywords)
