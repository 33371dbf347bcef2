"""Facts about format ``hdf5_volume`` that need no open file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dlio_torch.formats.core.facts import NO_LIBRARY_CALLS, Axis, Call, FormatFacts, LayoutAdvice, Unused
from dlio_torch.formats.core.tuning import CACHES, sizes
from dlio_torch.formats.hdf5.facts import file_call
from dlio_torch.formats.hdf5_volume.options import VolumeConfig

if TYPE_CHECKING:
    from dlio_torch.config.scaling import Scaler
    from dlio_torch.config.schema import Config

_GZIP = b"\x1f\x8b"
VOLUME_SUFFIX = ".h5"
"""End of the name of a volume's file."""


def volume_files(path: Path) -> list[Path]:
    """Files of the volumes that lie beside a list of coordinates, sorted by name."""
    names = path.parent.iterdir() if path.parent.is_dir() else ()
    return sorted(
        other for other in names if other.name.startswith(f"{path.name}.") and other.name.endswith(VOLUME_SUFFIX)
    )


class Hdf5VolumeFacts(FormatFacts):
    """Facts about format ``hdf5_volume``."""

    name: ClassVar[str] = "hdf5_volume"
    format: ClassVar[str] = "dlio_torch.formats.hdf5_volume.format:Hdf5VolumeFormat"
    options: ClassVar[type | None] = VolumeConfig
    group: ClassVar[str] = "volume"
    one_lock: ClassVar[bool] = True  # h5py: one lock for all calls of a process
    unordered: ClassVar[str] = (
        "patches lie anywhere in a volume, so that the file cannot be read as a stream of samples"
    )
    describe: ClassVar[str] = "dlio_torch.formats.hdf5_volume.describe:describe"
    uncompressed: ClassVar[tuple[str, Any] | None] = ("compression_level", 0)

    def recognises(self, path: Path, head: bytes) -> bool:
        """Whether a compressed file has volumes beside it, ``<file>.<name>.h5``."""
        return head.startswith(_GZIP) and bool(volume_files(path))

    def unused_by_decoupled(self, config: Config) -> Sequence[Unused]:
        return (Unused(self.key("chunk_cache_bytes"), NO_LIBRARY_CALLS),)

    def scale(self, work: Scaler) -> None:
        """Make volumes smaller; each edge stays at least as long as a patch and a chunk, which keep their shapes."""
        limit, volume = work.config.scale.max_volume_edge, work.config.dataset.of(VolumeConfig)
        if not limit:
            return
        parts = [volume.patch, *(array.chunk for array in volume.arrays)]
        least = [
            max((part[axis] for part in parts if axis < len(part)), default=1) for axis in range(len(volume.shape))
        ]
        edges = [min(edge, max(limit, low)) for edge, low in zip(volume.shape, least, strict=True)]
        work.set(self.key("shape"), edges)

    def axes(self, config: Config) -> Iterator[Axis]:
        yield self.key("chunk_cache_bytes"), sizes(CACHES, config.dataset.of(VolumeConfig).chunk_cache_bytes)

    def calls(self, config: Config) -> Iterator[Call]:
        yield file_call(config.dataset.of(VolumeConfig).chunk_cache_bytes)

    def layout_advice(self, config: Config, amplification: float) -> LayoutAdvice | None:
        """Smaller chunks; at random positions a patch touches chunks of prod(patch + chunk - 1) voxels on average."""
        volume = config.dataset.of(VolumeConfig)
        for i, array in enumerate(volume.arrays):
            smaller = [max(8, length // 2) for length in array.chunk]
            now, then = (_touched(volume.patch, chunk) for chunk in (array.chunk, smaller))
            if then <= 0.75 * now:
                why = f"a patch of {_by(volume.patch)} touches chunks of {_by(array.chunk)}"
                value = f"[{','.join(map(str, smaller))}]"
                return LayoutAdvice(self.key(f"arrays.{i}.chunk"), value, why, amplification * then / now)
        return None


def _touched(patch: Sequence[int], chunk: Sequence[int]) -> float:
    """Read amplification of a patch: voxels of the chunks that it touches / its own voxels."""
    return math.prod((edge + other - 1) / edge for edge, other in zip(patch, chunk, strict=True))


def _by(lengths: Sequence[int]) -> str:
    return "x".join(map(str, lengths))
