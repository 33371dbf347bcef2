"""Facts about formats ``npz`` and ``npy`` that need no open file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from dlio_torch.formats.core.content import least
from dlio_torch.formats.core.facts import OWN_TRANSFERS, Axis, Call, FormatFacts, Unused
from dlio_torch.formats.core.tuning import TRANSFERS, sizes
from dlio_torch.formats.numpy.options import NpzConfig
from dlio_torch.units import counted

if TYPE_CHECKING:
    from dlio_torch.config.schema import Config


class _NumpyFacts(FormatFacts):
    """Facts that ``npz`` and ``npy`` share."""

    options: ClassVar[type | None] = NpzConfig
    group: ClassVar[str] = "npz"
    transfer_option: ClassVar[str] = "buffer_bytes"
    compares_files: ClassVar[bool] = True

    def plain_ranges(self, config: Config) -> bool:
        from dlio_torch.formats.core.field_bytes import field_bytes
        from dlio_torch.formats.core.layout_whole_file import SMALL

        data, samples = config.dataset, config.dataset.of(NpzConfig).samples_in_file
        single = samples == "one" or (samples == "by_count" and data.samples_per_file == 1)
        return not single or all(field_bytes(field) > SMALL for field in data.fields)  # a small file is read whole

    def unused_by_decoupled(self, config: Config) -> Sequence[Unused]:
        return (Unused(self.key("buffer_bytes"), OWN_TRANSFERS),)

    def axes(self, config: Config) -> Iterator[Axis]:
        present = config.dataset.of(NpzConfig).buffer_bytes
        from_file_system = () if present else ("0",)
        yield self.key("buffer_bytes"), (*from_file_system, *sizes(TRANSFERS, present))

    def calls(self, config: Config) -> Iterator[Call]:
        size = config.dataset.of(NpzConfig).buffer_bytes
        if size:
            yield "open(...)", f'file = open(path, "rb", buffering={size})\narrays = numpy.load(file)'


class NpzFacts(_NumpyFacts):
    """Facts about format ``npz``."""

    name: ClassVar[str] = "npz"
    format: ClassVar[str] = "dlio_torch.formats.numpy.npz:NpzFormat"
    uncompressed: ClassVar[tuple[str, Any] | None] = ("compressed", False)
    magics: ClassVar[tuple[bytes, ...]] = (b"PK\x03\x04",)
    content: ClassVar[str] = "dlio_torch.formats.numpy.content:read_archive"
    describe: ClassVar[str] = "dlio_torch.formats.numpy.describe:describe_archive"
    recreate: ClassVar[str] = "dlio_torch.formats.numpy.recreate:recreate"

    def ranges_past_cache(self, config: Config) -> bool:
        options = config.dataset.of(NpzConfig)
        return not options.compressed and options.sample_axis == "first"

    def plain_ranges(self, config: Config) -> bool:
        readable = self.ranges_past_cache(config) and not config.dataset.of(NpzConfig).pickled
        return readable and super().plain_ranges(config)

    def content_text(self, content: Mapping[str, Any]) -> str:
        return f"{least(content)}{counted(len(content['arrays']), 'array')}" if "arrays" in content else ""


class NpyFacts(_NumpyFacts):
    """Facts about format ``npy``."""

    name: ClassVar[str] = "npy"
    format: ClassVar[str] = "dlio_torch.formats.numpy.npy:NpyFormat"
    magics: ClassVar[tuple[bytes, ...]] = (b"\x93NUMPY",)
    content: ClassVar[str] = "dlio_torch.formats.numpy.content:read_array"
    describe: ClassVar[str] = "dlio_torch.formats.numpy.describe:describe_array"
    recreate: ClassVar[str] = "dlio_torch.formats.numpy.recreate:recreate"

    def content_text(self, content: Mapping[str, Any]) -> str:
        return f"{content['dtype']} {content['shape']}" if "shape" in content else ""
