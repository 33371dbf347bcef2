"""Facts about image files that need no open file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from dlio_torch.formats.core.facts import WHOLE_FILES, FormatFacts, Unused
from dlio_torch.formats.image.options import ImageConfig

if TYPE_CHECKING:
    from dlio_torch.config.schema import Config


class JpegFacts(FormatFacts):
    """Facts about format ``jpeg``."""

    name: ClassVar[str] = "jpeg"
    format: ClassVar[str] = "dlio_torch.formats.image.format:JpegFormat"
    options: ClassVar[type | None] = ImageConfig
    group: ClassVar[str] = "image"
    transfer_option: ClassVar[str] = "buffer_bytes"
    magics: ClassVar[tuple[bytes, ...]] = (b"\xff\xd8\xff",)
    content: ClassVar[str] = "dlio_torch.formats.image.content:read_content"

    def unused_by_decoupled(self, config: Config) -> Sequence[Unused]:
        return (Unused(self.key("buffer_bytes"), WHOLE_FILES),)

    def ranges_past_cache(self, config: Config) -> bool:
        return False

    def content_text(self, content: Mapping[str, Any]) -> str:
        return f"{content['width']} x {content['height']} {content['mode']}" if "width" in content else ""


class PngFacts(JpegFacts):
    """Facts about format ``png``."""

    name: ClassVar[str] = "png"
    format: ClassVar[str] = "dlio_torch.formats.image.format:PngFormat"
    magics: ClassVar[tuple[bytes, ...]] = (b"\x89PNG\r\n\x1a\n",)
