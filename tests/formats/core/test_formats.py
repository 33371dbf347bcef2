"""Every registered format keeps the contract; formats of installed packages are found and told apart."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest
from format_configs import ANY, CONFIGS, ONE_SAMPLE, WITHOUT_FILES
from optional_parts import formats
from ranks import REPO

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError, DlioError, MissingPackageError, PreconditionError
from dlio_torch.formats.core import registry
from dlio_torch.formats.core.file_errors import open_error
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.hdf5.format import Hdf5Format
from dlio_torch.formats.testing.contract import FormatContract, ReadingContract

OF_THE_SYSTEM = ("silo",)  # no package of Python brings its library


class TestFormatsWithFiles(FormatContract):
    configs: ClassVar[Mapping[str, DatasetConfig]] = {
        name: config for name, config in CONFIGS.items() if name not in (*WITHOUT_FILES, *ONE_SAMPLE, *OF_THE_SYSTEM)
    }


@pytest.mark.needs("silo")
class TestFormatsOfTheSystem(FormatContract):
    configs: ClassVar[Mapping[str, DatasetConfig]] = {name: CONFIGS[name] for name in OF_THE_SYSTEM}


class TestFormatsOfOneSampleAFile(FormatContract):
    num_samples: ClassVar[int] = 1
    configs: ClassVar[Mapping[str, DatasetConfig]] = {name: CONFIGS[name] for name in ("npy", "npz", *ONE_SAMPLE)}


class TestFormatsWithoutFiles(ReadingContract):
    configs: ClassVar[Mapping[str, DatasetConfig]] = {name: CONFIGS[name] for name in WITHOUT_FILES}


@pytest.mark.parametrize("name", formats(sorted(CONFIGS)))
def test_a_format_bears_its_registered_name_and_has_a_fragment(name: str) -> None:
    fragment = REPO / "conf" / "dataset" / f"{name}.yaml"
    fmt = registry.create(CONFIGS[name], 1)
    assert fmt.name == name
    assert fmt.needs_files == (name not in WITHOUT_FILES)
    assert f"\nformat: {name}\n" in fragment.read_text(encoding="utf-8")


def test_a_contract_without_configurations_is_refused() -> None:
    with pytest.raises(AssertionError, match="defines no configs"):
        FormatContract().pytest_generate_tests(None)


def add_entry_point(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    def entry_points(*, group: str) -> list[EntryPoint]:
        assert group == "dlio_torch.formats"
        return [EntryPoint(name, value, group)]

    monkeypatch.setattr(registry, "entry_points", entry_points)


def add_module(monkeypatch: pytest.MonkeyPatch, name: str, **content: object) -> None:
    module = ModuleType(name)
    module.__dict__.update(content)
    monkeypatch.setitem(sys.modules, name, module)


class Outside(Hdf5Format):
    name = "outside"


def test_an_installed_package_adds_a_format(monkeypatch: pytest.MonkeyPatch) -> None:
    add_module(monkeypatch, "outside_package", Outside=Outside)
    add_entry_point(monkeypatch, "outside", "outside_package:Outside")
    assert set(registry.available()) == {"outside", *registry.BUILTIN}
    made = registry.create(replace(ANY, format="outside"), 3)
    assert type(made) is Outside
    assert made.seed == 3


def test_a_built_in_format_cannot_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    add_module(monkeypatch, "outside_package", Outside=Outside)
    add_entry_point(monkeypatch, "hdf5", "outside_package:Outside")
    assert type(registry.create(replace(ANY, format="hdf5"), 1)) is Hdf5Format


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        ("no_such_package_anywhere:Outside", MissingPackageError, "install the package that provides 'no_such_pack"),
        ("outside_package:Missing", PreconditionError, "module outside_package has no class 'Missing'"),
    ],
)
def test_a_broken_entry_point_is_named(
    monkeypatch: pytest.MonkeyPatch, value: str, kind: type[DlioError], words: str
) -> None:
    add_module(monkeypatch, "outside_package")
    add_entry_point(monkeypatch, "broken", value)
    with pytest.raises(kind, match=words) as caught:
        registry.create(replace(ANY, format="broken"), 1)
    assert "dataset.format='broken'" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hdf", "did you mean 'hdf5'"),
        ("larcv", "did you mean 'larcv3'"),
        ("xyzzy", f"known formats: {', '.join(sorted(registry.BUILTIN))}"),
    ],
)
def test_an_unknown_format_gets_a_suggestion(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        registry.create(replace(ANY, format=name), 1)
    assert f"dataset.format='{name}' is not a known format" in str(caught.value)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FileNotFoundError(2, "No such file"), "/x/y does not exist"),
        (PermissionError(13, "Permission denied"), "/x/y cannot be opened: permission denied"),
        (IsADirectoryError(21, "Is a directory"), "/x/y is a folder"),
        (OSError("bad\n  superblock"), "/x/y cannot be read: bad superblock; the file is damaged"),
        (RuntimeError(), "/x/y cannot be read: RuntimeError; the file is damaged"),
    ],
)
def test_what_a_library_refuses_becomes_one_line(error: Exception, words: str) -> None:
    assert str(open_error(Path("/x/y"), error)).startswith(words)


def test_formats_list_themselves_without_being_imported() -> None:
    assert all(isinstance(target, str) and ":" in target for target in registry.available().values())
    assert issubclass(Hdf5Format, Format)
