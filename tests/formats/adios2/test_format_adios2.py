"""ADIOS2: BP4 and BP5 folders, steps and selections."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from format_reads import reads_after_open

from dlio_torch.config.compose import compose
from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.data.dataset.generation import generate
from dlio_torch.data.dataset.manifest import data_folder, existing_manifest
from dlio_torch.dist.base import SingleCommunicator
from dlio_torch.errors import ConfigError, DataError, MissingPackageError
from dlio_torch.formats.adios2.index import check_index
from dlio_torch.formats.adios2.options import Adios2Config
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.testing.contract import FormatContract, refusal, write
from dlio_torch.iotrace.recorder.spans import NULL

adios2 = pytest.importorskip("adios2", reason="adios2 is not installed")

FIXED = [
    FieldConfig("label", "int64", []),
    FieldConfig("group/image", "float32", [16, 12]),
    FieldConfig("mask", "uint8", [3, 16, 12]),
    FieldConfig("flags", "bool", [9]),
    FieldConfig("half", "float16", [5]),
]
VARIABLE = [
    FieldConfig("tokens", "int16", [], length_mean=40, length_stdev=15),
    FieldConfig("points", "float64", [3], length_mean=30, length_stdev=10),
]


def options(fields: list[FieldConfig], **values: Any) -> DatasetConfig:
    return DatasetConfig(format="adios2", fields=fields, adios2=Adios2Config(**values))


class TestContract(FormatContract):
    configs: ClassVar[Mapping[str, DatasetConfig]] = {
        "bp5": options(FIXED + VARIABLE, samples_per_step=3),
        "bp4": options(FIXED + VARIABLE, engine="BP4", samples_per_step=3),
        "bp5_one_step": options(FIXED),
        "bp4_one_a_step": options(VARIABLE, engine="BP4", samples_per_step=1),
    }


def made(config: DatasetConfig, folder: Path, samples: int = 7) -> tuple[Format, Path]:
    fmt = create(config, 5)
    return fmt, write(fmt, folder / "a.bp", 0, samples)


@pytest.mark.parametrize("engine", ["BP4", "BP5"])
def test_the_library_reads_step_by_step(tmp_path: Path, engine: str) -> None:
    """As an application that follows a simulation does, through the library's own front end."""
    fields = [FieldConfig("image", "float32", [16, 12]), VARIABLE[1]]
    fmt, path = made(options(fields, engine=engine, samples_per_step=3), tmp_path)
    first = 0
    with adios2.Stream(str(path), "r") as stream:
        for _ in stream.steps():
            # Of BP4, it would take the shape of the step before.
            samples = min(3, 7 - first)
            images = stream.read("image", [0, 0, 0], [samples, 16, 12])
            extents = stream.read("points_extents", [0, 0], [samples, 2])
            points = stream.read("points", [0, 0], [int(extents[-1].sum()), 3])
            for row, (begin, count) in enumerate(extents):
                want = fmt.expected(first + row)
                np.testing.assert_array_equal(images[row], want["image"])
                np.testing.assert_array_equal(points[begin : begin + count], want["points"])
            first += len(images)
    assert first == 7
    assert fmt.inspect(path).details == {"engine": f"{engine}Reader", "steps": 3, "samples_of_first_step": 3}


def test_equal_content_gives_equal_bytes_at_any_time(tmp_path: Path) -> None:
    for engine in ("BP4", "BP5"):
        config = options(FIXED, engine=engine, samples_per_step=2)
        contents = []
        for number in range(2):
            (tmp_path / f"{engine}{number}").mkdir()
            _, path = made(config, tmp_path / f"{engine}{number}")
            contents.append({inner.name: inner.read_bytes() for inner in path.iterdir()})
            time.sleep(1.1 * (1 - number))  # BP4 stores whole seconds
        assert contents[0] == contents[1]


@pytest.mark.parametrize("engine", ["BP4", "BP5"])
@pytest.mark.parametrize("inner", ["data.0", "md.0", "md.idx"])
def test_one_missing_byte_is_noticed(tmp_path: Path, engine: str, inner: str) -> None:
    """The library itself would wait for it without end."""
    fmt, path = made(options(FIXED, engine=engine, samples_per_step=3), tmp_path)
    os.truncate(path / inner, (path / inner).stat().st_size - 1)
    line = refusal(lambda: fmt.open(path), closed=path)
    assert f"{path}/{inner}" in line
    (path / inner).unlink()
    assert str(path) in refusal(lambda: fmt.open(path), closed=path)


