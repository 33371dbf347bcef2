"""No test is empty: one that is only a docstring passes, and takes the place of the test that it inherits."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from ranks import REPO


def empty_tests(source: str) -> list[str]:
    """Tests that can do nothing: ``line: name`` of functions without a statement, and of names bound to no function."""
    return [f"{node.lineno}: {name}" for node in ast.walk(ast.parse(source)) for name in _emptied(node)]


def _emptied(node: ast.AST) -> Iterator[str]:
    names: list[str] = []
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and all(map(_does_nothing, node.body)):
        names = [node.name]
    elif isinstance(node, ast.Assign) and not isinstance(node.value, ast.Attribute | ast.Name | ast.Call):
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        names = [node.target.id]
    return (name for name in names if name.startswith("test_"))


def _does_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Return):
        return statement.value is None
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ('def test_a(self): """Another test looks at it."""', ["2: test_a"]),
        ("def test_a(self): ...", ["2: test_a"]),
        ("def test_a(self): pass", ["2: test_a"]),
        ("def test_a(self): return", ["2: test_a"]),
        ('test_a = "Another test looks at it."', ["2: test_a"]),
        ("test_a = None", ["2: test_a"]),
        ("test_a: None", ["2: test_a"]),
        ("def test_a(self): assert self", []),
        ("def data(self): pass", []),
        ("test_a = pytest.mark.ranks(Contract.test_a)", []),
    ],
)
def test_what_an_empty_test_is(body: str, found: list[str]) -> None:
    assert empty_tests(f"class TestOne(Contract):\n    {body}\n") == found


def test_no_test_is_empty() -> None:
    files = sorted((REPO / "tests").rglob("test_*.py"))
    assert len(files) > 100
    assert {file.name: empty for file in files if (empty := empty_tests(file.read_text(encoding="utf-8")))} == {}
