"""Synthetic events of larcv3 files, whose chunks compress to published sizes.

The size of a chunk of voxels follows from its content.  In measured events of Cosmic Tagger, voxel ids
grow within an image, half of the steps are 1 (tracks), the others spread over three decades; charges
are floats with full mantissas; labels are three classes in runs.  Chunks of one image differ: where many
particles cross, labels change more often.  The same structure is made here, with the probability that a
voxel brings a new label or a new charge drawn for each stretch of an event.  Its distribution is
fitted (:mod:`dlio_torch.formats.larcv3.size_fit`), until chunks have the published distribution of sizes.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.formats.core import payload
from dlio_torch.formats.larcv3.options import Larcv3Config
from dlio_torch.formats.larcv3.size_fit import (
    LEVELS,
    STRETCH_CHUNKS,
    VOXEL,
    draw_charges,
    fit,
    knobs_of,
    mean_gap,
    pixel_numbers,
    producer_deviates,
    values_of,
    wanted_sizes,
)

VOXEL_EXTENTS = np.dtype([("first", "<u8"), ("N", "<u4"), ("ID", "<u4")])
META = np.dtype(
    {
        "names": ["valid", "projection_id", "image_sizes", "number_of_voxels", "origin"],
        "formats": ["u1", "<u8", ("<f8", (2,)), ("<u8", (2,)), ("<f8", (2,))],
        "offsets": [0, 8, 16, 32, 48],
        "itemsize": 72,
    }
)

# Random streams of an event; producer number p has the stream _VALUES + p.
_IDS, _VALUES, _BUSY, _UNSET = 0, 1, 0xB0, 0xB1
_COUNTS, _PARTS = 0xC0, 0xC1  # random streams of the numbers of voxels
# The images of an event see the same particles: their shares vary by a few per cent [real events].
_PART_MEAN, _PART_STDEV = 1_000_000, 40_000
# Bytes between 'valid' and 'projection_id' of some real events; that of one in five gives the published sizes.
_UNSET_EVENTS, _UNSET_BYTES = 0.2, bytes.fromhex("00000000407f40")


@dataclass(frozen=True)
class Event:
    """Sparse images of one event.

    Attributes:
        sample: its number in the data set.
        counts: int64 (images,), voxels of each image.
        ids: uint64 (sum of counts,), pixel numbers, growing within an image.
    """

    sample: int
    counts: npt.NDArray[np.int64]
    ids: npt.NDArray[np.uint64]


class EventContent:
    """Generator of events, each of which depends only on the seed and its number.

    Args:
        options: layout and published sizes.
        seed: of the data set.

    Raises:
        ConfigError: ``stored_chunk_quantiles`` of a producer are no distribution.
    """

    def __init__(self, options: Larcv3Config, seed: int) -> None:
        self._options = options
        self.seed = seed
        self._pixels = options.image_shape[0] * options.image_shape[1]
        self._gap = mean_gap(options)
        self._stretch = max(1, round(STRETCH_CHUNKS * options.voxels_chunk))
        self._fitted: dict[str, float] | None = None
        self._lock = threading.Lock()
        for producer in options.producers:
            wanted_sizes(producer)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def counts(self, first: int, count: int) -> npt.NDArray[np.int64]:
        """Number of voxels in each image of ``count`` events from ``first`` on; int64 of ``(count, images)``."""
        options, images = self._options, self._options.images
        mean, stdev = options.voxels_mean, options.voxels_stdev
        if not options.image_shares:
            flat = payload.lengths(self.seed, _COUNTS, first * images, count * images, mean, stdev)
            return np.minimum(flat, self._pixels // 4).reshape(count, images)
        # One number an event, spread as much as the sum of independent images.
        events = payload.lengths(self.seed, _COUNTS, first, count, images * mean, math.sqrt(images) * stdev)
        parts = payload.lengths(self.seed, _PARTS, first * images, count * images, _PART_MEAN, _PART_STDEV)
        shares = np.array(options.image_shares) / sum(options.image_shares) / _PART_MEAN
        counts = np.rint(events[:, None] * shares * parts.reshape(count, images)).astype(np.int64)
        return np.minimum(counts, self._pixels // 4)

    def event(self, sample: int) -> Event:
        """Generates event number ``sample``."""
        counts = self.counts(sample, 1)[0]
        generator = payload.rng(self.seed, sample, _IDS)
        ids = [pixel_numbers(generator, count, self._gap, self._pixels) for count in counts.tolist()]
        return Event(sample, counts, np.concatenate(ids))

    def voxels(self, event: Event, producer: int) -> npt.NDArray[np.generic]:
        """Voxels of all images of ``event`` by producer number ``producer``: VOXEL (sum of counts,)."""
        options, count = self._options.producers[producer], len(event.ids)
        stretches = -(-count // self._stretch)
        # Drawn once for all producers: where an event is busy, the chunks of each are larger.
        common = payload.rng(self.seed, event.sample, _BUSY).standard_normal(stretches)
        generator = payload.rng(self.seed, event.sample, _VALUES + producer)
        deviates = producer_deviates(common, generator.standard_normal(stretches))
        knobs = np.repeat(knobs_of(deviates, self._knobs(options.name)), self._stretch)[:count]
        places = generator.random(count, dtype=np.float32)
        voxels = np.zeros(count, VOXEL)
        voxels["id"] = event.ids
        voxels["value"] = values_of(
            knobs, places, draw_charges(generator, count) if options.values == "charge" else None
        )
        return voxels

    def _knobs(self, producer: str) -> npt.NDArray[np.float64]:
        parameters = self.parameters()
        return np.array([parameters[f"{producer}:{level}"] for level in LEVELS])

    def meta(self, sample: int, producer: int) -> npt.NDArray[np.generic]:
        """Rows of image_meta of event ``sample`` by producer number ``producer``: META (images,).

        Between the members of a charge producer's records lies what the real file has there: memory that the
        program which wrote it had not set.
        """
        images = self._options.images
        table = np.zeros(images, META)
        table["valid"], table["projection_id"] = 1, np.arange(images)
        table["image_sizes"] = table["number_of_voxels"] = self._options.image_shape
        if self._options.producers[producer].values == "charge":
            raw = table.view(np.uint8).reshape(images, META.itemsize)
            raw[0, 64:] = np.frombuffer(np.float64(self._options.image_shape[1]).tobytes(), np.uint8)
            if payload.rng(self.seed, sample, _UNSET).random() < _UNSET_EVENTS:
                raw[:, 1:8] = np.frombuffer(_UNSET_BYTES, np.uint8)
        return table

    def voxel_extents(self, event: Event) -> npt.NDArray[np.generic]:
        """Rows of voxel_extents of one event, counted from its own first voxel: VOXEL_EXTENTS (images,)."""
        table = np.zeros(len(event.counts), VOXEL_EXTENTS)
        table["first"] = np.concatenate([[0], np.cumsum(event.counts)[:-1]])
        table["N"], table["ID"] = event.counts, np.arange(len(event.counts))
        return table

    def parameters(self) -> dict[str, float]:
        """Fitted parameters of the chunk sizes: logarithm of each producer's size parameter at each of ``LEVELS``."""
        if self._fitted is None:
            with self._lock:
                if self._fitted is None:
                    self._fitted = {
                        f"{producer.name}:{level}": float(knob)
                        for producer in self._options.producers
                        for level, knob in zip(LEVELS, fit(self._options, producer), strict=True)
                    }
        return self._fitted

    def use_parameters(self, parameters: Mapping[str, float]) -> None:
        """Take the parameters of an earlier fit, so that another zlib cannot change the content."""
        if set(parameters) != {f"{producer.name}:{level}" for producer in self._options.producers for level in LEVELS}:
            raise ValueError("the parameters belong to other producers")
        self._fitted = dict(parameters)
