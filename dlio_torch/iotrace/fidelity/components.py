"""Result of a comparison: its components, the worst component, and the user's limits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dlio_torch.errors import ConfigError
from dlio_torch.iotrace.fidelity.cosine_similarity import Parity
from dlio_torch.iotrace.fidelity.measures import LIMITS

_NAMED = 6


@dataclass(frozen=True)
class Component:
    """One component of a comparison: its distance, limit, noise and figures.

    Args:
        name: of :data:`dlio_torch.iotrace.fidelity.measures.LIMITS`, where its formula is.
        distance: 0 (equal) to 1; rank by rank the median over pairs of ranks.
        limit: distance that still counts as alike.
        floor: distance that so few calls may have by chance.
        detail: the figures of both sides, one line.
        noise: distance between repeats of one side, None: not known.
        excess: what the distance has beyond the noise, None: not known.
        worst_pair: rank by rank the ranks of A and B that differ most, and by how much.
        exact: the distance without the tolerance of its formula, not judged; None: it has none.
        values: the number of A and that of B that tell which side has more; None: no single number does.
    """

    name: str
    distance: float
    limit: float
    floor: float
    detail: str
    noise: float | None = None
    excess: float | None = None
    worst_pair: tuple[int, int, float] | None = None
    exact: float | None = None
    values: tuple[float, float] | None = None

    @property
    def beyond_noise(self) -> float:
        """The distance minus the noise, if the noise is known."""
        return self.distance if self.excess is None else self.excess

    @property
    def allowed(self) -> float:
        """Largest distance at which both sides count as alike."""
        return max(self.limit, self.floor)

    @property
    def alike(self) -> bool:
        """Whether the distance is within the limit."""
        return self.beyond_noise <= self.allowed


@dataclass(frozen=True)
class Comparison:
    """Result of :func:`dlio_torch.iotrace.fidelity.compare_recordings.compare`.

    Args:
        a: path of the one recording.
        b: path of the other.
        components: worst first, by distance beyond the noise over what is allowed.
        left_out: what was not compared and why, one sentence each.
        paired: how files were paired, in words.
        scale_free: whether amounts were left out.
        rank_pairs: number of pairs of ranks, None: ranks were taken together.
        noise_from: what the noise is the distance of, None: not known.
        parity: the paper's cosine similarity, not part of the judgement; None: not measured.
        notes: what a reader of either recording must know.
    """

    a: str
    b: str
    components: tuple[Component, ...]
    left_out: tuple[str, ...]
    paired: str
    scale_free: bool
    rank_pairs: int | None
    noise_from: str | None
    parity: Parity | None
    notes: tuple[str, ...]

    @property
    def alike(self) -> bool:
        """Whether all components are alike."""
        return all(component.alike for component in self.components)

    @property
    def headline(self) -> str:
        """Verdict of the comparison in one sentence, with the worst component."""
        worst = self.components[0]
        beyond = " beyond the noise" if worst.excess is not None else ""
        figures = f"{worst.name} {worst.beyond_noise:.3g}{beyond} (limit {worst.allowed:.2g}; {worst.detail})"
        if self.alike:
            return (
                f"Alike in all {len(self.components)} components that could be measured; the largest distance "
                f"relative to its limit is {figures}."
            )
        others = [component.name for component in self.components[1:] if not component.alike]
        also = f"; also {', '.join(others[:_NAMED])}" if others else ""
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        return f"Not alike: {figures}{also}{more}."


def check(comparison: Comparison, limits: Iterable[str]) -> list[str]:
    """One sentence for each limit of the user that the comparison exceeds.

    A limit is ``METRIC:LIMIT``, where the metric is a component's name or ``worst``, which stands for every
    component; its sentence names the first of the comparison's order and counts the rest.  The distance counts
    less the noise, if it is known; with ``worst`` what is within the chance of few calls does not count.  A component
    that was not measured misses its limit.

    Raises:
        ConfigError: there is no such metric, or the limit is no number.
    """
    by_name = {component.name: component for component in comparison.components}
    missed: list[str] = []
    for name, limit in parse_limits(limits):
        if name == "worst":
            over = [
                component for component in comparison.components if component.beyond_noise > max(limit, component.floor)
            ]
            more = f", and {len(over) - 1} more component{'s' * (len(over) > 2)}" if len(over) > 1 else ""
            missed += [_missed(component, limit) + more for component in over[:1]]
        elif name not in by_name:
            reasons = (line.partition(": ") for line in comparison.left_out)
            why = next(
                (reason for names, _, reason in reasons if name in names.split(", ")), ("neither side has data for it")
            )
            missed.append(f"{name}: not measured ({why})")
        elif by_name[name].beyond_noise > limit:
            missed.append(_missed(by_name[name], limit))
    return missed


def parse_limits(limits: Iterable[str]) -> list[tuple[str, float]]:
    """Parses each ``METRIC:LIMIT``, see :func:`check`.

    Raises:
        ConfigError: there is no such metric, or the limit is no number.
    """
    return [_limit(text) for text in limits]


def _limit(text: str) -> tuple[str, float]:
    name, colon, value = text.rpartition(":")
    if not colon:
        raise ConfigError(
            f"--fail {text} (command line): the value does not have the form METRIC:LIMIT",
            hint="write for example --fail worst:0.2",
        )
    if name != "worst" and name not in LIMITS:
        raise ConfigError(
            f"--fail {text} (command line): there is no component {name!r} in a comparison",
            hint=f"write one of worst, {', '.join(LIMITS)}, a colon and a limit, for example --fail worst:0.2",
        )
    try:
        limit = float(value)
    except ValueError:
        limit = float("nan")
    if not limit >= 0:
        raise ConfigError(
            f"--fail {text} (command line): the limit {value!r} is not a number of at least 0",
            hint=f"write for example --fail '{name}:0.1'",
        )
    return name, limit


def _missed(component: Component, limit: float) -> str:
    beyond = "" if component.excess is None else " beyond the noise"
    return f"{component.name}: {component.beyond_noise:.3g}{beyond} is above {limit:g} ({component.detail})"
