"""Names stand where they live, and what prose refers to exists.

Adding a format or an engine touches its folder and a line of a registry.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import dlio_torch
from dlio_torch.data.engines import registry as engines
from dlio_torch.formats.core import registry as formats

PACKAGE = Path(dlio_torch.__file__).parent
OTHER_THINGS = {
    "csv": "tables of studies",
    "extents": "byte ranges of samples",
    "nodes": "machines of a job",
    "parquet": "tables of studies",
    "safetensors": "checkpoints",
}
FOREIGN_FILES = {"BP5Base.h", "fm_internal.h", "main.py", "silo.h"}  # of ADIOS2, DLIO and Silo
REFERENCE = re.compile(r":(?:mod|class|func|meth|attr|data):`~?(dlio_torch[.\w]*)`")
PATH = re.compile(r"(?<![\w/.<{~-])((?:\w+/)+\w+\.(?:py|c|h))\b")
FILE_NAME = re.compile(r"``(\w+\.(?:py|c|h))``")
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


def sources() -> Iterator[Path]:
    return (path for end in ("py", "c", "h") for path in sorted(PACKAGE.rglob(f"*.{end}")))


def defines(path: Path, names: list[str]) -> bool:
    """Whether a module defines a name, or a class of it a member: ``Class.method`` as two names."""
    text = path.read_text(encoding="utf-8")
    pattern = r"(?m)^\s*(?:async )?(?:(?:def|class) {0}\b|{0}\s*[:=])"
    return all(re.search(pattern.format(re.escape(name)), text) for name in names)


def exists(reference: str) -> bool:
    """Whether a dotted name of the package is a module, or something that a module defines."""
    parts = reference.split(".")[1:]
    for count in range(len(parts), -1, -1):
        base = PACKAGE.joinpath(*parts[:count])
        for module in (base.with_suffix(".py"), base / "__init__.py"):
            if module.is_file():
                return defines(module, parts[count:])
    return False


def test_references_of_docstrings_exist() -> None:
    found = 0
    for path in sources():
        for reference in REFERENCE.findall(path.read_text(encoding="utf-8")):
            found += 1
            assert exists(reference), f"{path.relative_to(PACKAGE)} refers to {reference}"
    assert found > 100
    assert not exists("dlio_torch.nowhere.thing")
    assert not exists("dlio_torch.errors.NoSuchError")


def test_files_that_prose_names_exist() -> None:
    root = PACKAGE.parent
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir()}
    names = {path.name for path in sources()} | FOREIGN_FILES
    found = 0
    for path in sources():
        text, where = path.read_text(encoding="utf-8"), path.relative_to(PACKAGE)
        for named in PATH.findall(text):
            first = named.split("/")[0]
            if first == PACKAGE.name or first in folders:
                found += 1
                base = root if first == PACKAGE.name else PACKAGE
                assert (base / named).is_file(), f"{where} names {named}"
        for name in FILE_NAME.findall(text):
            assert name in names, f"{where} names {name}"
    assert found > 5
