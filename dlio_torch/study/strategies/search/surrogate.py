"""Surrogate model: a Gaussian process over a finite set of points.

Sources: C. Rasmussen and C. Williams, *Gaussian Processes for Machine Learning*, 2006, equations 2.22 to 2.24 and
2.30 (posterior, marginal likelihood); D. Duvenaud et al., *Additive Gaussian Processes*, 2011 (effects of one axis
alone beside those of all together).  Nothing is fitted: every combination of a few length scales, variances and
shares of additive effects is weighted by its marginal likelihood, so that the uncertainty about them is part of
what is believed.  That matters with the four to thirty points that a search affords.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dlio_torch.study.axes import magnitude
from dlio_torch.study.model import NOT_APPLICABLE

Floats = npt.NDArray[np.float64]

_LENGTHS = (0.7, 5.0)  # in doublings: an axis that matters, one that hardly does
_SHARED_LENGTHS = (1.0, 2.0, 5.0)
_MOST_OWN_LENGTHS = 6  # axes; beyond that the combinations are too many, and all axes share one length
_SPREADS = (0.1, 0.35, 1.2)  # standard deviation of the logarithm over the space: 10 %, 42 %, a factor of 3.3
_ADDITIVE = (0.3, 0.8)
_FEW = 8  # values of an axis, up to which each is worth a run
_OTHER = 2.0  # distance of two words, or of a value from none, in doublings
_KEPT = 24  # combinations that carry nearly all of the weight


class Space:
    """Coordinates of the points: distances along each axis, in doublings.

    Args:
        keys: of the axes.
        values: of each point, for each axis; ``-`` where the axis has no meaning.
    """

    def __init__(self, keys: Sequence[str], values: Sequence[Mapping[str, str]]) -> None:
        self.size = len(values)
        self._places = [_places([point.get(key, NOT_APPLICABLE) for point in values]) for key in keys]

    @property
    def axes(self) -> int:
        """How many axes there are."""
        return len(self._places)

    def unseen(self, tried: Collection[int], untried: Sequence[int]) -> list[int]:
        """The untried points that have, on some axis of few values, one that no tried point has."""
        result = set()
        for places in self._places:
            rows = [tuple(row) for row in places]
            if len(set(rows)) <= _FEW:
                seen = {rows[point] for point in tried}
                result |= {point for point in untried if rows[point] not in seen}
        return sorted(result)

    def distances(self, first: Sequence[int], second: Sequence[int]) -> Floats:
        """Distances along each axis, of shape (axes, len(first), len(second))."""
        result = np.zeros((len(self._places), len(first), len(second)))
        for axis, places in enumerate(self._places):
            result[axis] = np.minimum(
                np.linalg.norm(places[list(first)][:, None] - places[list(second)][None], axis=2), 8.0
            )
        return result


def _places(values: Sequence[str]) -> Floats:
    """A place for each value, as rows: a number on a line of doublings, each word in a direction of its own."""
    numbers = [magnitude(value) for value in values]
    known = [number for number in numbers if number is not None and number > 0]
    words = sorted({value for value, number in zip(values, numbers, strict=True) if number is None})
    rows = np.zeros((len(values), 1 + len(words)))
    for row, value, number in zip(rows, values, numbers, strict=True):
        if number is None:
            row[1 + words.index(value)] = _OTHER / math.sqrt(2)
        elif number > 0:
            row[0] = math.log2(number)
        else:  # none at all is something else than few
            row[0] = math.log2(min(known, default=1.0)) - _OTHER
    return rows


@dataclass(frozen=True)
class Belief:
    """A mixture of normal distributions over all points.

    Attributes:
        weights: of the parts, shape (parts,).
        means: shape (parts, points).
        _kernels: prior variance and the whitened covariance with the measurements of each part.
    """

    weights: Floats
    means: Floats
    _variances: Floats
    _whitened: tuple[Floats, ...]
    _priors: tuple[_Kernel, ...]
    _space: Space

    @property
    def mean(self) -> Floats:
        """Expected value of each point."""
        return np.asarray(self.weights @ self.means)

    def above(self, point: int, margin: float) -> Floats:
        """Probability of each point that its value is higher than that of ``point`` by more than ``margin``."""
        gaps, spreads = self._gaps(point)
        return np.asarray(self.weights @ _cumulative((gaps - margin) / spreads))

    def above_value(self, value: float) -> Floats:
        """Probability of each point that its value is above ``value``."""
        return np.asarray(self.weights @ _cumulative((self.means - value) / np.sqrt(self._variances)))

    def improvement(self, point: int) -> Floats:
        """Expected improvement of each point over ``point`` (D. Jones et al., 1998, equation 15)."""
        gaps, spreads = self._gaps(point)
        ratio = gaps / spreads
        density = np.exp(-0.5 * ratio**2) / math.sqrt(2 * math.pi)
        return np.asarray(self.weights @ (gaps * _cumulative(ratio) + spreads * density))

    def _gaps(self, point: int) -> tuple[Floats, Floats]:
        """Mean and standard deviation of each point's value less that of ``point``, both (parts, points)."""
        everyone = range(self._space.size)
        distances = self._space.distances(everyone, [point])
        rows = []
        for kernel, white, variance in zip(self._priors, self._whitened, self._variances, strict=True):
            shared = kernel(distances)[:, 0] - white.T @ white[:, point]
            rows.append(variance + variance[point] - 2 * shared)
        return self.means - self.means[:, [point]], np.sqrt(np.maximum(rows, 1e-12))


