"""The sdist and the wheels of a release are whole: they carry all that they need and work far from a checkout."""

from __future__ import annotations

import platform
import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from ranks import REPO, clean_environ

from dlio_torch.native import BUILT, COMPILED
from dlio_torch.native.build import find_compiler

RELEASE = runpy.run_path(str(REPO / "packaging/build_wheels.py"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Source distribution, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    return RELEASE["unpack"](RELEASE["build_sdist"](folder), folder / "unpacked")


@pytest.fixture(scope="module")
def installed(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pure wheel, built from the sdist and unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel = RELEASE["build_wheel"](sdist, folder, None)
    assert wheel.name.endswith("-py3-none-any.whl")
    RELEASE["check_libraries"](wheel, None)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_sdist_holds_all_files_of_the_project_but_those_of_the_workshop(sdist: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("this is not a checkout")
    left_out = {".ci", ".github", ".pre-commit-config.yaml", "benchmarks"}
    expected = {name for name in listed.stdout.splitlines() if name.split("/")[0] not in left_out}
    packed = {str(path.relative_to(sdist)) for path in sdist.rglob("*") if path.is_file()}
    assert packed - expected == {"PKG-INFO"}
    assert expected - packed == set()


def test_the_container_file_copies_all_that_a_wheel_is_built_from(installed: Path, tmp_path: Path) -> None:
    """Its wheel is that of the sdist."""
    text = (REPO / "packaging/Containerfile").read_text(encoding="utf-8")
    copied = [name for line in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.MULTILINE) for name in line.split()]
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    for name in copied:
        source, target = REPO / name, tmp_path / "source" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=ignored)
        else:
            shutil.copyfile(source, target)
    kept = (REPO / "packaging/Containerfile.dockerignore").read_text(encoding="utf-8")
    assert re.findall(r"^!(.*)$", kept, re.MULTILINE) == copied
    with zipfile.ZipFile(RELEASE["build_wheel"](tmp_path / "source", tmp_path, None)) as archive:
        packed = {name for name in archive.namelist() if not name.endswith("/")}
    assert packed == {str(path.relative_to(installed)) for path in installed.rglob("*") if path.is_file()}


def test_a_wheel_without_a_library_of_a_c_file_is_refused(installed: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "x-0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("dlio_torch/native/spin.c", "")
        archive.writestr("dlio_torch/native/crash.c", "")
        archive.writestr("dlio_torch/native/spin-0123-x86_64.so", "")
    with pytest.raises(RuntimeError, match=r"\['spin'\], not \['crash', 'spin'\]"):
        RELEASE["check_libraries"](wheel, "x86_64")


@pytest.mark.parametrize("machine", RELEASE["MACHINES"])
def test_a_wheel_for_another_machine_holds_libraries_of_old_glibc(sdist: Path, tmp_path: Path, machine: str) -> None:
    pytest.importorskip("ziglang", reason="the extra packaging is not installed")
    pytest.importorskip("auditwheel", reason="the extra packaging is not installed")
    wheel = RELEASE["build_wheel"](sdist, tmp_path, machine)
    assert wheel.name.endswith(f"-py3-none-manylinux_2_28_{machine}.whl")
    RELEASE["check_libraries"](wheel, machine)
    RELEASE["audit"](wheel, machine)
    if machine == platform.machine():
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(tmp_path / "site")
        assert native_origins(tmp_path / "site") == {BUILT}


def native_origins(site: Path) -> set[str]:
    """Where each C library comes from, in a process that loads the package from ``site``."""
    program = (
        "from dlio_torch.native import build, open_library\n"
        "for name in build.library_names(): print(open_library(name)[1].origin)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=site, env=clean_environ() | {"PYTHONPATH": str(site)}, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {*done.stdout.splitlines()}


@pytest.mark.skipif(find_compiler() is None, reason="needs a C compiler")
def test_a_pure_wheel_compiles_its_libraries_at_first_use(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert native_origins(installed) == {COMPILED}


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
