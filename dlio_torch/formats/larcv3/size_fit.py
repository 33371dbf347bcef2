"""Random voxels for generated events, fitted so that compressed chunks have the published distribution of sizes.

A chunk of a label producer is the larger the more often the label changes from voxel to voxel, one of a
charge producer the more often a charge is new.  That probability is the producer's knob.  One value
is drawn for each stretch of two and a half chunks, so that neighbouring chunks resemble each other as those of
the real run do (correlation 0.5), and each producer's draw leans on one that all producers share.  The fit
finds the distribution of knobs whose chunks have the wanted distribution of sizes.
"""

from __future__ import annotations

import math
import zlib
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import ConfigError
from dlio_torch.formats.larcv3.options import Larcv3Config, ProducerConfig

VOXEL = np.dtype({"names": ["id", "value"], "formats": ["<u8", "<f4"], "offsets": [0, 8], "itemsize": 16})

LEVELS = (0.005, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.995)
"""Probabilities of the quantiles in ``stored_chunk_quantiles``."""
_DEVIATES = np.array([NormalDist().inv_cdf(level) for level in LEVELS])

# Real events: 49.6 % of the steps between ids are 1; the others spread over three decades.
_TRACK_SHARE = 0.4957
_GAP_SIGMA = 1.5
_MEAN_WIDTH = math.exp(_GAP_SIGMA**2 / 2)  # of a log-normal variable
# Real charges: at least 5, median 9, three quarters below 39, 95 % below 95.
_CHARGE_LEAST, _CHARGE_MEANS = 5, (1.5, 50)

STRETCH_CHUNKS = 2.5
_COMMON = 0.6  # its square is the correlation of label and charge chunks, 0.36 in the real run

# The fit: chunks that are deflated with each knob, coarse logarithms of knobs, then steps in between, how far
# beyond the wanted sizes; and chunks whose sizes are calculated in each round.
_TRIALS, _FEW_TRIALS = 96, 16
_GRID = (-9.0, -7.0, -5.5, -4.5, -3.7, -3.0, -2.5, -2.0, -1.6, -1.2, -0.8, -0.5, -0.3, -0.1, 0.0)
_STEPS, _BEYOND = 12, 60
_CHUNKS, _ROUNDS, _GAIN = 4096, 30, 0.5

Floats = npt.NDArray[np.float64]


def wanted_sizes(producer: ProducerConfig) -> Floats:
    """Sizes in bytes of stored chunks of 1,000 voxels at :data:`LEVELS`: as published, or of a normal distribution.

    Raises:
        ConfigError: ``stored_chunk_quantiles`` has another length, or falls.
    """
    given = producer.stored_chunk_quantiles
    if not given:
        return np.maximum(producer.stored_chunk_mean + producer.stored_chunk_stdev * _DEVIATES, 1.0)
    if len(given) != len(LEVELS) or sorted(given) != given or given[0] < 1:
        raise ConfigError(
            f"dataset.larcv3.producers: stored_chunk_quantiles of {producer.name} must be {len(LEVELS)} "
            f"non-decreasing sizes, not {given}",
            hint=f"set {len(LEVELS)} sizes of 1 byte or more, none below the one before, at the quantiles "
            f"{', '.join(map(str, LEVELS))}",
        )
    return np.array(given, float)


def mean_size(producer: ProducerConfig) -> float:
    """Mean size in bytes of a stored chunk of 1,000 voxels."""
    if not producer.stored_chunk_quantiles:
        return producer.stored_chunk_mean
    sizes = wanted_sizes(producer)
    inner = float(np.sum((sizes[1:] + sizes[:-1]) / 2 * np.diff(LEVELS)))
    return inner + float(sizes[0] * LEVELS[0] + sizes[-1] * (1 - LEVELS[-1]))


def knobs_of(deviates: Floats, fitted: Floats) -> Floats:
    """Size parameters of runs of voxels, from normal ``deviates`` and the fitted logarithms at :data:`LEVELS`."""
    knobs: Floats = np.exp(np.interp(deviates, _DEVIATES, fitted))
    return knobs


