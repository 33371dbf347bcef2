"""Folders that adios2 wrote by itself are described by the rows of their steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.formats.adios2.options import Adios2Config
from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.testing.contract import check_batch, read, refusal, write

adios2 = pytest.importorskip("adios2", reason="adios2 is not installed")


def test_a_simulation_with_several_steps(tmp_path: Path) -> None:
    folder = tmp_path / "simulation"
    with adios2.Stream(str(folder), "w") as stream:
        for step in range(3):
            stream.begin_step()
            stream.write("T", np.full((4, 5), step, "f4"), [4, 5], [0, 0], [4, 5])
            stream.write("ids", np.arange(4) + 4 * step, [4], [0], [4])
            stream.write("complex", np.ones(4, "c8"), [4], [0], [4])
            stream.write("time", np.array(step))
            stream.write("name", "abc")
            if not step:
                stream.write("grid", np.ones(9), [9], [0], [9])
            stream.end_step()
    inspection = inspect_path(str(folder))
    description = inspection.description
    assert (inspection.format, inspection.files, description.samples) == ("adios2", 1, 12)
    assert {field.name: (field.dtype, field.shape) for field in description.fields} == {
        "T": ("float32", [5]),
        "ids": ("int64", []),
    }
    assert {array.name for array in description.arrays if array.note} == {"complex", "time", "name"}
    assert any(note.startswith("grid [9] is left out") for note in description.notes)
    fmt = create(DatasetConfig(format="adios2", fields=list(description.fields)), 1)
    assert read(fmt, fmt.open(folder), [0, 5, 11])["ids"].tolist() == [0, 5, 11]


def test_variable_lengths_are_told_by_their_table(tmp_path: Path) -> None:
    fields = [FieldConfig("points", "float64", [3], length_mean=9, length_stdev=2), FieldConfig("label", "int32", [])]
    fmt = create(DatasetConfig(format="adios2", fields=fields, adios2=Adios2Config(samples_per_step=3)), 1)
    path = write(fmt, tmp_path / "a.bp", 0, 8)
    description = inspect_path(str(tmp_path)).description
    assert description.samples == 8
    label, points = description.fields
    assert (label.name, points.name, points.shape) == ("label", "points", [3])
    assert 5 < points.length_mean < 13
    again = create(DatasetConfig(format="adios2", fields=[points, label]), 1)
    batch = read(again, again.open(path), range(8))
    check_batch(fmt, batch, range(8))


def test_a_damaged_folder_is_refused_in_one_line(tmp_path: Path) -> None:
    fmt = create(DatasetConfig(format="adios2", fields=[FieldConfig("x", "int32", [2])]), 1)
    path = write(fmt, tmp_path / "a.bp", 0, 8)
    (path / "md.0").write_bytes((path / "md.0").read_bytes()[:40])
    assert str(path) in refusal(lambda: inspect_path(str(path)))
