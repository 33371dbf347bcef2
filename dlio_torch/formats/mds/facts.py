"""Facts about format ``mds`` that need no open file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from dlio_torch.formats.core.facts import Call, FormatFacts

if TYPE_CHECKING:
    from dlio_torch.config.schema import Config

INDEX = "index.json"
"""Name of the file beside the shards of a folder that describes them."""
_SHARD = ".mds"


class MdsFacts(FormatFacts):
    """Facts about format ``mds``."""

    name: ClassVar[str] = "mds"
    format: ClassVar[str] = "dlio_torch.formats.mds.format:MdsFormat"
    suffixes: ClassVar[tuple[str, ...]] = (_SHARD,)
    describe: ClassVar[str] = "dlio_torch.formats.mds.describe:describe"
    recreate: ClassVar[str] = "dlio_torch.formats.core.recreation:as_described"

    def recognises_folder(self, path: Path, names: Sequence[str]) -> bool:
        return INDEX in names and any(_SHARD in Path(name).suffixes for name in names)

    def calls(self, config: Config) -> Iterator[Call]:
        yield (
            "open(...)",
            'with open(path, "rb", 0) as file:\n'
            "    file.seek(4 * (1 + row))\n"
            '    begin, end = numpy.frombuffer(file.read(8), "uint32")\n'
            "    file.seek(begin)\n"
            "    sample = file.read(end - begin)",
        )
