"""Inspection of LMDB files: entries and pages from the header."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from dlio_torch.formats.lmdb.shared_environments import data_file
from dlio_torch.formats.lmdb.tree_pages import TreePages


def read_content(path: Path, content: dict[str, Any]) -> None:
    """Add ``entries``."""
    place = data_file(path)
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content["entries"] = TreePages(place, descriptor).entries
    finally:
        os.close(descriptor)
