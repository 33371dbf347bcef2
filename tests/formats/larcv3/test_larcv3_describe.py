"""Descriptions of larcv3 files: they are told from other HDF5 files, and their producers of images are read."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from format_configs import ANY

from dlio_torch.config.compose import compose
from dlio_torch.errors import DataError
from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.larcv3.format import Larcv3Format
from dlio_torch.formats.testing.contract import read, write


def file_of(folder: Path, events: int = 5) -> Path:
    path = write(Larcv3Format(ANY, 1), folder / "file.h5", 0, events)
    with h5py.File(path, "a") as file:
        particles = file.create_group("Data/particle_all_group")
        particles["extents"] = np.zeros(events, [("first", "<u8"), ("N", "<u4")])
        particles["particles"] = np.zeros(3, [("id", "<u2")])
    return path


def test_a_file_is_recognised_and_read(tmp_path: Path) -> None:
    path = file_of(tmp_path)
    inspection = inspect_path(str(path))
    assert inspection.format == "larcv3"
    description = inspection.description
    assert description.samples == 5
    assert description.fields == ()
    assert description.options == {"producers": [{"name": "a"}, {"name": "b"}]}
    assert list(description.details["producers"]) == ["a", "b", "particle_all"]
    notes = {array.name: array.note for array in description.arrays}
    assert notes["Data/particle_all_group/particles"] == "not a table of sparse 2-D images, the only ones that are read"
    assert notes["Data/a_group/voxels"] == notes["Events/event_id"] == ""
    config = compose([f"dataset.path={path}"]).config
    fmt = create(config.dataset, 1)
    reader = fmt.open(path)
    assert set(read(fmt, reader, [4])) >= {"a/voxels", "b/voxels", "event_id"}
    reader.close()


def test_a_file_without_images_is_refused(tmp_path: Path) -> None:
    path = file_of(tmp_path)
    with h5py.File(path, "a") as file:
        del file["Data/a_group"], file["Data/b_group"]
    with pytest.raises(DataError, match="holds no sparse 2-D images; its producers are: particle_all"):
        inspect_path(str(path))


def test_another_file_with_groups_of_these_names_is_plain_hdf5(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file["Data/images"] = np.zeros((5, 3))
        file["Events/times"] = np.zeros(5)
    assert inspect_path(str(tmp_path / "file.h5")).format == "hdf5"
