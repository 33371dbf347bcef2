"""A search as content of the study's page."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlio_torch.study.metrics import AU, THROUGHPUT
from dlio_torch.study.page.findings import CodeBlock, Confirmation, Recommendation, SearchSummary
from dlio_torch.study.page.page_content import page_content
from dlio_torch.study.page.page_data import StudyData
from dlio_torch.study.strategies.search.confirmation import METHOD
from dlio_torch.study.verb_keys import OBJECTIVES

if TYPE_CHECKING:
    from dlio_torch.study.strategies.search.search_result import SearchResult

SAMPLER = (
    "Gaussian process over the logarithm of the figure of the finite set of settings; expected improvement; no setting "
    "is explored twice, the default and those that lead are measured again"
)
_IMPORTANCE = "share of each key alone in the scatter of the expected figure over all settings"
_NOISE_ONLY = "no gain over the default was found beyond noise, so what an option explains here may be noise too"
_METRIC = {"throughput": THROUGHPUT.key, "au": AU.key, "resources": AU.key}


def search_content(result: SearchResult) -> StudyData:
    """The content of the page of a search, finished or not."""
    request, verdict, gain, blocks = result.request, result.verdict, result.gain, result.copy_blocks
    content = page_content(
        result.store,
        result.trials,
        kind="tune",
        answer=verdict.sentence,
        description=f"Which setting gives the best {OBJECTIVES[request.objective]}?"
        if request.objective != "resources"
        else f"Which is the cheapest setting ({OBJECTIVES['resources']}: {request.min_au:g})?",
        objective=_METRIC[request.objective],
        search=SearchSummary(
            sampler=SAMPLER,
            budget=request.budget,
            stopped=result.state.stopped,
            importance=result.importance,
            importance_how=_IMPORTANCE if verdict.recommended else f"{_IMPORTANCE}; {_NOISE_ONLY}",
            grid_size=len(result.space.points),
            chosen=None if result.chosen is None else result.chosen + 1,
        ),
        confirmation=None if gain is None else Confirmation(_METRIC[request.objective], gain, METHOD),
        recommendation=None
        if blocks is None or verdict.recommended is None
        else Recommendation(
            blocks.settings,
            tuple(CodeBlock(title, text) for title, text in blocks.blocks),
            verdict.recommended + 1,
            verdict.sentence,
        ),
    )
    defaults = dict(result.space.points[0].point.values)
    return replace(content, axes=tuple(replace(axis, default=defaults.get(axis.key)) for axis in content.axes))
