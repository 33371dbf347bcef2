"""Names of the package: one meaning for a class, one place for a module, words that people search for."""

from __future__ import annotations

import ast

import names
import pytest

FIRST_LINES = ["Of the two, the larger.", "What is read.", "Those that are left.", "Where files lie."]


def test_the_package_has_no_violations() -> None:
    assert names.violations() == []


@pytest.mark.parametrize("name", sorted(names.BANNED))
def test_every_way_to_bind_a_banned_name_is_seen(name: str) -> None:
    lines = [
        f"{name} = 1",
        f"_{name}: int = 1",
        f"import os as {name}",
        f"def {name}(): ...",
        f"def f({name}): ...",
        f"def f(*, {name}=1): ...",
        f"def f(*{name}): ...",
        f"self.{name} = 1",
        f"for {name} in (): ...",
        f"[{name} for x, {name} in ()]",
        f"if ({name} := 1): ...",
        f"with open(f) as {name}: ...",
        f"try: ...\nexcept OSError as {name}: ...",
        f"class A:\n    {name}: int",
        f"match x:\n    case int() as {name}: ...",
    ]
    for line in lines:
        tree = ast.parse(line)
        assert [v.text.strip("_") for v in names.in_names("a.py", tree)] == [name], line
    assert not list(names.in_names("a.py", ast.parse(f"a.{name}(1)")))
    assert list(names.in_names(f"a/{name}.py", ast.parse("")))


@pytest.mark.parametrize("path", ["a/vigil.py", "a/handover.py", "stretches/a.py", "a/byte_stretches.py", "a/meet.py"])
def test_a_banned_module_name_is_seen(path: str) -> None:
    assert list(names.in_names(path, ast.parse("")))


def test_banned_words_are_seen_inside_names_of_classes_and_functions() -> None:
    tree = ast.parse("class BatchMaker: ...\ndef read_handful(): ...\nclass Heartbeat: ...\ndef stretched(): ...")
    assert [v.text for v in names.in_names("a.py", tree)] == ["BatchMaker", "read_handful"]


@pytest.mark.parametrize("line", FIRST_LINES)
def test_first_words_of_docstrings_are_seen(line: str) -> None:
    for text in (f'"""{line}"""', f'def f():\n    """{line}"""', f'class A:\n    x: int\n    """{line}"""'):
        assert [v.text for v in names.in_prose("a.py", ast.parse(text))] == [line]
    assert not list(names.in_prose("a.py", ast.parse(f'x = f("{line}")')))


def test_phrases_are_seen_in_docstrings_and_messages() -> None:
    for phrase in ("what is none", "whose word nobody hears", "waits for ever", "begins anew", "of whoever"):
        assert list(names.in_prose("a.py", ast.parse(f"fail(f'{{a}} {phrase}, {{b}}')"))), phrase
        assert list(names.in_prose("a.py", ast.parse(f'"""A file\n\nthat {phrase}."""'))), phrase
    assert not list(names.in_prose("a.py", ast.parse("x = 'forever'")))


def test_a_class_name_with_two_meanings_is_seen() -> None:
    trees = {"a.py": ast.parse("class A: ...\nclass B(Reader): ..."), "b/c.py": ast.parse("class A(B): ...")}
    assert [(v.path, v.text) for v in names.in_classes(trees)] == [
        ("a.py", "A, also in b/c.py"),
        ("b/c.py", "A, also in a.py"),
    ]


def test_a_family_of_classes_is_no_double_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "CLASS_FAMILIES", {"A": "Base"})
    trees = {"a.py": ast.parse("class A(Base): ..."), "b.py": ast.parse("class A(Base): ...")}
    assert not list(names.in_classes(trees))
    assert list(names.in_classes({**trees, "c.py": ast.parse("class A: ..."), "d.py": ast.parse("class A: ...")}))


def test_a_module_name_occurs_once_outside_of_families() -> None:
    empty = ast.parse("")
    family = ["formats/a/reader.py", "formats/b/reader.py", "a/reader.py", "a/__init__.py", "b/__init__.py"]
    assert not list(names.in_modules(dict.fromkeys(family, empty)))
    twice = list(names.in_modules(dict.fromkeys([*family, "b/reader.py"], empty)))
    assert [v.path for v in twice] == ["a/reader.py", "b/reader.py"]