def producer_deviates(common: Floats, individual: Floats) -> Floats:
    """Correlated normal deviates of a producer's runs of voxels: chunk sizes of all producers vary together."""
    return _COMMON * common + math.sqrt(1 - _COMMON**2) * individual


def pixel_numbers(generator: np.random.Generator, count: int, gap: float, pixels: int) -> npt.NDArray[np.uint64]:
    """Ascending pixel numbers of an image: steps of 1 along tracks, log-normal gaps between tracks.

    Args:
        generator: source of randomness; advanced.
        count: voxels of the image, fewer than half of its pixels.
        gap: mean gap; smaller where so many voxels would leave the image.
        pixels: of the image.
    """
    gaps = np.flatnonzero(generator.random(count, dtype=np.float32) >= _TRACK_SHARE)
    if len(gaps) == 0:
        return np.arange(count, dtype=np.uint64)
    widths = np.exp(_GAP_SIGMA * generator.standard_normal(len(gaps)))
    steps = np.ones(count)
    steps[gaps] += np.floor(widths * min(gap / _MEAN_WIDTH, (pixels - count) / widths.sum()))
    ids: npt.NDArray[np.uint64] = np.cumsum(steps).astype(np.uint64) - np.uint64(1)
    return ids


def mean_gap(options: Larcv3Config) -> float:
    """Mean gap between tracks in pixels, such that 1.6 times the voxels of the fullest image fit.

    The same in all images, so that what differs between chunks is their values alone.
    """
    fullest = 1.6 * float(image_voxels(options).max())
    pixels = options.image_shape[0] * options.image_shape[1]
    return max(0.0, pixels / fullest - 1) / (1 - _TRACK_SHARE)


