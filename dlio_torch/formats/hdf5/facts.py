"""Facts about format ``hdf5`` that need no open file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dlio_torch.formats.core.call_text import call_text, literal
from dlio_torch.formats.core.content import least
from dlio_torch.formats.core.facts import NO_LIBRARY_CALLS, Axis, Call, FormatFacts, LayoutAdvice, Unused
from dlio_torch.formats.core.tuning import CACHES, sizes
from dlio_torch.formats.hdf5.options import Hdf5Config
from dlio_torch.units import counted, exact_size, power_of_two

if TYPE_CHECKING:
    from dlio_torch.config.check import Fail
    from dlio_torch.config.schema import Config, FieldConfig

_USER_BLOCKS = 12  # sizes of a user block that are tried, up to 1 MiB


class Hdf5Facts(FormatFacts):
    """Facts about format ``hdf5``."""

    name: ClassVar[str] = "hdf5"
    format: ClassVar[str] = "dlio_torch.formats.hdf5.format:Hdf5Format"
    options: ClassVar[type | None] = Hdf5Config
    one_lock: ClassVar[bool] = True  # h5py: one lock for all calls of a process
    posix_only: ClassVar[Mapping[str, Any]] = {"driver": "sec2"}
    uncompressed: ClassVar[tuple[str, Any] | None] = ("compression", "none")
    magics: ClassVar[tuple[bytes, ...]] = (b"\x89HDF\r\n\x1a\n",)
    suffixes: ClassVar[tuple[str, ...]] = (".h5", ".hdf5", ".he5", ".nxs", ".h5ad")
    describe: ClassVar[str] = "dlio_torch.formats.hdf5.describe:describe"
    recreate: ClassVar[str] = "dlio_torch.formats.hdf5.recreate:recreate"
    content: ClassVar[str] = "dlio_torch.formats.hdf5.content:read_content"
    former: ClassVar[Mapping[str, tuple[str, Mapping[str, str]]]] = {
        "open_arrays": ("reopen", {"with_file": "none", "each_read": "array"})
    }

    def check(self, config: Config, fail: Fail) -> None:
        data, options = config.dataset, config.dataset.of(Hdf5Config)
        if not data.fields and data.path is None:
            fail(
                ["dataset.fields", "dataset.format"],
                "without fields there are no arrays to write",
                "set dataset.fields=[{name: data, shape: [64]}]",
            )
        if options.reopen == "file" and config.access.io != "posix":
            fail(
                [self.key("reopen"), "access.io"],
                "ranks that read by MPI-IO open each file once, together",
                f"set {self.key('reopen')}=array, or access.io=posix",
            )
        if options.crop:
            fail(
                [self.key("crop"), "dataset.format"],
                "samples of format hdf5 are rows of arrays, not crops",
                f"set dataset.format=hdf5_crops, or remove {self.key('crop')}",
            )
        contiguous = bool(data.fields) and not options.chunk_bytes and all(field.chunk is None for field in data.fields)
        if options.compression != "none" and contiguous:
            fail(
                [self.key("compression"), self.key("chunk_bytes")],
                f"compression needs chunked arrays, but dataset.fields.0 ({data.fields[0].name}) is contiguous",
                f"set {self.key('chunk_bytes')}=64KiB, or {self.key('compression')}=none",
            )

    def check_decoupled(self, config: Config, fail: Fail) -> None:
        if config.dataset.of(Hdf5Config).compression == "lzf":
            fail(
                [self.key("compression"), "loader.engine"],
                "the engine decompresses only gzip",
                "set loader.engine=dataloader, which reads through the HDF5 library",
            )

    def plain_ranges(self, config: Config) -> bool:
        chunked = config.dataset.of(Hdf5Config).chunk_bytes or any(field.chunk for field in config.dataset.fields)
        return not chunked

    def unused_by_decoupled(self, config: Config) -> Sequence[Unused]:
        return (
            Unused(
                self.key("driver"),
                "the engine reads only the bytes of each sample, without the HDF5 library",
                ("sec2",),
            ),
            Unused(self.key("chunk_cache_bytes"), NO_LIBRARY_CALLS),
            Unused(self.key("reopen"), NO_LIBRARY_CALLS),
        )

    def keeps_files(self, config: Config) -> bool:
        return config.dataset.of(Hdf5Config).reopen != "file"

    def axes(self, config: Config) -> Iterator[Axis]:
        options = config.dataset.of(Hdf5Config)
        if options.chunk_bytes or any(field.chunk for field in config.dataset.fields):
            yield self.key("chunk_cache_bytes"), sizes(CACHES, options.chunk_cache_bytes)

    def calls(self, config: Config) -> Iterator[Call]:
        options = config.dataset.of(Hdf5Config)
        yield "create_dataset(...)", "\n".join(_create(config, field) for field in config.dataset.fields)
        yield file_call(options.chunk_cache_bytes, core=options.driver == "core")

    def layout_advice(self, config: Config, amplification: float) -> LayoutAdvice | None:
        from dlio_torch.formats.core.chunk_advice import chunk_of_a_sample, larger_chunks

        fields, options = config.dataset.fields, config.dataset.of(Hdf5Config)
        in_order = config.access.order in ("sequential", "random_blocks")
        for number, chunk, why in larger_chunks(fields, options.chunk_bytes):
            if in_order and options.reopen != "none":
                closed = "each read of an array closes it" if options.reopen == "array" else "each read closes the file"
                return LayoutAdvice(self.key("reopen"), "none", f"{why}, and {closed} and drops its chunk cache")
            if in_order and chunk > options.chunk_cache_bytes:
                # Its neighbours come next, but the chunk did not stay in the cache.
                cache = exact_size(power_of_two(chunk))
                return LayoutAdvice(
                    self.key("chunk_cache_bytes"), cache, f"{why}, and a chunk does not fit into the chunk cache"
                )
            if not in_order:
                return chunk_of_a_sample(fields, number, self.key("chunk_bytes"), why)
        return None

    def larger_transfers(self, config: Config, wanted: int, most: int) -> tuple[str, int, int] | None:
        from dlio_torch.formats.core.field_bytes import field_bytes

        present = config.dataset.of(Hdf5Config).chunk_bytes
        if not present:
            return None
        largest = max((field_bytes(field) for field in config.dataset.fields), default=0)
        return self.key("chunk_bytes"), present, min(largest, most)

    def recognises(self, path: Path, head: bytes) -> bool:
        """Whether the signature follows a user block, such as MATLAB's; its size is 512 times a power of 2."""
        size = path.stat().st_size
        with path.open("rb") as file:
            for exponent in range(_USER_BLOCKS):
                position = 512 << exponent
                if position >= size:
                    return False
                file.seek(position)
                if file.read(len(self.magics[0])) == self.magics[0]:
                    return True
        return False

    def content_text(self, content: Mapping[str, Any]) -> str:
        return f"{least(content)}{counted(len(content['datasets']), 'dataset')}" if "datasets" in content else ""


