"""Storages of other packages: the example of docs/adding.md works; options that need more than it can do fail."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest
from ranks import REPO

from dlio_torch import cli
from dlio_torch.config.compose import compose
from dlio_torch.errors import ConfigError, DlioError, MissingPackageError, PreconditionError
from dlio_torch.storage import registry
from dlio_torch.storage.base import Capabilities
from dlio_torch.storage.local.storage import LocalStorage

SECTION = (REPO / "docs/adding.md").read_text(encoding="utf-8").partition("## Add a storage")[2].partition("\n## ")[0]
SMALL = ("recipe=minimal", "scale=tiny")


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    """A folder in the place of /mnt, and the example's package beside it, as ``pip install --target`` leaves it."""
    storage, test = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
    (entry_point,) = re.findall(r"point `(server = .*?)`:", SECTION, re.DOTALL)
    folder = tmp_path / "mnt"
    folder.mkdir()
    info = tmp_path / "server_storage-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: server-storage\nVersion: 1.0\n", encoding="utf-8")
    points = ["[dlio_torch.storages]", entry_point.replace('"', "")]
    (info / "entry_points.txt").write_text("\n".join(points), encoding="utf-8")
    for name, text in (("server_storage.py", storage), ("test_server_storage.py", test)):
        assert "/mnt" in text
        (tmp_path / name).write_text(text.replace("/mnt", str(folder)), encoding="utf-8")
    return folder


def python(mount: Path, *args: str) -> subprocess.CompletedProcess[str]:
    paths = [str(REPO), str(mount.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    cwd = mount.parent / "work"
    cwd.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, *args], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def test_the_storage_of_the_page_keeps_the_contract(mount: Path) -> None:
    (mount / "share").mkdir()
    test, base = str(mount.parent / "test_server_storage.py"), f"--basetemp={mount}/share/tests"
    done = python(mount, "-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider", "-c", os.devnull, base, test)
    assert done.returncode == 0, done.stdout
    assert re.search(r"\b[12]\d passed", done.stdout)
    assert "skipped" not in done.stdout


def test_the_storage_of_the_page_holds_the_data_of_a_run(mount: Path) -> None:
    root = "dataset.root=server://share/data"
    done = python(mount, "-m", "dlio_torch", *SMALL, root, "verify=true")
    assert done.returncode == 0, done.stderr
    assert f"dataset.root server://share/data -> {mount}/share/data (the path on this machine)" in done.stderr
    assert list((mount / "share" / "data").glob("minimal-*/train/*"))
    assert sorted(path.name for path in (mount.parent / "work").iterdir()) == ["runs"]
    (data,) = (mount / "share" / "data").iterdir()
    done = python(mount, "-m", "dlio_torch", *SMALL, f"dataset.path=server://share/data/{data.name}/train")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (mount.parent / "work").iterdir()) == ["runs"]


def test_a_url_is_no_folder_of_results_though_its_storage_is_known(mount: Path) -> None:
    done = python(mount, "-m", "dlio_torch", *SMALL, "output.root=server://share/runs")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "dlio_torch: error: output.root=server://share/runs (command line): a local path is required, not a "
        "server:// URL; use a local path"
    )
    done = python(mount, "-m", "dlio_torch", "trace", "--output", "server://share/runs", "--", "true")
    assert done.returncode == 2
    assert list((mount.parent / "work").iterdir()) == []


# --- capabilities ---


class Mounted(LocalStorage):
    """Its client keeps no page cache and maps no files."""

    capabilities = Capabilities(paths=True, folders=True)


class Bucket(LocalStorage):
    """Its files have no paths."""

    capabilities = Capabilities()


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("toy_storages")
    module.__dict__.update(Mounted=Mounted, Bucket=Bucket, number=3)
    monkeypatch.setitem(sys.modules, "toy_storages", module)
    targets = {"mounted": "Mounted", "bucket": "Bucket", "broken": "Missing", "number": "number"}
    points = [EntryPoint(scheme, f"toy_storages:{name}", registry.ENTRY_POINTS) for scheme, name in targets.items()]
    points.append(EntryPoint("missing", "no_such_package_anywhere:Storage", registry.ENTRY_POINTS))

    def entry_points(*, group: str) -> list[EntryPoint]:
        assert group == "dlio_torch.storages"
        return points

    monkeypatch.setattr(registry, "entry_points", entry_points)


