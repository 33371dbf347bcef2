"""Names of formats and engines stand where they live: adding one touches its folder and a line of a registry."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import dlio_torch
from dlio_torch.data.engines import registry as engines
from dlio_torch.formats.core import registry as formats

PACKAGE = Path(dlio_torch.__file__).parent
OTHER_THINGS = {"csv": "tables of studies", "nodes": "machines of a job", "parquet": "tables of studies"}
LIBRARIES = {"environment/machine.py": {"hdf5"}}  # the version of the library


def words(path: Path) -> Iterator[tuple[int, str]]:
    """Strings of a module with their lines, docstrings left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = [n for n in ast.walk(tree) if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef)]
    docs = {id(n.body[0].value) for n in documented if n.body and isinstance(n.body[0], ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value


def modules(*apart: str) -> Iterator[Path]:
    for path in sorted(PACKAGE.rglob("*.py")):
        if not any(path.is_relative_to(PACKAGE / folder) for folder in (*apart, "interop")):
            yield path


def test_no_module_outside_knows_a_format_or_an_option_of_one() -> None:
    keys = tuple(f"dataset.{group}." for group in formats.option_groups())
    for path in modules("formats"):
        name = path.relative_to(PACKAGE).as_posix()
        for line, word in words(path):
            known = word in formats.BUILTIN and word not in OTHER_THINGS and word not in LIBRARIES.get(name, ())
            assert not known, f"{name}:{line} names format {word!r}"
            assert not any(key in word for key in keys), f"{name}:{line} names an option of a format: {word!r}"


def test_no_module_outside_knows_an_engine() -> None:
    for path in modules("data/engines"):
        name = path.relative_to(PACKAGE).as_posix()
        for line, word in words(path):
            default = name == "config/schema_reading.py" and word == "dataloader"
            assert word not in engines.BUILTIN or word in OTHER_THINGS or default, (
                f"{name}:{line} names engine {word!r}"
            )