class Hdf5CropsFacts(FormatFacts):
    """Facts about format ``hdf5_crops``, whose files ``hdf5`` describes."""

    name: ClassVar[str] = "hdf5_crops"
    format: ClassVar[str] = "dlio_torch.formats.hdf5.crops_format:Hdf5CropsFormat"
    options: ClassVar[type | None] = Hdf5Config
    group: ClassVar[str] = "hdf5"
    one_lock: ClassVar[bool] = True  # h5py: one lock for all calls of a process
    unordered: ClassVar[str] = "crops lie anywhere in an array, so that the file cannot be read as a stream of samples"
    uncompressed: ClassVar[tuple[str, Any] | None] = ("compression", "none")

    def check(self, config: Config, fail: Fail) -> None:
        if config.access.io != "posix":
            fail(["dataset.format", "access.io"], "crops are not read by MPI-IO", "set access.io=posix")

    def keeps_files(self, config: Config) -> bool:
        return config.dataset.of(Hdf5Config).reopen != "file"

    def axes(self, config: Config) -> Iterator[Axis]:
        yield self.key("chunk_cache_bytes"), sizes(CACHES, config.dataset.of(Hdf5Config).chunk_cache_bytes)

    def calls(self, config: Config) -> Iterator[Call]:
        options = config.dataset.of(Hdf5Config)
        yield file_call(options.chunk_cache_bytes, core=options.driver == "core")


def file_call(cache_bytes: int, *, core: bool = False) -> Call:
    """The ``h5py.File`` call that opens a file for reading, as code.

    Args:
        cache_bytes: size of the chunk cache of each array.
        core: the whole file is read at the open.
    """
    from dlio_torch.formats.hdf5.file import CHUNK_W0, chunk_slots

    options: dict[str, Any] = {"rdcc_nbytes": cache_bytes, "rdcc_nslots": chunk_slots(cache_bytes), "rdcc_w0": CHUNK_W0}
    if core:
        options |= {"driver": "core", "backing_store": False}
    return "h5py.File(...)", call_text("h5py.File", ["path", '"r"'], options)


def _create(config: Config, field: FieldConfig) -> str:
    import numpy as np

    from dlio_torch.formats.core.chunk_shapes import chunk_shape

    options = config.dataset.of(Hdf5Config)
    rows = max(1, round(config.dataset.samples_per_file * (field.length_mean or 1)))
    shape = (rows, *field.shape)
    chunks: tuple[int, ...] | None = None
    if field.chunk is not None:
        chunks = tuple(min(a, b) for a, b in zip(field.chunk, shape, strict=True))
    elif options.chunk_bytes:
        chunks = chunk_shape(rows, tuple(field.shape), np.dtype(field.dtype).itemsize, options.chunk_bytes)
    keywords: dict[str, Any] = {"shape": shape, "dtype": field.dtype, "chunks": chunks}
    if chunks is not None and options.compression != "none":
        keywords["compression"] = options.compression
        if options.compression == "gzip":
            keywords["compression_opts"] = options.compression_level
    return call_text("file.create_dataset", [literal(field.name)], keywords)