@dataclass(frozen=True)
class _Kernel:
    lengths: Floats
    spread: float
    additive: float

    def __call__(self, distances: Floats) -> Floats:
        each = np.exp(-0.5 * (distances / self.lengths[:, None, None]) ** 2)
        alone = each.mean(axis=0) if len(each) else np.ones(distances.shape[1:])
        joint = each.prod(axis=0)
        # A constant beside it: the level of all points is not known.
        return np.asarray(self.spread**2 * (1.0 + self.additive * alone + (1 - self.additive) * joint))

    @property
    def variance(self) -> float:
        return 2.0 * self.spread**2


def believe(space: Space, measured: Mapping[int, tuple[float, int]], noise: float) -> Belief:
    """The belief about every point of ``space``.

    Args:
        space: the points.
        measured: mean of the measurements of a point, and how many there were; at least one point.
        noise: standard deviation of one measurement.
    """
    numbers = sorted(measured)
    values = np.array([measured[number][0] for number in numbers])
    errors = np.array([noise**2 / measured[number][1] for number in numbers])
    level = float(values.mean())
    near, all_of_them = space.distances(numbers, numbers), space.distances(numbers, range(space.size))
    parts = []
    for kernel in _kernels(space.axes):
        lower = np.linalg.cholesky(kernel(near) + np.diag(errors + 1e-9))
        white = np.linalg.solve(lower, values - level)
        likelihood = -0.5 * float(white @ white) - float(np.log(np.diag(lower)).sum())
        parts.append((likelihood, kernel, lower, white))
    parts.sort(key=lambda part: -part[0])
    parts = parts[:_KEPT]
    weights = np.exp(np.array([part[0] for part in parts]) - parts[0][0])
    means, variances, whitened = [], [], []
    for _, kernel, lower, white in parts:
        shared = np.linalg.solve(lower, kernel(all_of_them))
        means.append(level + shared.T @ white)
        variances.append(np.maximum(kernel.variance - (shared**2).sum(axis=0), 1e-12))
        whitened.append(shared)
    return Belief(
        weights / weights.sum(),
        np.array(means),
        np.array(variances),
        tuple(whitened),
        tuple(part[1] for part in parts),
        space,
    )


def importance(
    space: Space, values: Mapping[str, Sequence[str]], measured: Mapping[int, tuple[float, int]], noise: float
) -> dict[str, float] | None:
    """Variance of the mean over all points with one value of a key, over the variance of all points.

    The expected values of all points count, measured or not.  Joint effects of keys are no key's share.

    Args:
        space: the points.
        values: of each key, one for each point.
        measured: as of :func:`believe`.
        noise: as of :func:`believe`.

    Returns:
        Share by key, 0 to 1; ``None`` if all points are expected to be equal.
    """
    expected = believe(space, measured, noise).mean
    total = float(np.var(expected))
    return {key: _alone(np.array(texts), expected) / total for key, texts in values.items()} if total else None


def _alone(values: npt.NDArray[np.str_], expected: Floats) -> float:
    present = values != NOT_APPLICABLE
    if not present.any():
        return 0.0
    means = np.array([expected[values == value].mean() for value in values[present]])
    # A key explains nothing at points at which it has no meaning.
    return float(np.var(means) * present.mean())


def _kernels(axes: int) -> list[_Kernel]:
    lengths = (
        [np.array(item) for item in itertools.product(_LENGTHS, repeat=axes)]
        if axes <= _MOST_OWN_LENGTHS
        else [np.full(axes, item) for item in _SHARED_LENGTHS]
    )
    return [_Kernel(*item) for item in itertools.product(lengths, _SPREADS, _ADDITIVE)]


def _cumulative(values: Floats) -> Floats:
    """Cumulative standard normal distribution."""
    flat = [0.5 * math.erfc(-value / math.sqrt(2)) for value in values.ravel().tolist()]
    return np.array(flat).reshape(values.shape)
