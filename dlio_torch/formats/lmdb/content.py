"""Inspection of LMDB files: entries and pages from the header."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dlio_torch.formats.lmdb.shared_environments import data_file
from dlio_torch.formats.lmdb.tree_pages import open_tree


def read_content(path: Path, content: dict[str, Any]) -> None:
    """Add ``entries``."""
    with open_tree(data_file(path)) as tree:
        content["entries"] = tree.entries
