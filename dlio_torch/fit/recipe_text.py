"""The recipe of a recorded training as YAML: each value with its confidence and evidence in a comment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from dlio_torch.errors import harmless
from dlio_torch.fit.finding import Finding, Findings

_WIDTH = 120
_INDENT = "  "


def recipe_text(findings: Findings, title: str) -> str:
    """Writes a recipe.

    Args:
        findings: its values; groups follow in the order of their first keys.
        title: first line, without ``#``.

    Returns:
        YAML that the configuration reads.
    """
    gaps = [f"# Not reproduced: {harmless(gap)}" for gap in findings.gaps]
    lines = [f"# {harmless(title)}", *gaps, "", *_group(_tree(findings), "")]
    return "\n".join(lines) + "\n"


def _tree(findings: Findings) -> dict[str, Any]:
    """Findings by the parts of their keys."""
    tree: dict[str, Any] = {}
    for finding in findings.values:
        *groups, name = finding.key.split(".")
        node = tree
        for group in groups:
            node = node.setdefault(group, {})
        node[name] = finding
    return tree


def _group(tree: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, node in tree.items():
        if isinstance(node, Finding):
            yield from _value(name, node, indent)
        else:
            yield f"{indent}{name}:"
            yield from _group(node, indent + _INDENT)


def _value(name: str, finding: Finding, indent: str) -> Iterator[str]:
    """A line of the value with its comment behind it; before it where that would be too long."""
    comment = f"# {finding.confidence}: {harmless(finding.evidence)}"
    text = _flow({name: finding.value})
    line = f"{indent}{text} {comment}"
    if len(line) <= _WIDTH:
        yield line
        return
    yield f"{indent}{comment}"
    if len(indent) + len(text) <= _WIDTH or not isinstance(finding.value, list):
        yield f"{indent}{text}"
        return
    yield f"{indent}{name}:"
    yield from (f"{indent}{_INDENT}- {_flow(item)}" for item in finding.value)


def _flow(value: Any) -> str:
    """A value in one line; a mapping of one key without braces."""
    text = _dumped(value, allow_unicode=True)
    if yaml.safe_load(text) != value:  # line breaks other than \n, which YAML folds
        text = _dumped(value, allow_unicode=False)
    if isinstance(value, dict) and len(value) == 1:
        return text.removeprefix("{").removesuffix("}")
    return text.removesuffix("\n...")


def _dumped(value: Any, *, allow_unicode: bool) -> str:
    return yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, allow_unicode=allow_unicode, width=10_000
    ).strip()
