"""Facts about format ``larcv3`` that need no open file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dlio_torch.formats.core.facts import NO_LIBRARY_CALLS, Axis, Call, FormatFacts, Unused
from dlio_torch.formats.core.tuning import CACHES, sizes
from dlio_torch.formats.hdf5.facts import file_call
from dlio_torch.formats.larcv3.options import Larcv3Config

if TYPE_CHECKING:
    from dlio_torch.config.check import Fail
    from dlio_torch.config.scaling import Scaler
    from dlio_torch.config.schema import Config

# Twenty B-tree nodes of 2,096 bytes: the paths to the chunks of a batch in the nine arrays of larcv3.
_INDEX_PATH_BYTES = 42 * 1024
# Share of a run in which the index is cold: Cosmic Tagger's own trace has 16 reads of nodes in each of the first
# steps and 8.6 in the last ones, 9.9 on average.
_COLD_SHARE = 0.13
_NAMES_BYTES = 32 << 10  # the names of the root group, and of the group of events, lie in the first kilobytes


class Larcv3Facts(FormatFacts):
    """Facts about format ``larcv3``."""

    name: ClassVar[str] = "larcv3"
    format: ClassVar[str] = "dlio_torch.formats.larcv3.format:Larcv3Format"
    options: ClassVar[type | None] = Larcv3Config
    one_lock: ClassVar[bool] = True  # h5py: one lock for all calls of a process
    based_on: ClassVar[str] = "hdf5"
    suffixes: ClassVar[tuple[str, ...]] = (".h5", ".hdf5")
    content: ClassVar[str] = "dlio_torch.formats.hdf5.content:read_content"
    describe: ClassVar[str] = "dlio_torch.formats.larcv3.describe:describe"
    uncompressed: ClassVar[tuple[str, Any] | None] = ("compression_level", 0)

    def recognises(self, path: Path, head: bytes) -> bool:
        """Whether the names of larcv3's table of events and of its groups stand at the begin of an HDF5 file."""
        with path.open("rb") as file:
            begin = file.read(_NAMES_BYTES)
        return all(name in begin for name in (b"Events\0", b"Data\0", b"event_id\0"))

    def check_options(self, config: Config, fail: Fail) -> None:
        options = config.dataset.of(Larcv3Config)
        if any(length < 1 for length in options.image_shape):
            key = self.key("image_shape")
            fail([key], "every length of the image shape must be at least 1", f"set {key}=[64,64], for example")

    def check(self, config: Config, fail: Fail) -> None:
        if not config.dataset.of(Larcv3Config).producers:
            key = self.key("producers")
            fail(
                [key, "dataset.format"],
                "without producers there are no groups to read",
                f"set {key}=[{{name: sparse2d_image}}]",
            )

    def unused_by_decoupled(self, config: Config) -> Sequence[Unused]:
        names = ("chunk_cache_bytes", "table_cache_chunks", "metadata_cache_bytes", "cold_events", "opens")
        return [Unused(self.key(name), NO_LIBRARY_CALLS) for name in names]

    def first_touch(self, work: Scaler, before: Config, samples: int) -> None:
        """Limit caches so that a small file is read like the published file.

        A published run reads a small part of a large file, so it finds each index node and table chunk on
        the device.  A small file would sit in HDF5's caches after its first steps.  What one batch needs
        still fits: the nodes on the way to its chunks, and one chunk of each table; but not in the first steps,
        in which the published run finds no node in memory.
        """
        if work.config.dataset.samples_per_file >= before.dataset.samples_per_file:
            return
        work.set(self.key("table_cache_chunks"), 1)
        work.set(self.key("metadata_cache_bytes"), _INDEX_PATH_BYTES)
        work.set(self.key("cold_events"), round(_COLD_SHARE * samples))

    def axes(self, config: Config) -> Iterator[Axis]:
        yield self.key("chunk_cache_bytes"), sizes(CACHES, config.dataset.of(Larcv3Config).chunk_cache_bytes)

    def calls(self, config: Config) -> Iterator[Call]:
        yield file_call(config.dataset.of(Larcv3Config).chunk_cache_bytes)
