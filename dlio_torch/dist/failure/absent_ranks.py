"""Absent ranks: rank 0 asks all ranks for their progress; one line names the ranks that did not enter a collective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlio_torch.dist.failure.timeouts import RankProgress

_MAX_NAMED = 4  # ranks in one line


@dataclass(frozen=True)
class AbsentRank:
    """A rank that has not entered a collective.

    Attributes:
        rank: its number.
        name: its number, process and host.
        progress: its progress; ``None``: it does not answer.
    """

    rank: int
    name: str
    progress: RankProgress | None

    @property
    def reason(self) -> str:
        """Why the rank has not entered the collective, as far as its answer shows."""
        if self.progress is None:
            return "the rank does not answer; its process may be stopped, or its host cut off from the network"
        function = f", now in {self.progress['function']}" if self.progress["function"] else ""
        seconds = self.progress["seconds"]
        return (
            f"the rank's last collective ended {seconds:.0f} s ago{function}; if the rank is only slow, raise "
            "dist.timeout_s"
        )


def absent_line(
    names: Mapping[int, str], answers: Mapping[int, RankProgress], collective: str, number: int, timeout_s: float
) -> tuple[int, str]:
    """Returns the first absent rank (-1 if there is none) and the line that names all absent ranks.

    Args:
        names: names of all ranks, by rank.
        answers: progress of each rank that has answered.
        collective: name of the collective.
        number: collectives that a rank in it has begun.
        timeout_s: seconds that the others have waited.
    """
    absent = [
        AbsentRank(rank, name, answers.get(rank))
        for rank, name in sorted(names.items())
        if rank not in answers or answers[rank]["number"] < number
    ]
    if not absent:
        return -1, (
            f"{collective} (collective {number}) over {len(names)} ranks did not end within {timeout_s:g} s, "
            "though all ranks have entered it: messages between ranks do not arrive"
        )
    first, *others = absent[:_MAX_NAMED]
    parts = [f"{first.name} did not enter {collective} (collective {number}) within {timeout_s:g} s: {first.reason}"]
    parts += [f"{rank.name} did not enter it either: {rank.reason}" for rank in others]
    if len(absent) > _MAX_NAMED:
        parts.append(f"{len(absent) - _MAX_NAMED} more ranks did not enter it")
    return first.rank, "; ".join(parts)
