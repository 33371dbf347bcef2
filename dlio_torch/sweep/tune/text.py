"""A search on the terminal: what it is going to do, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

from rich.console import Console
from rich.text import Text

from dlio_torch.report.terminal import write
from dlio_torch.sweep.keys import OBJECTIVES
from dlio_torch.sweep.space import Needs
from dlio_torch.sweep.tune.recommend import Advice
from dlio_torch.sweep.tune.request import Request
from dlio_torch.sweep.tune.space import SearchSpace
from dlio_torch.sweep.tune.tuner import Found
from dlio_torch.sweep.tune.verdict import Verdict, spread
from dlio_torch.units import format_size

_MOST_VALUES = 12


def plan(request: Request, space: SearchSpace, needs: Needs) -> Iterator[str]:
    """What a search will do, line by line."""
    asked = OBJECTIVES[request.objective] + (f" ({request.min_au:g})" if request.objective == "resources" else "")
    yield f"tune: {request.study.name}, for {asked}"
    yield from (f"scale: {line}" for line in space.study.scaled)
    yield f"settings: {len(space.points)}, the default among them: {space.points[0].point.label}"
    for axis in space.study.axes:
        more = f" and {len(axis.values) - _MOST_VALUES} more" if len(axis.values) > _MOST_VALUES else ""
        yield f"  {axis.key}: {', '.join(axis.values[:_MOST_VALUES])}{more}"
    yield from (f"  {note}" for note in (*space.notes, *needs.notes))
    for one in needs.data:
        if one.missing_files:
            yield f"data: {one.missing_files} files, about {format_size(one.missing_bytes)}, to write in {one.folder}"
    yield f"budget: at most {request.budget}, with the confirmation (up to {request.pairs} pairs of runs)"


def print_result(
    request: Request, space: SearchSpace, found: Found, verdict: Verdict, advice: Advice | None, *, stream: TextIO
) -> None:
    """Print the answer, its evidence and what to copy."""
    tried = len({trial.point for trial in found.trials[: found.searched]})
    confirming = len(found.trials) - found.searched
    lines = [
        verdict.words,
        f"tried {tried} of {len(space.points)} settings in {found.searched} trials, and {confirming} to confirm; "
        f"one trial scatters by {found.noise:.1%}",
        f"search ended: {found.stopped}" if found.stopped else "search not ended",
    ]
    if found.gain is not None and found.chosen is not None:
        label = space.points[found.chosen].point.label
        lines.append(f"{request.figure} of {label} over the default: {spread(found.gain)}")

    def draw(console: Console) -> None:
        for line in lines:
            console.print(Text(line))
        if advice is None or verdict.recommended == 0:  # nothing is to be set
            return
        console.print(Text("\nrecommended", style="bold"))
        for name, text in advice.blocks:
            console.print(Text(f"\n{name}", style="bold"))
            for line in text.splitlines():
                console.print(Text(f"  {line}"), soft_wrap=True)

    write(stream, draw)
