"""Console lines on existing data: their amount, and the content of the first file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dlio_torch.units import counted

_OF_ALL_FILES = ("files", "samples", "damaged_files_left_out", "first_left_out")


def data_lines(path: str | None, details: Mapping[str, Any]) -> Iterator[str]:
    """Yields one line on the amount of data, and one on each array of the first file.

    Args:
        path: ``dataset.path``.
        details: ``files``, ``samples``, ``damaged_files_left_out`` with ``first_left_out`` if there are any, and what
            the format knows of the first file (``FileInfo.details``).
    """
    files = details["files"]
    amounts = {name: value for name, value in details.items() if not isinstance(value, Mapping)}
    amounts = {name: value for name, value in amounts.items() if name not in _OF_ALL_FILES}
    more = f" ({_listed(amounts)})" if amounts and files == 1 else ""
    yield f"data: existing data in {path}: {files} file{'' if files == 1 else 's'}, {details['samples']} samples{more}"
    if "damaged_files_left_out" in details:
        left_out = counted(details["damaged_files_left_out"], "damaged file")
        yield f"data: {left_out} left out, such as {details['first_left_out']}"
    prefix = "" if files == 1 else "in the first file: "
    for name, array in details.items():
        if isinstance(array, Mapping) and (figures := _listed(array)):
            yield f"data: {prefix}{name}: {figures}"


def _listed(figures: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in figures.items() if value is not None)
