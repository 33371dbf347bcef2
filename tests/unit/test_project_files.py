"""Files of the project beside its code: licence, citation, changelog, forms of issues, pages of the site."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from ranks import REPO

import dlio_torch

FORMS = sorted((REPO / ".github/ISSUE_TEMPLATE").glob("*.yml"))
PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def text(name: str) -> str:
    return (REPO / name).read_text(encoding="utf-8")


def test_the_licence_is_that_of_the_package() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    words = " ".join(text("LICENSE").split())
    assert words.startswith("Apache License Version 2.0, January 2004")
    assert "END OF TERMS AND CONDITIONS" in words


def test_the_citation_names_title_authors_version_and_the_paper() -> None:
    citation = yaml.safe_load(text("CITATION.cff"))
    required = {"cff-version", "message", "title", "type", "authors", "version", "license", "references"}
    assert required <= citation.keys()
    assert citation["version"] == dlio_torch.__version__
    assert citation["license"] == PROJECT["license"]
    assert all("name" in author for author in citation["authors"])
    for reference in citation["references"]:
        assert {"type", "title", "authors", "year", "doi"} <= reference.keys()


def test_the_changelog_begins_with_the_version_of_the_package() -> None:
    versions = re.findall(r"^## (\S+)", text("CHANGELOG.md"), re.MULTILINE)
    assert versions[0] == dlio_torch.__version__


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_forms_of_issues_have_what_their_kind_needs(path: Path) -> None:
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.stem == "config":
        assert set(form) == {"blank_issues_enabled"}
        return
    assert {"name", "description", "body"} <= form.keys()
    ids = [field["id"] for field in form["body"]]
    assert len({*ids}) == len(ids)
    for field in form["body"]:
        assert field["type"] in {"textarea", "input"}
        assert field["attributes"]["label"]
    assert any(field.get("validations", {}).get("required") for field in form["body"])


def test_there_are_forms_for_faults_and_ideas() -> None:
    assert {"bug", "idea", "config"} <= {path.stem for path in FORMS}


def test_files_that_guide_and_architecture_name_are_there() -> None:
    for name in ("CONTRIBUTING.md", "docs/architecture.md"):
        page = text(name)
        named = re.findall(r"`(?:bash )?((?:[\w.]+/)*[\w.]+\.(?:py|md|sh|toml|cff)|\.ci/run)[` ]", page)
        assert named
        for path in named:
            places = [REPO / path, REPO / "dlio_torch" / path]
            assert any(place.exists() for place in places) or list((REPO / "dlio_torch").rglob(path)), path
        for target in re.findall(r"\]\(([\w./]+\.md)", page):
            assert ((REPO / name).parent / target).is_file(), target


def test_all_pages_are_in_the_site_or_left_out_on_purpose() -> None:
    settings = text("mkdocs.yml")
    navigation = set(re.findall(r"[\w/]+\.md\b", settings.partition("\nnav:")[2].partition("\nvalidation:")[0]))
    pages = {path.relative_to(REPO / "docs").as_posix() for path in (REPO / "docs").rglob("*.md")}
    assert pages <= navigation
