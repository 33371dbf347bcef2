"""How an option of the schema is written down: its default, and what ``explain`` says about it."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def opt(default: Any, doc: str, *, unit: str | None = None, minimum: float | None = None) -> Any:
    """One option: its default, one line of documentation, unit (``B``, ``s``) and least value."""
    metadata = {"doc": doc, "unit": unit, "min": minimum}
    if isinstance(default, (list, dict)):
        made = default
        return field(default_factory=lambda: type(made)(made), metadata=metadata)
    if isinstance(default, type):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)
