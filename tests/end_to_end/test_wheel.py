"""An installed wheel is whole: it carries conf/ and recipes/ and works far from a checkout."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from ranks import REPO, clean_environ


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=REPO,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (wheel,) = folder.glob("*.whl")
    site = folder / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def test_resources_are_in_the_wheel(installed: Path) -> None:
    for folder in ("conf", "recipes"):
        ours = {str(p.relative_to(REPO)) for p in (REPO / folder).rglob("*.yaml")}
        shipped = {
            str(p.relative_to(installed / "dlio_torch/_resources")) for p in installed.rglob(f"{folder}/**/*.yaml")
        }
        assert ours == shipped


def test_the_glossary_is_in_the_wheel(installed: Path) -> None:
    shipped = installed / "dlio_torch/_resources/docs/glossary.md"
    assert shipped.read_text() == (REPO / "docs/glossary.md").read_text()


def test_no_test_or_build_product_is_in_the_wheel(installed: Path) -> None:
    top = {path.name for path in installed.iterdir()}
    assert {name for name in top if not name.endswith(".dist-info")} == {"dlio_torch"}


def test_it_runs_without_the_checkout(installed: Path, tmp_path: Path) -> None:
    environ = clean_environ() | {"PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, "-m", "dlio_torch", "show", "recipe=cosmic_tagger"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "larcv3" in done.stdout
    where = subprocess.run(
        [sys.executable, "-c", "import dlio_torch; print(dlio_torch.__file__)"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert where.stdout.startswith(str(installed))
