"""No dead keys: every option is documented, and read by code outside config/."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import dlio_torch
from dlio_torch.config.fields import Option, walk

PACKAGE = Path(dlio_torch.__file__).parent
# These change an experiment while it is composed; what they change is what the rest reads.
APPLIED_IN_CONFIG = ("scale", "accelerator")


def read_names() -> set[str]:
    """Names of all attributes that modules outside config/ read."""
    names: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        if path.is_relative_to(PACKAGE / "config"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                names.add(node.attr)
    return names


OPTIONS = [option for option in walk() if option.key]


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)
def test_is_documented(option: Option) -> None:
    assert option.doc
    assert "\n" not in option.doc


def test_is_read() -> None:
    read = read_names()
    unread = [o.key for o in OPTIONS if o.path[-1] not in read and o.path[0] not in APPLIED_IN_CONFIG]
    assert unread == []
