"""Facts about safetensors files that need no open file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dlio_torch.formats.core.call_text import call_text
from dlio_torch.formats.core.facts import Axis, Call, FormatFacts, Unused
from dlio_torch.formats.safetensors.options import SafetensorsConfig
from dlio_torch.units import counted

if TYPE_CHECKING:
    from dlio_torch.config.check import Fail
    from dlio_torch.config.schema import Config

MOST_HEADER = 100_000_000
"""Maximum bytes of a header that the library accepts."""

LENGTH = 8
"""Bytes of the header's length, at the beginning of a file."""

_NO_CALLS = "the engine reads samples without the safetensors library"


class SafetensorsFacts(FormatFacts):
    """Facts about format ``safetensors``."""

    name: ClassVar[str] = "safetensors"
    format: ClassVar[str] = "dlio_torch.formats.safetensors.format:SafetensorsFormat"
    options: ClassVar[type | None] = SafetensorsConfig
    suffixes: ClassVar[tuple[str, ...]] = (".safetensors",)
    content: ClassVar[str] = "dlio_torch.formats.safetensors.describe:read_content"
    describe: ClassVar[str] = "dlio_torch.formats.safetensors.describe:describe"
    recreate: ClassVar[str] = "dlio_torch.formats.core.recreation:as_described"

    def check(self, config: Config, fail: Fail) -> None:
        data, options = config.dataset, config.dataset.of(SafetensorsConfig)
        if (
            options.samples == "file"
            and data.path is None
            and max(data.samples_per_file, data.samples_per_file_eval) > 1
        ):
            fail(
                [self.key("samples"), "dataset.samples_per_file"],
                f"a file is one sample, but dataset.samples_per_file={data.samples_per_file}",
                f"set dataset.samples_per_file=1, or {self.key('samples')}=rows",
            )
        for number, field in enumerate(data.fields):
            if options.samples == "rows" and field.length_mean > 0:
                fail(
                    [f"dataset.fields.{number}.length_mean", self.key("samples")],
                    f"{field.name} is variable-length, which needs one sample per file",
                    f"set {self.key('samples')}=file and dataset.samples_per_file=1",
                )

    def unused(self, config: Config) -> Sequence[Unused]:
        if config.dataset.of(SafetensorsConfig).samples == "rows":
            return ()
        return (Unused(self.key("reopen"), f"{self.key('samples')}=file opens each file for its only sample"),)

    def plain_ranges(self, config: Config) -> bool:
        return True

    def unused_by_decoupled(self, config: Config) -> Sequence[Unused]:
        return tuple(Unused(self.key(option), _NO_CALLS) for option in ("framework", "backend", "reopen"))

    def maps_files(self, config: Config) -> bool:
        # With pread, too, the library maps a file, but touches no more of the mapping than the header.
        return config.dataset.of(SafetensorsConfig).backend == "mmap"

    def axes(self, config: Config) -> Iterator[Axis]:
        if config.dataset.of(SafetensorsConfig).samples == "file":  # of rows, pread reads the whole array for each
            yield self.key("backend"), ("mmap", "pread")

    def calls(self, config: Config) -> Iterator[Call]:
        options = config.dataset.of(SafetensorsConfig)
        backend = {"backend": options.backend} if options.backend != "mmap" else {}
        if options.samples == "file":
            module = {"pt": "torch", "np": "numpy"}[options.framework]
            yield "load_file(...)", call_text(f"safetensors.{module}.load_file", ["path"], backend)
        else:
            keywords = {"framework": options.framework, **backend}
            yield "safe_open(...)", call_text("safetensors.safe_open", ["path"], keywords)

    def recognises(self, path: Path, head: bytes) -> bool:
        size = int.from_bytes(head[:LENGTH], "little")
        return head[LENGTH : LENGTH + 1] == b"{" and 2 <= size <= min(MOST_HEADER, path.stat().st_size - LENGTH)

    def content_text(self, content: Mapping[str, Any]) -> str:
        return counted(len(content["arrays"]), "array") if "arrays" in content else ""
