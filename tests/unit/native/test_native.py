import ctypes
import importlib.util
import multiprocessing
import os
import shutil
import stat
import tempfile
import time
import zipfile
from pathlib import Path

import pytest
from interpreter_lock import turns_of_another_thread

from dlio_torch import native
from dlio_torch.native import build

ROOT = Path(build.SOURCE_DIR).parents[1]

needs_compiler = pytest.mark.skipif(build.find_compiler() is None, reason="needs a C compiler")


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "native"


@needs_compiler
def test_compiles_at_first_use_and_finds_it_again(empty, cache, monkeypatch):
    library, found = native.open_library("spin", packaged=empty, caches=[cache])
    assert found.origin == "compiled at first use"
    assert library.dlio_spin_until
    assert [path.name for path in cache.iterdir()] == [build.library_file_name("spin")]
    monkeypatch.setenv("CC", "/nonexistent/cc")
    assert native.open_library("spin", packaged=empty, caches=[cache])[1] == found


@needs_compiler
def test_prefers_the_library_of_the_package(empty, cache):
    build.compile_library("spin", empty / build.library_file_name("spin"))
    library, found = native.open_library("spin", packaged=empty, caches=[cache])
    assert (found.origin, found.path.parent) == ("built with the package", empty)
    assert library.dlio_burn_until
    assert not cache.exists()


@needs_compiler
def test_passes_over_a_package_library_that_does_not_load(empty, cache):
    (empty / build.library_file_name("spin")).write_bytes(b"made for another C library")
    assert native.open_library("spin", packaged=empty, caches=[cache])[1].origin == "compiled at first use"


