"""Names and sentences of the package that a newcomer would not search for; ``python tests/support/names.py FOLDER``.

Four kinds: names of variables, functions, parameters, attributes, modules and classes that say nothing (``names``);
phrases and first docstring lines that need a second reading (``prose``); a class name with two meanings (``classes``);
a module name that occurs twice outside of parallel families (``modules``).
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "dlio_torch"

BANNED = frozenset(
    ["found", "one", "made", "told", "asked", "what", "how", "where", "own", "at", "do", "look", "beside", "together"]
)
"""Whole names of variables, functions, parameters, attributes and modules."""

BANNED_MODULES = frozenset(
    [
        "vigil",
        "heart",
        "handover",
        "handful",
        "handfuls",
        "supply",
        "ahead",
        "places",
        "stretches",
        "whereabouts",
        "moves",
        "shelf",
        "deaths",
        "meet",
        "missing",
        "refusal",
        "leave",
        "setting",
        "closing",
        "ending",
        "turns",
        "leftovers",
        "shares",
        "stageplace",
        "cachestate",
        "possible",
        "room",
        "look",
        "together",
        "makers",
    ]
)

BANNED_WORDS = frozenset(
    [
        "vigil",
        "heart",
        "handover",
        "handful",
        "handfuls",
        "whereabouts",
        "stretch",
        "stretches",
        "maker",
        "makers",
        "leftover",
        "leftovers",
        "shelf",
        "stageplace",
        "cachestate",
    ]
)
"""Words inside names of modules, classes and functions."""

PHRASES = re.compile(
    r"what is none|whose word nobody hears|for ever\b|\banew\b|\bof whoever\b|\bwhoever (?:has|reads|makes|brings)\b",
    re.I,
)
FIRST_WORDS = re.compile(r"(?:Of|What|Those|Where)\b")

CLASS_FAMILIES = {"_SampleReader": "Reader"}
"""Names that parallel classes bear, with the base that each of them derives from."""

MODULE_FAMILIES = {
    "*": {"__init__", "base", "registry"},  # the contract of a package, and the list of its implementations
    "formats/*": {
        *("array_format", "content", "facts", "file", "format", "index", "layout", "mpi_file", "options", "reader"),
        *("describe", "recreate", "stream", "writer"),
    },
    "checkpoint/layouts/*": {"layout", "saver"},
    "data/engines": {"facts"},
    "data/engines/*": {"engine", "facts"},
    "interop/*": {"checkpoint", "dataset", "model", "training", "workload"},  # the sections of a foreign workload file
    "storage/*": {"storage"},
    "study/strategies/*": {"strategy"},
    "storage": {"testing"},
    "formats": {"testing"},
}
"""Module names that may occur once in each of the folders that match."""


class Violation(NamedTuple):
    """A place to change: kind, file below ``dlio_torch``, line, and what is wrong."""

    kind: str
    path: str
    line: int
    text: str

    @property
    def package(self) -> str:
        """First folder below ``dlio_torch``; ``-`` for modules outside of folders."""
        return self.path.split("/")[0] if "/" in self.path else "-"


def violations() -> list[Violation]:
    """All of the package, by file and line."""
    trees = {p.relative_to(PACKAGE).as_posix(): ast.parse(p.read_text("utf-8")) for p in sorted(PACKAGE.rglob("*.py"))}
    each = [v for path, tree in trees.items() for v in (*in_names(path, tree), *in_prose(path, tree))]
    return sorted([*each, *in_classes(trees), *in_modules(trees)], key=lambda v: (v.path, v.line))


def in_names(path: str, tree: ast.Module) -> Iterator[Violation]:
    """Bindings of banned names in one module."""
    stem = Path(path).stem
    parts = [part for part in Path(path).parent.parts if _banned_module(part)]
    if parts or _banned_module(stem):
        yield Violation("names", path, 1, f"module {path}")
    for node in ast.walk(tree):
        for name, line in _bound(node):
            if name.strip("_") in BANNED:
                yield Violation("names", path, line, name)
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and set(_words(node.name)) & BANNED_WORDS:
            yield Violation("names", path, node.lineno, node.name)


def _banned_module(name: str) -> bool:
    return name in BANNED | BANNED_MODULES or bool(set(_words(name)) & BANNED_WORDS)


def _words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)]


def _bound(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Names that a node binds, with their lines."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id, node.lineno
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr, node.lineno
    elif isinstance(node, ast.arg):
        yield node.arg, node.lineno
    elif isinstance(node, ast.FunctionDef):
        yield node.name, node.lineno
    elif isinstance(node, ast.alias) and node.asname:
        yield node.asname, node.lineno
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name, node.lineno


def in_prose(path: str, tree: ast.Module) -> Iterator[Violation]:
    """Phrases in strings and docstrings, and first words of docstrings, of one module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for phrase in PHRASES.finditer(" ".join(node.value.split())):
                yield Violation("prose", path, node.lineno, f"...{phrase.string[: phrase.end()][-60:]}...")
    for node in ast.walk(tree):
        for block in ("body",) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) else ():
            for first in getattr(node, block):  # an attribute's docstring stands after it
                if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                    text = str(first.value.value).strip()
                    if FIRST_WORDS.match(text):
                        yield Violation("prose", path, first.lineno, text.splitlines()[0])


def in_classes(trees: dict[str, ast.Module]) -> Iterator[Violation]:
    """Classes whose name another class has, too, but for parallel families of one base."""
    defined: dict[str, list[tuple[str, ast.ClassDef]]] = defaultdict(list)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and CLASS_FAMILIES.get(node.name) not in map(ast.unparse, node.bases):
                defined[node.name].append((path, node))
    for name, classes in defined.items():
        for path, node in classes if len(classes) > 1 else ():
            others = ", ".join(other for other, _ in classes if other != path)
            yield Violation("classes", path, node.lineno, f"{name}, also in {others}")


def in_modules(trees: dict[str, ast.Module]) -> Iterator[Violation]:
    """Modules whose name another module has, too, outside of parallel families."""
    named: dict[str, list[str]] = defaultdict(list)
    for path in trees:
        folder, stem = str(Path(path).parent), Path(path).stem
        if not any(stem in stems and fnmatch(folder, pattern) for pattern, stems in MODULE_FAMILIES.items()):
            named[stem].append(path)
    for paths in named.values():
        for path in paths if len(paths) > 1 else ():
            yield Violation("modules", path, 1, f"also {', '.join(other for other in paths if other != path)}")


def main(arguments: list[str]) -> None:
    """Prints the violations below the given folders or files (default: all)."""
    folders = [Path(word).resolve() for word in arguments if not word.startswith("-")] or [PACKAGE]
    everything = violations()
    shown = [v for v in everything if any((PACKAGE / v.path).is_relative_to(folder) for folder in folders)]
    lines = [f"dlio_torch/{v.path}:{v.line}: {v.kind}: {v.text}" for v in shown]
    print(*lines, sep="\n")
    print(", ".join(f"{count} {kind}" for kind, count in Counter(v.kind for v in shown).items()) or "none")


if __name__ == "__main__":
    main(sys.argv[1:])
