"""Facts about framed records that need no open file."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dlio_torch.formats.core.facts import Axis, Call, FormatFacts
from dlio_torch.formats.core.tuning import sizes
from framed_format.options import FramedConfig

if TYPE_CHECKING:
    from dlio_torch.config.check import Fail
    from dlio_torch.config.schema import Config

MAGIC = b"FRAMED01"
HEADER = struct.Struct("<8sQQ")
"""Magic bytes, samples, bytes of a sample."""


class FramedFacts(FormatFacts):
    """Facts about format ``framed``."""

    name: ClassVar[str] = "framed"
    format: ClassVar[str] = "framed_format.format:FramedFormat"
    options: ClassVar[type | None] = FramedConfig
    transfer_option: ClassVar[str] = "read_bytes"
    magics: ClassVar[tuple[bytes, ...]] = (MAGIC,)
    content: ClassVar[str] = "framed_format.facts:read_content"
    describe: ClassVar[str] = "framed_format.describe:describe"

    def check(self, config: Config, fail: Fail) -> None:
        alignment = config.dataset.of(FramedConfig).alignment
        if alignment & (alignment - 1):
            fail([self.key("alignment")], "it is no power of two", f"set {self.key('alignment')}=8")

    def axes(self, config: Config) -> Iterator[Axis]:
        yield self.key("read_bytes"), sizes(("4KiB",), config.dataset.of(FramedConfig).read_bytes)

    def calls(self, config: Config) -> Iterator[Call]:
        yield "framed.open(...)", f"framed.open(path, read_bytes={config.dataset.of(FramedConfig).read_bytes})"

    def content_text(self, content: Mapping[str, Any]) -> str:
        return f"{content['frames']} frame(s)" if "frames" in content else ""


def read_content(path: Path, content: dict[str, Any]) -> None:
    with path.open("rb") as file:
        _, content["frames"], content["frame_bytes"] = HEADER.unpack(file.read(HEADER.size))
