"""Facts about TFRecord files that need no open file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dlio_torch.formats.core.call_text import call_text
from dlio_torch.formats.core.content import least
from dlio_torch.formats.core.facts import OWN_TRANSFERS, Axis, Call, FormatFacts, LayoutAdvice, Unused
from dlio_torch.formats.core.tuning import TRANSFERS, sizes
from dlio_torch.formats.tfrecord.options import SUFFIXES, TfrecordConfig
from dlio_torch.units import counted, exact_size, format_size, power_of_two

if TYPE_CHECKING:
    from dlio_torch.config.schema import Config


class TfrecordFacts(FormatFacts):
    """Facts about format ``tfrecord``."""

    name: ClassVar[str] = "tfrecord"
    format: ClassVar[str] = "dlio_torch.formats.tfrecord.format:TfrecordFormat"
    options: ClassVar[type | None] = TfrecordConfig
    transfer_option: ClassVar[str] = "transfer_size"
    uncompressed: ClassVar[tuple[str, Any] | None] = ("compression", "none")
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES
    content: ClassVar[str] = "dlio_torch.formats.tfrecord.content:read_content"
    describe: ClassVar[str] = "dlio_torch.formats.tfrecord.describe:describe"
    recreate: ClassVar[str] = "dlio_torch.formats.core.recreation:as_described"

    def unused_by_decoupled(self, config: Config) -> Sequence[Unused]:
        if config.dataset.of(TfrecordConfig).compression != "none":
            return ()  # the format's own reader decodes the whole file
        return (Unused(self.key("transfer_size"), OWN_TRANSFERS),)

    def ranges_past_cache(self, config: Config) -> bool:
        return False

    def axes(self, config: Config) -> Iterator[Axis]:
        yield self.key("transfer_size"), sizes(TRANSFERS, config.dataset.of(TfrecordConfig).transfer_size)

    def calls(self, config: Config) -> Iterator[Call]:
        options = config.dataset.of(TfrecordConfig)
        keywords: dict[str, Any] = {"buffer_size": options.transfer_size}
        if options.compression != "none":
            keywords["compression_type"] = options.compression.upper()
        yield "TFRecordDataset(...)", call_text("tf.data.TFRecordDataset", ["files"], keywords)

    def layout_advice(self, config: Config, amplification: float) -> LayoutAdvice | None:
        from dlio_torch.formats.core.field_bytes import field_bytes

        if config.access.pattern != "samples" or config.access.order == "sequential":
            return None
        size = sum(field_bytes(field) for field in config.dataset.fields)
        fits, present = max(4096, power_of_two(size)), config.dataset.of(TfrecordConfig).transfer_size
        if not size or present < 2 * fits:
            return None
        why = f"each read call requests {exact_size(present)}, more than a sample has"
        return LayoutAdvice(self.key("transfer_size"), exact_size(fits), why, max(1.0, fits / size))

    def recognises(self, path: Path, head: bytes) -> bool:
        from dlio_torch.formats.tfrecord.content import recognises

        return recognises(path, head)

    def content_text(self, content: Mapping[str, Any]) -> str:
        if not content.get("record_bytes"):
            return ""
        mean = format_size(round(content["record_bytes"]["mean"]))
        return f"{least(content)}{counted(content['records'], 'record')} of {mean} on average"
