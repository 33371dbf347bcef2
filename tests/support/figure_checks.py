"""What holds of every ``summary.json``: each number is a documented figure, and 0 only where that says something."""

from __future__ import annotations

from typing import Any

from dlio_torch.analysis import summary_figures


def check_figures(summary: Any) -> None:
    for path, value in summary_figures.numbers(summary):
        figure = summary_figures.find(path)
        assert figure is not None, f"{path} of summary.json is not in analysis/summary_figures.yaml"
        assert value != 0 or figure.zero is not None, f"{path} of summary.json is 0, which it cannot be"


def values(summary: Any, path: str) -> list[Any]:
    """All values at a dotted path, lists left out; of what is null, null."""
    if isinstance(summary, list):
        return [value for one in summary for value in values(one, path)]
    name, _, rest = path.partition(".")
    if summary is None or not name:
        return [summary]
    return values(summary[name], rest)
