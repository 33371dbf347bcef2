"""Facts about Arrow IPC files that need no open file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dlio_torch.formats.arrow.options import ArrowConfig
from dlio_torch.formats.core.call_text import CodeText, call_text
from dlio_torch.formats.core.facts import Axis, Call, FormatFacts, Unused
from dlio_torch.units import counted

if TYPE_CHECKING:
    from dlio_torch.config.schema import Config

_CONTINUATION = b"\xff\xff\xff\xff"
_FARTHEST_ROOT = 256  # bytes to the root table of the message
_LARGEST_SCHEMA = 64 << 20  # bytes


class ArrowFacts(FormatFacts):
    """Facts about format ``arrow``."""

    name: ClassVar[str] = "arrow"
    format: ClassVar[str] = "dlio_torch.formats.arrow.format:ArrowFormat"
    options: ClassVar[type | None] = ArrowConfig
    uncompressed: ClassVar[tuple[str, Any] | None] = ("compression", "none")
    unmapped: ClassVar[tuple[str, Any] | None] = ("memory_map", False)
    magics: ClassVar[tuple[bytes, ...]] = (b"ARROW1",)
    suffixes: ClassVar[tuple[str, ...]] = (".arrow", ".feather")
    content: ClassVar[str] = "dlio_torch.formats.arrow.content:read_content"
    describe: ClassVar[str] = "dlio_torch.formats.arrow.describe:describe"
    recreate: ClassVar[str] = "dlio_torch.formats.arrow.recreate:recreate"

    def unused_by_decoupled(self, config: Config) -> Sequence[Unused]:
        return (
            Unused(self.key("memory_map"), "the engine reads samples by their extents and maps no files", (False,)),
        )

    def axes(self, config: Config) -> Iterator[Axis]:
        yield self.key("memory_map"), ("true", "false")

    def calls(self, config: Config) -> Iterator[Call]:
        options = config.dataset.of(ArrowConfig)
        keywords: dict[str, Any] = {}
        if options.compression != "none":
            keywords["options"] = CodeText(f'pyarrow.ipc.IpcWriteOptions(compression="{options.compression}")')
        writer = f"new_{options.ipc}"
        yield f"{writer}(...)", call_text(f"pyarrow.ipc.{writer}", ["path", "schema"], keywords)
        source = "memory_map(path)" if options.memory_map else "input_stream(path)"
        opener = f"open_{options.ipc}"
        yield f"{opener}(...)", f"pyarrow.ipc.{opener}(pyarrow.{source}).read_all()"

    def recognises(self, path: Path, head: bytes) -> bool:
        """Whether the file begins as an IPC stream: continuation mark, length of the schema message, its root table."""
        length, table = (int.from_bytes(head[low : low + 4], "little") for low in (4, 8))
        return head.startswith(_CONTINUATION) and 0 < table < _FARTHEST_ROOT and table < length < _LARGEST_SCHEMA

    def recognises_folder(self, path: Path, names: Sequence[str]) -> bool:
        """Whether the folder is a saved Hugging Face data set, several of them, or the cache of one."""
        if "dataset_dict.json" in names or {"state.json", "dataset_info.json"} <= set(names):
            return True
        return "dataset_info.json" in names and any(name.endswith(".arrow") for name in names)

    def content_text(self, content: Mapping[str, Any]) -> str:
        if "rows" not in content:
            return ""
        batches, columns = content["record_batches"], len(content["columns"])
        rows = counted(content["rows"], "row")
        return f"{rows} in {counted(batches, 'record batch', 'record batches')}, {counted(columns, 'column')}"