MMAP = ("dataset=indexed_binary", "dataset.binary.access=mmap")
UNCACHED = "mounted:// storage does not keep files in the page cache of this machine"


@pytest.mark.parametrize(
    ("options", "refused", "problem"),
    [
        (
            ["dataset.direct_io=true"],
            "dataset.direct_io=true",
            "mounted:// storage does not support reads that bypass the page cache (O_DIRECT); set "
            "dataset.direct_io=false",
        ),
        (
            [*MMAP],
            "dataset.binary.access=mmap",
            "mounted:// storage cannot map files into memory (mmap); set dataset.binary.access=file",
        ),
        (["cache.state=cold"], "cache.state=cold", f"{UNCACHED}; set cache.state=as_is"),
        (["cache.state=warm"], "cache.state=warm", f"{UNCACHED}; set cache.state=as_is"),
        (["cache.every_epoch=true"], "cache.every_epoch=true", f"{UNCACHED}; set cache.every_epoch=false"),
        *(
            (
                [f"storage.limits={limits}"],
                f"storage.limits={limits}",
                f"{UNCACHED}, so the limits of its device cannot be measured; set storage.limits=off",
            )
            for limits in ("measure", "remeasure")
        ),
    ],
)
@pytest.mark.parametrize("key", ["dataset.root", "dataset.path"])
def test_a_mounted_storage_without_a_page_cache_refuses_what_needs_one(
    key: str,
    options: list[str],
    refused: str,
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", "recipe=minimal", *options, f"{key}=mounted://share/x"]) == 2
    (line,) = (one for one in capsys.readouterr().err.splitlines() if not one.startswith("scale: "))
    assert line == (
        f"dlio_torch: error: {refused} (command line) with {key}=mounted://share/x (command line): {problem}"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            [],
            "dataset.root=bucket://b (command line): bucket:// storage has no file paths, and the format opens "
            "files by path; ",
        ),
        (["stage.dir=local"], "stage.dir=local (command line) with dataset.root=bucket://b (command line): bucket:// "),
        (["access.io=independent"], "access.io=independent (command line) with dataset.root=bucket://b "),
        (["loader.replay=reads"], "loader.replay=reads (command line) with dataset.root=bucket://b "),
    ],
)
def test_a_bucket_refuses_what_needs_paths(options: list[str], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose([*SMALL, *options, "dataset.root=bucket://b"])
    assert str(caught.value).startswith(problem)
    assert "has no file paths" in str(caught.value)


def test_copies_on_a_local_disk_are_read_as_local_files() -> None:
    options = ("stage.dir=local", "cache.state=cold", "storage.limits=measure", "dataset.root=mounted://share")
    assert compose([*SMALL, *options]).config.cache.state == "cold"


def test_an_unknown_scheme_lists_the_storages_of_other_packages() -> None:
    with pytest.raises(
        ConfigError, match=r"supported are paths \(no scheme\), broken://, bucket://, missing://, mounted://"
    ):
        compose([*SMALL, "dataset.root=s3://b"])


@pytest.mark.parametrize(
    ("scheme", "kind", "words"),
    [
        ("missing", MissingPackageError, "install the package that provides 'no_such_package_anywhere'"),
        ("broken", PreconditionError, "'toy_storages:Missing' is not a Storage class"),
        ("number", PreconditionError, "'toy_storages:number' is not a Storage class"),
    ],
)
def test_a_broken_entry_point_is_named(scheme: str, kind: type[DlioError], words: str) -> None:
    with pytest.raises(kind, match=words):
        compose([*SMALL, f"dataset.root={scheme}://b"])
    with pytest.raises(kind, match=words):
        registry.open_storage(f"{scheme}://b")


def test_a_built_in_storage_cannot_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("", "toy_storages:Bucket", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda **_: [point])
    assert registry.storage_class("data") is LocalStorage
    assert registry.available()[""] == registry.BUILTIN[""]


def test_a_variable_in_stage_dir_may_not_hold_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    from dlio_torch.storage.stage_folder import node_folder

    monkeypatch.setenv("SCRATCH", "s3://bucket")
    with pytest.raises(ConfigError, match=r"stage.dir=\$SCRATCH/x: no storage supports s3:// URLs"):
        node_folder("$SCRATCH/x")
