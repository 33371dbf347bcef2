"""Synthetic events of larcv3 files, whose chunks deflate to published sizes.

What makes a chunk of voxels large or small, as measured on real events of Cosmic Tagger: voxel ids
grow within an image, half of the steps are 1 (tracks), the others spread over three decades; charges
are floats with full mantissas; labels are three classes in runs.  Chunks differ because some images
have long tracks and others do not.  The same structure is made here, with three parameters that are
fitted to ``stored_chunk_mean`` and ``stored_chunk_stdev``.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import Larcv3Config, ProducerConfig
from dlio_torch.formats import payload

VOXEL = np.dtype({"names": ["id", "value"], "formats": ["<u8", "<f4"], "offsets": [0, 8], "itemsize": 16})
VOXEL_EXTENTS = np.dtype([("first", "<u8"), ("N", "<u4"), ("ID", "<u4")])
META = np.dtype(
    {
        "names": ["valid", "projection_id", "image_sizes", "number_of_voxels", "origin"],
        "formats": ["u1", "<u8", ("<f8", (2,)), ("<u8", (2,)), ("<f8", (2,))],
        "offsets": [0, 8, 16, 32, 48],
        "itemsize": 72,
    }
)

# Real events: 49.6 % of the steps between ids are 1; the others spread over three decades.
_TRACK_SHARE = 0.4957
_GAP_SIGMA = 1.5
_IDS, _VALUES = 0, 1  # random streams of an event
_COUNTS = 0xC0  # random stream of the numbers of voxels
_SPREAD = ":spread"
_SHARE_LIMITS = (0.02, 0.98)
_FIT_CHUNKS = 32
_FIT_STEPS = 12
_FIT_DELTA = 0.15
# Values of a standard normal variable at evenly spaced probabilities: a spread without sampling noise.
_QUANTILES = np.array([NormalDist().inv_cdf((i + 0.5) / _FIT_CHUNKS) for i in range(_FIT_CHUNKS)])
# Another order of the same values, for a second variable that does not depend on the first.
_SHUFFLED = (np.arange(_FIT_CHUNKS) * 13 + 5) % _FIT_CHUNKS


@dataclass(frozen=True)
class Event:
    """The images of one event.

    Attributes:
        sample: its number in the data set.
        counts: int64 (images,), voxels of each image.
        ids: uint64 (sum of counts,), pixel numbers, growing within an image.
    """

    sample: int
    counts: npt.NDArray[np.int64]
    ids: npt.NDArray[np.uint64]


class EventContent:
    """Makes events, each from the seed and its own number alone.

    Args:
        options: layout and published sizes.
        seed: of the data set.
    """

    def __init__(self, options: Larcv3Config, seed: int) -> None:
        self._options = options
        self._seed = seed
        self._pixels = options.image_shape[0] * options.image_shape[1]
        self._fitted: dict[str, float] | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def counts(self, first: int, count: int) -> npt.NDArray[np.int64]:
        """Voxels of each image of events ``first`` on: int64 (count, images)."""
        images = self._options.images
        options = self._options
        flat = payload.lengths(
            self._seed, _COUNTS, first * images, count * images, options.voxels_mean, options.voxels_stdev
        )
        return np.minimum(flat, self._pixels // 4).reshape(count, images)

    def event(self, sample: int) -> Event:
        """Event ``sample``."""
        counts = self.counts(sample, 1)[0]
        generator = payload.rng(self._seed, sample, _IDS)
        spread = self.parameters()["track_share_stdev"]
        return Event(sample, counts, np.concatenate([self._image_ids(generator, int(n), spread) for n in counts]))

    def _image_ids(self, generator: np.random.Generator, count: int, spread: float) -> npt.NDArray[np.uint64]:
        share = float(np.clip(_TRACK_SHARE + spread * generator.standard_normal(), *_SHARE_LIMITS))
        return _ids(generator, count, share, self._pixels)

    def voxels(self, event: Event, producer: int) -> npt.NDArray[np.generic]:
        """Voxels of all images of ``event`` by producer number ``producer``: VOXEL (sum of counts,)."""
        made = np.zeros(len(event.ids), VOXEL)
        made["id"] = event.ids
        generator = payload.rng(self._seed, event.sample, _VALUES + producer)
        options = self._options.producers[producer]
        knob, spread = (self.parameters()[options.name + key] for key in ("", _SPREAD))
        end = 0
        for count in event.counts.tolist():
            own = min(1.0, knob * float(np.exp(spread * generator.standard_normal())))
            made["value"][end : end + count] = self._values(generator, count, options.values, own)
            end += count
        return made

    @staticmethod
    def _values(generator: np.random.Generator, count: int, kind: str, knob: float) -> npt.NDArray[np.float32]:
        """Labels change class with probability ``knob``; charges are new with probability ``knob``."""
        fresh = generator.random(count, dtype=np.float32) < knob
        if kind == "label":
            return (np.cumsum(fresh) % 3).astype(np.float32)
        charge = 5 + 23 * generator.standard_exponential(count, dtype=np.float32)
        newest = np.maximum.accumulate(np.where(fresh, np.arange(count), 0))
        return charge[newest].astype(np.float32)

    def meta(self, images: int) -> npt.NDArray[np.generic]:
        """Rows of image_meta of one event, the same for all events: META (images,)."""
        table = np.zeros(images, META)
        table["valid"], table["projection_id"] = 1, np.arange(images)
        table["image_sizes"] = table["number_of_voxels"] = self._options.image_shape
        return table

    def voxel_extents(self, event: Event) -> npt.NDArray[np.generic]:
        """Rows of voxel_extents of one event, counted from its own first voxel: VOXEL_EXTENTS (images,)."""
        table = np.zeros(len(event.counts), VOXEL_EXTENTS)
        table["first"] = np.concatenate([[0], np.cumsum(event.counts)[:-1]])
        table["N"], table["ID"] = event.counts, np.arange(len(event.counts))
        return table

    # --- fitting -------------------------------------------------------------------------------

    def parameters(self) -> dict[str, float]:
        """What the sizes were fitted with: 'track_share_stdev', and knob and spread of each producer."""
        if self._fitted is None:
            with self._lock:
                if self._fitted is None:
                    self._fitted = self._fit()
        return self._fitted

    def use_parameters(self, parameters: Mapping[str, float]) -> None:
        """Take the parameters of an earlier fit, so that another zlib cannot change the content."""
        self._fitted = dict(parameters)

    def _fit(self) -> dict[str, float]:
        """Deflate trial chunks until mean and spread are the published ones, or as near as can be.

        The share of tracks differs between images and moves the chunks of all producers; it is
        spread as far as the producer with the smallest published spread allows.  A producer that
        needs more gets a knob that differs between images as well.
        """
        producers = self._options.producers
        scale = self._options.voxels_chunk / 1000  # the published sizes are of chunks of 1,000 voxels
        even = np.full(_FIT_CHUNKS, _TRACK_SHARE)
        knobs, needed = {}, {}
        for p in producers:
            knobs[p.name] = self._knob(p, even)
            low, high = (self._trial(p.values, knobs[p.name], even + d) for d in (-_FIT_DELTA, _FIT_DELTA))
            slope = (low.mean() - high.mean()) / (2 * _FIT_DELTA)
            wanted = (p.stored_chunk_stdev * scale) ** 2 - (low.var() + high.var()) / 2
            needed[p.name] = np.sqrt(max(0.0, wanted)) / max(1e-9, slope)
        spread = float(min([0.25, *needed.values()]))
        fitted = {"track_share_stdev": spread}
        shares = np.clip(even + spread * _QUANTILES, *_SHARE_LIMITS)
        for p in producers:
            knob = fitted[p.name] = self._knob(p, shares)
            wanted = (p.stored_chunk_stdev * scale) ** 2 - self._trial(p.values, knob, shares).var()
            more, less = (self._trial(p.values, min(1.0, knob * f), shares).mean() for f in (1.25, 0.8))
            slope = (more - less) / np.log(1.25**2)
            fitted[p.name + _SPREAD] = float(min(0.5, np.sqrt(max(0.0, wanted)) / slope)) if slope > 1 else 0.0
        return fitted

    def _knob(self, producer: ProducerConfig, shares: npt.NDArray[np.float64]) -> float:
        """The knob that gives the published mean."""
        return _bisect(
            lambda knob: float(self._trial(producer.values, knob, shares).mean()),
            producer.stored_chunk_mean * self._options.voxels_chunk / 1000,
        )

    def _trial(self, kind: str, knob: float, shares: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Deflated sizes of trial chunks, one for each of the given shares of tracks."""
        generator = np.random.Generator(np.random.Philox(key=[0, 0]))
        size, sizes = self._options.voxels_chunk, []
        for share, voxels in zip(shares, self._typical_counts(), strict=True):
            pixels = max(size, int(self._pixels * size / voxels))
            made = np.zeros(size, VOXEL)
            made["id"] = _ids(generator, size, float(share), pixels) + generator.integers(
                0, self._pixels, dtype=np.uint64
            )
            made["value"] = self._values(generator, size, kind, knob)
            sizes.append(len(zlib.compress(made.tobytes(), self._options.compression_level)))
        return np.array(sizes)

    def _typical_counts(self) -> npt.NDArray[np.float64]:
        """Voxels of the images that trial chunks are taken from.

        A chunk is more often found in an image with many voxels: the size-biased distribution.
        """
        mean, stdev = self._options.voxels_mean, self._options.voxels_stdev
        counts = mean + stdev**2 / mean + stdev * _QUANTILES[_SHUFFLED]
        return np.clip(counts, 1, 2 * mean)


def _ids(generator: np.random.Generator, count: int, share: float, pixels: int) -> npt.NDArray[np.uint64]:
    """Growing pixel numbers that span an image: steps of 1 along tracks, log-normal gaps between them."""
    gaps = np.flatnonzero(generator.random(count, dtype=np.float32) >= share)
    if len(gaps) == 0:
        return np.arange(count, dtype=np.uint64)
    widths = np.exp(_GAP_SIGMA * generator.standard_normal(len(gaps)))
    steps = np.ones(count)
    steps[gaps] += np.floor(widths * ((pixels - count) / widths.sum()))
    ids: npt.NDArray[np.uint64] = np.cumsum(steps).astype(np.uint64) - np.uint64(1)
    return ids


def _bisect(size_of: Callable[[float], float], wanted: float) -> float:
    """The knob between 0 and 1 whose chunks are nearest to ``wanted``; sizes grow with the knob."""
    low, high = 0.0, 1.0
    for _ in range(_FIT_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if size_of(middle) < wanted else (low, middle)
    return (low + high) / 2
