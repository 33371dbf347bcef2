"""Facts about LMDB environments that need no open file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dlio_torch.formats.core.call_text import call_text
from dlio_torch.formats.core.facts import Axis, Call, FormatFacts, Unused
from dlio_torch.formats.lmdb.options import LmdbConfig
from dlio_torch.units import counted

if TYPE_CHECKING:
    from dlio_torch.config.schema import Config

DATA = "data.mdb"
"""Name of the data file in the folder of an environment."""
LOCK = "lock.mdb"
"""Name of the lock file there."""

_MAGIC = (0xBEEFC0DE).to_bytes(4, "little")  # of a meta page, behind the header of a page
_PAGE_HEADER = 16
_UNUSED = "the engine reads values by their extents, without the library"


class LmdbFacts(FormatFacts):
    """Facts about format ``lmdb``."""

    name: ClassVar[str] = "lmdb"
    format: ClassVar[str] = "dlio_torch.formats.lmdb.format:LmdbFormat"
    options: ClassVar[type | None] = LmdbConfig
    suffixes: ClassVar[tuple[str, ...]] = (".lmdb", "_lmdb")
    content: ClassVar[str] = "dlio_torch.formats.lmdb.content:read_content"
    describe: ClassVar[str] = "dlio_torch.formats.lmdb.describe:describe"
    recreate: ClassVar[str] = "dlio_torch.formats.core.recreation:as_described"

    def unused_by_decoupled(self, config: Config) -> Sequence[Unused]:
        return tuple(Unused(self.key(name), _UNUSED) for name in ("readahead", "lock", "max_readers"))

    def maps_files(self, config: Config) -> bool:
        from dlio_torch.config.extensions import engine_facts  # which imports the facts of formats

        return config.access.io == "posix" and not engine_facts(config).reads_ranges

    def axes(self, config: Config) -> Iterator[Axis]:
        yield self.key("readahead"), ("false", "true")

    def calls(self, config: Config) -> Iterator[Call]:
        options = config.dataset.of(LmdbConfig)
        keywords = {"readonly": True, "lock": options.lock, "readahead": options.readahead, "meminit": False}
        yield "lmdb.open(...)", call_text("lmdb.open", ["path"], keywords)

    def recognises(self, path: Path, head: bytes) -> bool:
        with open(path, "rb") as file:
            return file.read(_PAGE_HEADER + len(_MAGIC))[_PAGE_HEADER:] == _MAGIC

    def recognises_folder(self, path: Path, names: Sequence[str]) -> bool:
        return DATA in names

    def content_text(self, content: Mapping[str, Any]) -> str:
        return counted(content["entries"], "entry", "entries") if "entries" in content else ""