@needs_compiler
@pytest.mark.parametrize("damage", ["truncated", "garbage", "empty", "sealed garbage"])
def test_bad_cached_library_is_rebuilt(damage, empty, cache):
    path = native.find("spin", packaged=empty, caches=[cache]).path
    content = path.read_bytes()
    bad = {
        "truncated": content[: len(content) // 2],
        "garbage": b"\x7fELF" + bytes(8000),
        "empty": b"",
        "sealed garbage": build._seal(b"no shared library"),
    }[damage]
    path.write_bytes(bad)
    library, found = native.open_library("spin", packaged=empty, caches=[cache])
    assert found.path == path
    assert library.dlio_spin_until
    assert build.is_sealed(path)
    assert path.read_bytes() != bad


def _open_in_child(empty: Path, cache: Path, ready, results) -> None:
    ready.wait()
    results.put(native.open_library("spin", packaged=empty, caches=[cache])[1].origin)


@needs_compiler
def test_many_processes_at_once_leave_one_whole_file(empty, cache):
    context = multiprocessing.get_context("spawn")
    ready, results = context.Event(), context.Queue()
    children = [context.Process(target=_open_in_child, args=(empty, cache, ready, results)) for _ in range(4)]
    for child in children:
        child.start()
    ready.set()
    assert [results.get(timeout=120) for _ in children] == ["compiled at first use"] * 4
    for child in children:
        child.join()
    (path,) = cache.iterdir()
    assert build.is_sealed(path)


@needs_compiler
def test_folder_that_others_can_write_is_refused(empty, cache, tmp_path):
    open_to_all = tmp_path / "all" / "native"
    open_to_all.mkdir(parents=True)
    open_to_all.chmod(0o777)
    assert native.find("spin", packaged=empty, caches=[open_to_all, cache]).path.parent == cache
    assert list(open_to_all.iterdir()) == []
    with pytest.raises(native.NativeUnavailable, match="or other users can write to it"):
        native.find("spin", packaged=empty, caches=[open_to_all])


@needs_compiler
@pytest.mark.parametrize("planted", ["cache", "cache/native"])
@pytest.mark.parametrize("leads_to", ["folder", "nothing"])
def test_a_linked_cache_folder_is_refused_and_not_followed(planted, leads_to, empty, cache, tmp_path):
    """All folders are this user's own: who plants a link chooses where we write, and what we load."""
    target = tmp_path / "elsewhere"
    if leads_to == "folder":
        (target / "native").mkdir(parents=True)
    (tmp_path / planted).parent.mkdir(exist_ok=True)
    (tmp_path / planted).symlink_to(target)
    with pytest.raises(
        native.NativeUnavailable, match=f"^{tmp_path / planted} is a symbolic link, .* remove the link$"
    ):
        native.find("spin", packaged=empty, caches=[cache])
    assert [path for path in target.rglob("*") if path.name != "native"] == []
    assert target.exists() == (leads_to == "folder")
    assert native.find("spin", packaged=empty, caches=[cache, tmp_path / "next" / "native"]).path.parts[-3] == "next"


@needs_compiler
def test_a_link_in_the_temporary_folder_is_refused(empty, tmp_path, monkeypatch):
    """The folder of the last resort has a name that anybody can guess."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/no-cache")
    (tmp_path / "elsewhere").mkdir()
    native.scratch_dir().symlink_to(tmp_path / "elsewhere")
    with pytest.raises(native.NativeUnavailable, match=f"^{native.scratch_dir()} is a symbolic link"):
        native.find("spin", packaged=empty)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@needs_compiler
def test_a_linked_library_is_replaced_and_not_loaded(empty, cache, tmp_path):
    """Even if it is whole: what it leads to may be changed after it was checked."""
    path = native.find("spin", packaged=empty, caches=[cache]).path
    planted = path.rename(tmp_path / "planted.so")
    content = planted.read_bytes()
    path.symlink_to(planted)
    assert native.find("spin", packaged=empty, caches=[cache]).path == path
    assert not path.is_symlink()
    assert planted.read_bytes() == content


@needs_compiler
def test_the_folder_above_the_cache_is_private_too(empty, cache):
    """Who may write there can put another folder in the place of the cache."""
    before = os.umask(0)
    try:
        native.find("spin", packaged=empty, caches=[cache])
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (cache.parent, cache)] == [0o700, 0o700]
    cache.parent.chmod(0o777)
    with pytest.raises(
        native.NativeUnavailable, match=f"^{cache.parent} belongs to another user, or other users can write"
    ):
        native.find("spin", packaged=empty, caches=[cache])


@needs_compiler
def test_cache_folder_that_cannot_be_made_leads_to_the_next(empty, cache, tmp_path):
    (tmp_path / "file").write_text("")
    found = native.find("spin", packaged=empty, caches=[tmp_path / "file" / "native", cache])
    assert found.path.parent == cache


def test_no_compiler_is_said(empty, cache, monkeypatch):
    monkeypatch.setenv("CC", "/nonexistent/cc")
    with pytest.raises(native.NativeUnavailable, match="no C compiler"):
        native.open_library("spin", packaged=empty, caches=[cache])
    assert list(cache.iterdir()) == []


def test_failing_compiler_is_quoted(empty, cache, tmp_path, monkeypatch):
    compiler = tmp_path / "badcc"
    compiler.write_text("#!/bin/sh\necho 'spin.c:1: error: no such luck' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    with pytest.raises(native.NativeUnavailable, match="error: no such luck"):
        native.find("spin", packaged=empty, caches=[cache])
    assert list(cache.iterdir()) == []


def test_unknown_library_is_named():
    with pytest.raises(native.NativeUnavailable, match="'nosuch'"):
        native.load("nosuch")


def test_file_name_follows_the_sources(tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text('#include "y.h"\n')
    (tmp_path / "y.h").write_text('#include "z.h"\n')
    (tmp_path / "z.h").write_text("int z;")
    names = [build.library_file_name("x", tmp_path)]
    for file in "x.c", "y.h", "z.h":
        with open(tmp_path / file, "a") as source:
            source.write("int other;")
        names.append(build.library_file_name("x", tmp_path))
    assert len(set(names)) == 4
    (tmp_path / "of_others.h").write_text("int w;")
    assert build.library_file_name("x", tmp_path) == names[-1]


def test_cache_dir_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert native.cache_dir() == tmp_path / "dlio_torch"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert native.cache_dir() == Path("/home/someone/.cache/dlio_torch")


def _turns_during_a_spin(library: ctypes.CDLL) -> int:
    function = library.dlio_spin_until
    function.argtypes, function.restype = (ctypes.c_int64,), ctypes.c_int64
    return turns_of_another_thread(lambda: function(time.monotonic_ns() + 40_000_000))


@needs_compiler
def test_a_call_releases_the_interpreter_lock():
    assert _turns_during_a_spin(native.load("spin")) > 0


@needs_compiler
def test_the_lock_test_sees_a_call_that_holds_the_lock():
    path = native.open_library("spin")[1].path
    assert _turns_during_a_spin(ctypes.PyDLL(str(path))) == 0


PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "dlio-torch"
version = "0"
[tool.hatch.build.targets.wheel]
packages = ["dlio_torch"]
[tool.hatch.build.targets.wheel.hooks.custom]
path = "hatch_build.py"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    shutil.copytree(build.SOURCE_DIR, folder / "dlio_torch" / "native", ignore=shutil.ignore_patterns("*.so", "__py*"))
    (folder / "dlio_torch" / "__init__.py").write_text("")
    (folder / "pyproject.toml").write_text(PYPROJECT)
    shutil.copy(ROOT / "hatch_build.py", folder)
    return folder


def _build_wheel(project: Path) -> tuple[str, list[str]]:
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="needs hatchling")
    (artifact,) = wheel.WheelBuilder(str(project)).build(directory=str(project / "dist"), versions=["standard"])
    with zipfile.ZipFile(artifact) as archive:
        return os.path.basename(artifact), archive.namelist()


@needs_compiler
def test_wheel_holds_the_library_and_is_tagged_for_the_platform(project):
    name, members = _build_wheel(project)
    assert "-py3-none-linux_" in name
    file_name = build.library_file_name("spin")
    assert f"dlio_torch/native/{file_name}" in members
    assert not list((project / "dlio_torch" / "native").glob("*.so"))


def test_build_without_compiler_gives_a_pure_wheel(project, monkeypatch):
    monkeypatch.setenv("CC", "/nonexistent/cc")
    name, members = _build_wheel(project)
    assert name.endswith("-none-any.whl")
    assert "dlio_torch/native/spin.c" in members
    assert not [member for member in members if member.endswith(".so")]


def _run_editable_hook(project: Path) -> dict[str, object]:
    pytest.importorskip("hatchling", reason="needs hatchling")
    spec = importlib.util.spec_from_file_location("hatch_build_of_project", project / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    hook = module.NativeBuildHook(str(project), {}, None, None, str(project / "dist"), "wheel")
    build_data = {"force_include": {}, "pure_python": True}
    hook.initialize("editable", build_data)
    hook.finalize("editable", build_data, "")
    return build_data


@needs_compiler
def test_editable_install_puts_the_library_beside_its_source(project):
    folder = project / "dlio_torch" / "native"
    (folder / "spin-0123456789abcdef-old.so").write_bytes(b"")
    build_data = _run_editable_hook(project)
    libraries = {build.library_file_name(name) for name in build.library_names()}
    assert {path.name for path in folder.glob("*.so")} == libraries
    assert build_data["tag"].startswith("py3-none-linux_")
    assert build_data["force_include"] == {}


def test_editable_install_without_compiler_changes_nothing(project, monkeypatch):
    monkeypatch.setenv("CC", "/nonexistent/cc")
    assert _run_editable_hook(project) == {"force_include": {}, "pure_python": True}
    assert not list((project / "dlio_torch" / "native").glob("*.so"))


def test_a_library_is_preloaded_by_a_path_that_the_loader_can_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LD_PRELOAD parts names at spaces and colons; a home folder may have them in its name."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "with a space"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("LD_PRELOAD", "/other.so")
    path, other = native.preloaded("swap_bytes").split(":")
    assert Path(path).is_file()
    assert " " not in path
    assert other == "/other.so"
    (tmp_path / "a:b").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "a:b"))
    if " " in str(native.find("swap_bytes").path):  # it was not built with the package
        with pytest.raises(native.NativeUnavailable, match="space or colon"):
            native.preloaded("swap_bytes")
