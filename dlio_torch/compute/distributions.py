"""Duration of each emulated step: a deterministic function of seed, rank and step.

``mean`` and ``stdev`` (standard deviation) are those of the drawn times, in seconds:

============ ==================================================================================
constant     always ``mean``; ``stdev`` must be 0
normal       Gaussian, negative draws repeated, i.e. truncated at 0: with a = mean/stdev the mean
             of the draws is mean + stdev * phi(a)/Phi(a) (Johnson, Kotz, Balakrishnan,
             *Continuous Univariate Distributions* 1, 13.10): 0.44 % of ``stdev`` more for a = 3,
             29 % more for a = 1
lognormal    exp of a Gaussian with sigma^2 = ln(1 + (stdev/mean)^2), mu = ln(mean) - sigma^2/2
uniform      mean - sqrt(3) stdev to mean + sqrt(3) stdev; needs stdev <= mean/sqrt(3)
gamma        shape (mean/stdev)^2, scale stdev^2/mean
exponential  mean - stdev plus an exponential of scale ``stdev``; needs stdev <= mean.  With
             ``stdev`` 0 it is the plain exponential, whose stdev is its mean
============ ==================================================================================

Except for exponential, ``stdev`` 0 gives the constant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import ConfigError

Distribution = Literal["constant", "normal", "lognormal", "uniform", "gamma", "exponential"]

BLOCK_STEPS = 1024
_NS = 1e9


@dataclass(frozen=True)
class StepTime:
    """A distribution of step times.

    Args:
        mean_s: mean, in seconds.
        stdev_s: standard deviation, in seconds.
        distribution: its name, see the module's documentation.

    Raises:
        ConfigError: no such distribution exists.
    """

    mean_s: float
    stdev_s: float = 0.0
    distribution: Distribution = "constant"

    def __post_init__(self) -> None:
        mean, stdev, name = self.mean_s, self.stdev_s, self.distribution
        if name not in get_args(Distribution):
            raise ConfigError(
                f"compute.distribution={name} is not a known distribution",
                hint=f"use one of {', '.join(get_args(Distribution))}",
            )
        for key, value in (("step_s", mean), ("stdev_s", stdev)):
            if not (math.isfinite(value) and value >= 0):
                raise ConfigError(f"compute.{key}={value} is not a valid time", hint="set 0 or more seconds")
        if stdev == 0:
            return
        if name == "constant":
            raise ConfigError(
                f"compute.stdev_s={stdev:g} has no effect with compute.distribution=constant",
                hint="set compute.stdev_s=0, or another distribution, for example compute.distribution=normal",
            )
        if mean == 0:
            raise ConfigError(
                f"compute.stdev_s={stdev:g} needs a mean time above 0", hint="set compute.step_s, or compute.stdev_s=0"
            )
        limit = {"uniform": mean / math.sqrt(3), "exponential": mean}.get(name, math.inf)
        if stdev > limit:
            raise ConfigError(
                f"compute.stdev_s={stdev:g} is impossible for compute.distribution={name} with mean {mean:g} s",
                hint=f"set compute.stdev_s to {limit:g} at most, or compute.distribution=lognormal",
            )

    @property
    def is_constant(self) -> bool:
        """Whether every draw is the mean."""
        return self.mean_s == 0 or (self.stdev_s == 0 and self.distribution != "exponential")

    def moments(self) -> tuple[float, float]:
        """Mean and standard deviation of the draws in seconds, with the truncation of ``normal``."""
        mean, stdev = self.mean_s, self.stdev_s
        if self.is_constant:
            return mean, 0.0
        if self.distribution == "exponential":
            return mean, stdev or mean
        if self.distribution != "normal":
            return mean, stdev
        ratio = mean / stdev
        hazard = math.exp(-(ratio**2) / 2) / math.sqrt(2 * math.pi) / (0.5 * math.erfc(-ratio / math.sqrt(2)))
        return mean + stdev * hazard, stdev * math.sqrt(1 - ratio * hazard - hazard**2)

    def draw(self, generator: np.random.Generator, count: int) -> npt.NDArray[np.float64]:
        """``count`` independent times in seconds, float64, none negative."""
        mean, stdev = self.mean_s, self.stdev_s
        if self.is_constant:
            return np.full(count, mean)
        if self.distribution == "normal":
            draws = generator.normal(mean, stdev, count)
            while (negative := np.flatnonzero(draws < 0)).size:
                draws[negative] = generator.normal(mean, stdev, negative.size)
            return draws
        if self.distribution == "lognormal":
            variance = math.log1p((stdev / mean) ** 2)
            return generator.lognormal(math.log(mean) - variance / 2, math.sqrt(variance), count)
        if self.distribution == "uniform":
            half = math.sqrt(3) * stdev
            return generator.uniform(max(mean - half, 0.0), mean + half, count)
        if self.distribution == "gamma":
            return generator.gamma((mean / stdev) ** 2, stdev**2 / mean, count)
        scale = stdev or mean
        return mean - scale + generator.exponential(scale, count)


class Durations:
    """Durations of steps 0, 1, 2, ... in nanoseconds.

    The time of a step depends on ``seed``, ``rank``, ``stream`` and the step's number alone, in
    whatever order steps are asked for.  Draws are made in blocks of :data:`BLOCK_STEPS`, each from
    its own Philox generator, so an ascending walk costs well under a microsecond a step.  NumPy may
    change how a generator's bits become a distribution between its versions.

    Args:
        step_time: the distribution.
        seed: the run's seed.
        rank: ranks draw independently of each other.
        stream: what the times are for; streams are independent of each other.
    """

    def __init__(self, step_time: StepTime, *, seed: int, rank: int, stream: int = 0) -> None:
        self.step_time = step_time
        self._key = (seed, rank, stream)
        self._constant = round(step_time.mean_s * _NS) if step_time.is_constant else None
        self._number: int | None = None
        self._block: list[int] = []

    def ns(self, step: int) -> int:
        """Returns the duration of ``step`` (0 or more) in whole nanoseconds.

        Raises:
            ValueError: ``step`` is negative (and times vary).
        """
        if self._constant is not None:
            return self._constant
        number, offset = divmod(step, BLOCK_STEPS)
        if number != self._number:
            self._block = self._draw_block(number)
            self._number = number
        return self._block[offset]

    def _draw_block(self, number: int) -> list[int]:
        if number < 0:
            raise ValueError("steps count from 0")
        generator = np.random.Generator(np.random.Philox(np.random.SeedSequence((*self._key, number))))
        block: list[int] = np.rint(self.step_time.draw(generator, BLOCK_STEPS) * _NS).astype(np.int64).tolist()
        return block
