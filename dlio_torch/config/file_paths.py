"""Paths of options that name files: in a YAML file a relative path starts at the folder of the YAML file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from dlio_torch.config.fields import ROOT, Option, children, lookup
from dlio_torch.config.yamlfile import ACCELERATORS, Document, Tree


def with_file_paths(document: Document, folder: Path, group: str = "") -> Document:
    """The document with absolute paths in place of relative ones, for options that name files.

    Args:
        document: a recipe, or a fragment of a group.
        folder: of its file.
        group: that the keys of the document belong to; empty: it is a recipe.
    """
    option = children(ROOT).get(group, ROOT)
    tree = _resolved(document.tree, folder, option)
    blocks = tree.get(ACCELERATORS) if option is ROOT else None
    if isinstance(blocks, dict):  # each holds keys of the recipe
        tree[ACCELERATORS] = {
            name: _resolved(block, folder, option) if isinstance(block, dict) else block
            for name, block in blocks.items()
        }
    return replace(document, tree=tree)


def file_argument(key: str, value: str, folder: Path) -> str:
    """The value of a command-line argument; a relative path of a file is made absolute.

    Args:
        key: of the option.
        value: as given.
        folder: in which the command runs.
    """
    return str(_value(value, folder, lookup(key.split("."))))


def _resolved(tree: Tree, folder: Path, option: Option) -> Tree:
    known = children(option)
    return {name: _value(item, folder, known.get(name)) for name, item in tree.items()}


def _value(item: Any, folder: Path, option: Option | None) -> Any:
    if option is None:
        return item
    if isinstance(item, dict) and option.kind == "group":
        return _resolved(item, folder, option)
    is_path = option.is_file and isinstance(item, str) and item not in ("", "???") and "${" not in item
    return str(folder / Path(item).expanduser()) if is_path else item
