"""A library that is missing, or cannot be imported, is told in one line with what installs it."""

from __future__ import annotations

import json
import sys
import xml.dom
from pathlib import Path

import pytest

from dlio_torch.errors import MissingPackageError
from dlio_torch.formats.core.libraries import import_library


def test_a_library_that_is_there_is_imported() -> None:
    assert import_library("json", "this needs json", "x") is json


@pytest.mark.parametrize("module", ["no_such_library", "no_such_library.inner"])
def test_a_missing_library_and_its_extra(module: str) -> None:
    with pytest.raises(MissingPackageError) as caught:
        import_library(module, "dataset.format=x needs it", "x", otherwise="set a=b")
    assert caught.value.message == "dataset.format=x needs it, which is not installed"
    assert caught.value.hint == "pip install 'dlio-torch[x]', or set a=b"


def test_a_missing_library_of_which_an_inner_module_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert import_library("xml.dom", "this needs xml", "x") is xml.dom
    monkeypatch.setitem(sys.modules, "xml", None)
    with pytest.raises(MissingPackageError, match="this needs xml, which is not installed"):
        import_library("xml.dom", "this needs xml", "x")


def test_a_library_whose_own_import_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_installed.py").write_text("import a_library_of_the_library")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingPackageError, match=r"cannot be imported \(No module named 'a_library_of_the_library'\)"):
        import_library("half_installed", "this needs half_installed", "x")
