"""Facts about Zarr stores that need no open store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dlio_torch.config.opt import MOST_DEFLATE
from dlio_torch.formats.core.call_text import CodeText, call_text, literal
from dlio_torch.formats.core.facts import Axis, Call, FormatFacts, LayoutAdvice, Unused
from dlio_torch.formats.zarr.options import ZarrConfig

if TYPE_CHECKING:
    from dlio_torch.config.check import Fail
    from dlio_torch.config.schema import Config

METADATA = ("zarr.json", ".zgroup", ".zarray")
"""Files with the metadata of a node: of version 3, and of a group and an array of version 2."""

_NO_CALLS = "the engine reads samples without zarr-python"


class ZarrFacts(FormatFacts):
    """Facts about format ``zarr``."""

    name: ClassVar[str] = "zarr"
    format: ClassVar[str] = "dlio_torch.formats.zarr.format:ZarrFormat"
    options: ClassVar[type | None] = ZarrConfig
    uncompressed: ClassVar[tuple[str, Any] | None] = ("compression", "none")
    suffixes: ClassVar[tuple[str, ...]] = (".zarr",)
    describe: ClassVar[str] = "dlio_torch.formats.zarr.describe:describe"
    recreate: ClassVar[str] = "dlio_torch.formats.zarr.recreate:recreate"

    def check(self, config: Config, fail: Fail) -> None:
        options = config.dataset.of(ZarrConfig)
        if options.compression in ("blosc", "gzip") and options.compression_level > MOST_DEFLATE:
            fail(
                [self.key("compression_level"), self.key("compression")],
                f"{options.compression} has levels 0 to {MOST_DEFLATE}",
                f"set {self.key('compression_level')}={MOST_DEFLATE}, or {self.key('compression')}=zstd",
            )

    def check_decoupled(self, config: Config, fail: Fail) -> None:
        if config.dataset.of(ZarrConfig).compression == "blosc":
            fail(
                [self.key("compression"), "loader.engine"],
                "the engine decompresses only zstd and gzip",
                "set loader.engine=dataloader, which reads through zarr-python",
            )

    def unused_by_decoupled(self, config: Config) -> Sequence[Unused]:
        return tuple(Unused(self.key(option), _NO_CALLS) for option in ("reopen", "concurrency", "max_workers"))

    def axes(self, config: Config) -> Iterator[Axis]:
        present = config.dataset.of(ZarrConfig).concurrency
        yield self.key("concurrency"), tuple(str(count) for count in sorted({1, 10, 64, present}))

    def calls(self, config: Config) -> Iterator[Call]:
        options = config.dataset.of(ZarrConfig)
        keywords: dict[str, Any] = {"chunks": CodeText("..."), "compressors": CodeText(_codec(options))}
        if options.shard_bytes:
            keywords["shards"] = CodeText("...")
        yield (
            "create_array(...)",
            "\n".join(call_text("group.create_array", [literal(f.name)], keywords) for f in config.dataset.fields),
        )
        opener = "open_array" if options.root == "array" else "open_group"
        yield f"{opener}(...)", call_text(f"zarr.{opener}", ["path"], {"mode": "r"})
        yield "zarr.config", call_text("zarr.config.set", [repr(settings(options))], {})

    def layout_advice(self, config: Config, amplification: float) -> LayoutAdvice | None:
        from dlio_torch.formats.core.chunk_advice import chunk_of_a_sample, larger_chunks

        fields = config.dataset.fields
        # zarr-python has no cache of chunks: in any order a chunk is read again for each of its samples.
        for number, _, why in larger_chunks(fields, config.dataset.of(ZarrConfig).chunk_bytes):
            return chunk_of_a_sample(fields, number, self.key("chunk_bytes"), why)
        return None

    def recognises_folder(self, path: Path, names: Sequence[str]) -> bool:
        return any(name in METADATA for name in names)


def settings(options: ZarrConfig) -> dict[str, Any]:
    """The settings of zarr-python (``zarr.config``) that reading uses."""
    return {"async.concurrency": options.concurrency, "threading.max_workers": options.max_workers or None}


def _codec(options: ZarrConfig) -> str:
    """The codec of chunks, as code."""
    level = options.compression_level
    return {
        "none": "None",
        "zstd": f"zarr.codecs.ZstdCodec(level={level})",
        "gzip": f"zarr.codecs.GzipCodec(level={level})",
        "blosc": f'zarr.codecs.BloscCodec(cname="lz4", clevel={level}, shuffle="shuffle")',
    }[options.compression]
