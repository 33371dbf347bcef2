"""Names of fields, made of the names of columns."""

from __future__ import annotations

from dlio_torch.formats.core.batch import is_reserved


def field_name(column: str, used: set[str]) -> str:
    """A name that a field may have and that no other field has; it is added to ``used``."""
    name = column.replace("/", "_").strip(" .") or "column"
    if is_reserved(name):
        name = f"column {name}".replace(":", " ")
    unique, number = name, 1
    while unique in used:
        unique, number = f"{name}_{number}", number + 1
    used.add(unique)
    return unique
