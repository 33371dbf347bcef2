"""Who is missing in a collective: rank 0 asks all ranks where they are, and says it in one line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlio_torch.dist.overdue import Where

_MOST = 4  # ranks that a line names


@dataclass(frozen=True)
class Absent:
    """A rank that has not come.

    Attributes:
        rank: its number.
        who: its number, process and host.
        where: where it is; ``None``: it does not answer.
    """

    rank: int
    who: str
    where: Where | None

    @property
    def why(self) -> str:
        """What it does instead."""
        if self.where is None:
            return "it does not answer, as a process that is stopped, or a host that is cut off"
        doing = f", now in {self.where['at']}" if self.where["at"] else ""
        return f"its last one ended {self.where['seconds']:.0f} s ago{doing}; if it is only slow, raise dist.timeout_s"


def who_is_missing(
    names: Mapping[int, str], answers: Mapping[int, Where], what: str, number: int, timeout_s: float
) -> tuple[int, str]:
    """The first rank that is missing (-1: none is), and the line that says so.

    Args:
        names: of all ranks, by rank.
        answers: where each rank is that has answered.
        what: the collective.
        number: how many collectives a rank in it has begun.
        timeout_s: how long the others have waited.
    """
    absent = [
        Absent(rank, name, answers.get(rank))
        for rank, name in sorted(names.items())
        if rank not in answers or answers[rank]["number"] < number
    ]
    if not absent:
        return -1, (
            f"{what} (collective {number}) over {len(names)} ranks did not end within {timeout_s:g} s, though all "
            "ranks have come to it: messages between them do not arrive"
        )
    first, *others = absent[:_MOST]
    parts = [f"{first.who} did not come to {what} (collective {number}) within {timeout_s:g} s: {first.why}"]
    parts += [f"{one.who} neither: {one.why}" for one in others]
    if len(absent) > _MOST:
        parts.append(f"nor did {len(absent) - _MOST} more")
    return first.rank, "; ".join(parts)