def test_other_variables_are_refused(tmp_path: Path) -> None:
    _, path = made(options(FIXED), tmp_path)
    for field, words in (
        (FieldConfig("other", "int8"), "has no variable 'other'; its variables are flags"),
        (FieldConfig("label", "int32"), "label holds int64_t, but dataset.fields expect int32_t"),
        (FieldConfig("mask", "uint8", [3, 16]), "mask has shape [7, 3, 16, 12], but dataset.fields expect [n, 3, 16]"),
        (FieldConfig("label", "int64", [], length_mean=2), "has no variable 'label_extents'"),
    ):
        assert words in refusal(lambda: create(options([field]), 1).inspect(path), closed=path)  # noqa: B023


def test_options_that_do_not_fit() -> None:
    with pytest.raises(ConfigError, match="is reserved for the extents of a variable-length array"):
        create(options([*VARIABLE, FieldConfig("tokens_extents", "int8", [3])]), 1)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "adios2.bindings", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'dlio-torch\[adios2\]'"):
        create(options(FIXED), 1)


def test_folders_are_generated_found_and_written_again(tmp_path: Path) -> None:
    chosen = ["recipe=minimal", "dataset=adios2", "dataset.num_files=2", "dataset.samples_per_file=5"]
    config = compose([*chosen, f"dataset.root={tmp_path}", "generate.overwrite=true"]).config
    fmt = create(config.dataset, config.seed)
    for _ in range(2):  # a folder takes the place of one that is there
        assert generate(config, fmt, SingleCommunicator(), NULL).written == 2
    config = compose([*chosen, f"dataset.root={tmp_path}"]).config
    folder = data_folder(config, fmt)
    stale = folder / "train" / ".train_0000000.bp.1.part"
    stale.mkdir()
    (stale / "data.0").touch()
    assert generate(config, fmt, SingleCommunicator(), NULL).reused == 2
    assert sorted(path.name for path in (folder / "train").iterdir()) == ["train_0000000.bp", "train_0000001.bp"]
    for place, files in ((folder, 2), (folder / "train" / "train_0000001.bp", 1)):
        existing = compose([*chosen, f"dataset.path={place}"]).config
        assert existing_manifest(existing, fmt)[0].counts() == [5] * files


def test_a_selection_of_a_step_is_one_read(tmp_path: Path) -> None:
    field = FieldConfig("x", "float32", [5000])
    cases = {engine: options([field], engine=engine, samples_per_step=16) for engine in ("BP4", "BP5")}
    for path, calls in reads_after_open(cases, tmp_path).values():
        assert {call.path for call in calls} == {str(path / "data.0")}
        found = [call.result for call in calls]
        # Samples 10 to 29 lie in the first two steps.
        assert [found[0], *sorted(found[1:])] == [20000, 6 * 20000, 14 * 20000]


@pytest.mark.parametrize("engine", ["BP4", "BP5"])
def test_a_flipped_bit_of_the_index_is_found_before_the_library_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Literal["BP4", "BP5"]
) -> None:
    fields = [FieldConfig("image", "float32", [4, 3]), FieldConfig("labels", "uint8", [4, 3])]
    options = Adios2Config(engine=engine, samples_per_step=2)
    fmt = create(DatasetConfig(format="adios2", fields=fields, adios2=options), 1)
    path = write(fmt, tmp_path / "a.bp", 0, 4)
    fmt.layout(path)  # its records are filled up to eight bytes with these names
    names = ["image", "labels"]
    check_index(path, names)
    sound = (path / "md.0").read_bytes()
    refused = []
    for at in range(0, len(sound), 7):
        # The library crashes, or never ends, at many of these.
        (path / "md.0").write_bytes(sound[:at] + bytes([sound[at] ^ 64]) + sound[at + 1 :])
        try:
            check_index(path, names)
        except DataError as error:
            refused.append(str(error))
    assert len(refused) > len(sound) // 7 // 4
    assert all(str(path) in line for line in refused)
    called: list[Path] = []
    monkeypatch.setattr("dlio_torch.formats.adios2.reader.check_index", lambda path, names: called.append(path))
    (path / "md.0").write_bytes(sound)
    fmt.open(path).close()
    assert called == [path]
