"""A search on a terminal: its plan and its result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.text import Text

from dlio_torch.report.terminal import write
from dlio_torch.study.needs import StudyNeeds
from dlio_torch.study.strategies.search.search_request import SearchRequest
from dlio_torch.study.strategies.search.search_space import SearchSpace
from dlio_torch.study.strategies.search.search_verdict import gain_text
from dlio_torch.study.study_console import axis_lines
from dlio_torch.study.verb_keys import OBJECTIVES
from dlio_torch.units import format_size, percent

if TYPE_CHECKING:
    from dlio_torch.study.strategies.search.search_result import SearchResult


def plan_lines(request: SearchRequest, space: SearchSpace, needs: StudyNeeds) -> Iterator[str]:
    """Plan of a search, line by line."""
    least = f" ({request.min_au:g})" if request.objective == "resources" else ""
    yield f"tune: {request.study.name}, for {OBJECTIVES[request.objective]}{least}"
    yield from (f"scale: {line}" for line in space.study.scaled)
    yield f"settings: {len(space.points)}, the default among them: {space.points[0].point.label}"
    yield from axis_lines(space.study)
    yield from (f"  {note}" for note in (*space.notes, *needs.notes))
    for data in needs.data:
        if data.missing_files:
            size = format_size(data.missing_bytes)
            yield f"data: {data.missing_files} files, about {size}, to write in {data.folder}"
    yield f"budget: at most {request.budget}, with the confirmation (up to {request.pairs} pairs of runs)"


def print_search(result: SearchResult, stream: TextIO) -> None:
    """Print the answer, its evidence and the blocks to copy."""
    points, verdict = result.space.points, result.verdict
    confirming = len(result.trials) - result.searched
    lines = [
        verdict.sentence,
        f"tried {result.tried} of {len(points)} settings in {result.searched} trials, and {confirming} to confirm; "
        f"one trial scatters by {percent(result.noise)}",
        f"search ended: {result.state.stopped}" if result.state.stopped else "search not ended",
    ]
    if result.gain is not None and result.chosen is not None:
        label = points[result.chosen].point.label
        lines.append(f"{result.request.figure} of {label} over the default: {gain_text(result.gain)}")

    def draw(console: Console) -> None:
        for line in lines:
            console.print(Text(line))
        if result.copy_blocks is None or verdict.recommended == 0:  # nothing to set
            return
        console.print(Text("\nrecommended", style="bold"))
        for name, text in result.copy_blocks.blocks:
            console.print(Text(f"\n{name}", style="bold"))
            for line in text.splitlines():
                console.print(Text(f"  {line}"), soft_wrap=True)

    write(stream, draw)