def marks(probabilities: npt.NDArray[np.floating[Any]], places: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Marks voxels with the given probabilities: one voxel in each run over which the probabilities sum up to 1.

    Independent draws would let the number of marks in a chunk, and so its size, vary more than it does in
    the real file.

    Args:
        probabilities: of each voxel; 0 to 1.
        places: uniform random numbers, as many: where in its stretch a mark lies.
    """
    reach = np.cumsum(probabilities, axis=-1, dtype=np.float64)
    cell = np.floor(reach).astype(np.int64)
    goal = np.take_along_axis(places, np.minimum(cell, places.shape[-1] - 1), -1)
    before = reach - probabilities
    return (reach - cell >= goal) & (before < cell + goal)


def values_of(
    knobs: npt.NDArray[np.floating[Any]], places: npt.NDArray[np.float32], charges: npt.NDArray[np.float32] | None
) -> npt.NDArray[np.float32]:
    """Values of voxels; voxels lie along the last axis.

    Args:
        knobs: probability that a label changes, or that a charge is new.
        places: see :func:`marks`.
        charges: charges of which only the new ones count; ``None``: labels.
    """
    if charges is None:
        return (np.cumsum(marks(knobs, places), axis=-1) % 3).astype(np.float32)
    old = marks(1 - knobs, places)
    newest = np.maximum.accumulate(np.where(old, 0, np.arange(old.shape[-1])), axis=-1)
    return np.take_along_axis(charges, newest, -1)


def draw_charges(generator: np.random.Generator, count: int) -> npt.NDArray[np.float32]:
    """Charges of ``count`` voxels: half are noise just above the threshold, half are signal."""
    means = np.where(generator.random(count, dtype=np.float32) < 0.5, *_CHARGE_MEANS)
    return (_CHARGE_LEAST + means * generator.standard_exponential(count, dtype=np.float32)).astype(np.float32)


def image_voxels(options: Larcv3Config) -> Floats:
    """Mean number of voxels in each image of an event."""
    shares = options.image_shares or [1 / options.images] * options.images
    return np.array(shares) / sum(shares) * options.images * options.voxels_mean


class _Trials:
    """Trial chunks of one producer that differ only in their size parameter."""

    def __init__(self, options: Larcv3Config, producer: ProducerConfig) -> None:
        generator = np.random.Generator(np.random.Philox(key=[0, 0]))
        self._level = options.compression_level
        size = options.voxels_chunk
        pixels = options.image_shape[0] * options.image_shape[1]
        gap = mean_gap(options)
        self._rows = np.zeros((_TRIALS, size), VOXEL)
        for row in self._rows:
            # As large numbers as in an image, of which this is a part.
            start = generator.integers(0, pixels, dtype=np.uint64)
            row["id"] = pixel_numbers(generator, size, gap, size * pixels) + start
        self._places = generator.random((_TRIALS, size), dtype=np.float32)
        charges = producer.values == "charge"
        self._charges = draw_charges(generator, _TRIALS * size).reshape(_TRIALS, size) if charges else None

    def sizes(self, logarithm: float, count: int) -> Floats:
        """Compressed sizes in bytes of ``count`` chunks with this size parameter."""
        rows, charges = self._rows[:count], None if self._charges is None else self._charges[:count]
        knobs = np.full((count, rows.shape[1]), math.exp(logarithm))
        rows["value"] = values_of(knobs, self._places[:count], charges)
        return np.array([float(len(zlib.compress(row.tobytes(), self._level))) for row in rows])


def fit(options: Larcv3Config, producer: ProducerConfig) -> Floats:
    """Fits logarithms of the size parameter at :data:`LEVELS`, so that compressed chunks have the wanted sizes.

    What a knob makes of a chunk is measured by deflating some; what a distribution of knobs makes of many
    chunks, each of one stretch or across the border of two, is then calculated.
    """
    trials = _Trials(options, producer)
    wanted = wanted_sizes(producer) * options.voxels_chunk / 1000
    coarse = np.maximum.accumulate([trials.sizes(knob, _FEW_TRIALS).mean() for knob in _GRID])
    span = np.linspace(max(wanted[0] - _BEYOND, coarse[0]), min(wanted[-1] + _BEYOND, coarse[-1]), _STEPS)
    grid = np.unique(np.interp(span, coarse, _GRID))
    if len(grid) == 1:
        return np.full(len(LEVELS), grid[0])  # no knob reaches the wanted sizes: the nearest
    measured = [trials.sizes(knob, _TRIALS) for knob in grid]
    means = np.maximum.accumulate([sizes.mean() for sizes in measured])
    noise = float(np.mean([sizes.std() for sizes in measured]))

    generator = np.random.Generator(np.random.Philox(key=[0, 1]))
    first, second, random = (generator.permutation(_spread(_CHUNKS)) for _ in range(3))
    share = np.minimum(1.0, generator.permutation((np.arange(_CHUNKS) + 0.5) / _CHUNKS) * STRETCH_CHUNKS)
    knobs = np.interp(wanted, means, grid)
    quantiles = (np.arange(_CHUNKS) + 0.5) / _CHUNKS
    slopes = np.maximum(np.gradient(means, grid), 1.0)
    for _ in range(_ROUNDS):
        first_sizes, second_sizes = (
            np.interp(np.interp(deviates, _DEVIATES, knobs), grid, means) for deviates in (first, second)
        )
        sizes = np.sort(share * first_sizes + (1 - share) * second_sizes + noise * random)
        step = (wanted - np.interp(LEVELS, quantiles, sizes)) / np.interp(knobs, grid, slopes)
        knobs = np.clip(knobs + _GAIN * step, grid[0], grid[-1])
        # The knob must not fall where the wanted size grows.
        knobs = (np.maximum.accumulate(knobs) + np.minimum.accumulate(knobs[::-1])[::-1]) / 2
    return knobs


def _spread(count: int) -> Floats:
    """Quantiles of the standard normal distribution at evenly spaced probabilities, free of sampling noise."""
    normal = NormalDist()
    return np.array([normal.inv_cdf((number + 0.5) / count) for number in range(count)])
