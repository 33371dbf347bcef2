"""Stores that zarr-python wrote by itself: described, read by its own values, and refused in one line."""

from __future__ import annotations

import json
import sys
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import ConfigError, DataError, MissingPackageError
from dlio_torch.formats.core.batch import BatchBuffer, samples_of
from dlio_torch.formats.core.data_description import DataDescription
from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.testing.contract import refusal
from dlio_torch.formats.zarr.describe import describe
from dlio_torch.formats.zarr.options import ZarrConfig

zarr = pytest.importorskip("zarr", minversion="3", reason="zarr 3 is not installed")

IMAGES = np.random.default_rng(3).integers(0, 200, (13, 6, 5)).astype("f4")


def described(path: Path) -> DataDescription:
    """The description of a store, which gives no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return describe(path)


def read_all(path: Path, description: DataDescription, **options: Any) -> dict[str, np.ndarray[Any, Any]]:
    """All samples of a store, as its description reads them."""
    config = DatasetConfig(
        format="zarr", fields=list(description.fields), zarr=ZarrConfig(**{**description.options, **options})
    )
    fmt = create(config, 1)
    with closing(fmt.open(path)) as reader:
        assert reader.num_samples == description.samples
        buffer = BatchBuffer(fmt.specs(), range(reader.num_samples))
        reader.read(0, reader.num_samples - 1, buffer, 0)
        reader.read(reader.num_samples - 1, 1, buffer, reader.num_samples - 1)
    samples = [sample for _, sample in samples_of(buffer.finish(), fmt.specs())]
    return {name: np.stack([sample[name] for sample in samples]) for name in samples[0]}


STORES: dict[str, dict[str, Any]] = {
    "plain": {"chunks": (3, 6, 5), "compressors": None},
    "zstd": {"chunks": (1, 6, 5)},
    "cut": {"chunks": (4, 2, 3)},
    "shards": {"chunks": (2, 6, 5), "shards": (4, 6, 5)},
    "version 2": {"chunks": (3, 6, 5), "zarr_format": 2},
    "version 2, big-endian": {"chunks": (3, 6, 5), "zarr_format": 2, "dtype": ">f4"},
    "version 2, Fortran": {"chunks": (13, 6, 5), "zarr_format": 2, "order": "F"},
}


@pytest.mark.parametrize("reopen", ["none", "array", "file"])
@pytest.mark.parametrize("case", STORES)
def test_a_store_of_each_kind(case: str, reopen: str, tmp_path: Path) -> None:
    options = {"dtype": "f4", **STORES[case]}
    version = options.pop("zarr_format", 3)
    group = zarr.open_group(str(tmp_path / "store"), mode="w", zarr_format=version)
    group.create_array("images/train", shape=IMAGES.shape, **options)[:] = IMAGES
    group.create_array("labels", shape=(13,), chunks=(5,), dtype="i8")[:] = np.arange(13)
    description = described(tmp_path / "store")
    assert [(field.name, field.dtype, field.shape) for field in description.fields] == [
        ("images/train", "float32", [6, 5]),
        ("labels", "int64", []),
    ]
    assert description.questions == ()
    content = read_all(tmp_path / "store", description, reopen=reopen)
    np.testing.assert_array_equal(content["images/train"], IMAGES)
    np.testing.assert_array_equal(content["labels"], np.arange(13))


def test_chunks_that_were_never_written_have_the_fill_value(tmp_path: Path) -> None:
    group = zarr.open_group(str(tmp_path / "store"), mode="w")
    array = group.create_array("data", shape=(6, 4), chunks=(2, 4), dtype="i4", fill_value=7)
    array[2:4] = 1
    group.create_array("sharded", shape=(6, 4), chunks=(1, 4), shards=(6, 4), dtype="i4", fill_value=3)[4] = 2
    group.create_array("nothing", shape=(6,), chunks=(6,), dtype="i2", fill_value=-5)
    description = described(tmp_path / "store")
    content = read_all(tmp_path / "store", description)
    assert content["data"][:, 0].tolist() == [7, 7, 1, 1, 7, 7]
    assert content["sharded"][:, 0].tolist() == [3, 3, 3, 3, 2, 3]
    assert content["nothing"].tolist() == [-5] * 6


def test_a_store_that_is_one_array(tmp_path: Path) -> None:
    zarr.create_array(str(tmp_path / "store"), data=IMAGES, chunks=(2, 6, 5))
    description = described(tmp_path / "store")
    assert description.options == {"root": "array"}
    (content,) = read_all(tmp_path / "store", description).values()
    np.testing.assert_array_equal(content, IMAGES)
    with pytest.raises(ConfigError, match="one array"):
        create(
            DatasetConfig(format="zarr", fields=[FieldConfig("a"), FieldConfig("b")], zarr=ZarrConfig(root="array")), 1
        )


@pytest.mark.parametrize("version", [2, 3])
def test_arrays_with_another_first_axis_are_left_out(version: int, tmp_path: Path) -> None:
    """As xarray lays out (time, lat, lon), with coordinates; latitude is as long as time."""
    group = zarr.open_group(str(tmp_path / "store"), mode="w", zarr_format=version)
    sizes = {"time": 8, "lat": 8, "lon": 12}

    def add(name: str, dims: tuple[str, ...], dtype: str = "f4") -> None:
        shape = tuple(sizes[dim] for dim in dims)
        named = {"dimension_names": dims} if version == 3 else {"attributes": {"_ARRAY_DIMENSIONS": list(dims)}}
        group.create_array(name, shape=shape, chunks=shape, dtype=dtype, **named)[...] = 1

    add("t2m", ("time", "lat", "lon"))
    add("precipitation", ("time", "lat", "lon"))
    for name in sizes:
        add(name, (name,), "f8")
    group.create_array("crs", shape=(), chunks=(), dtype="i4")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(group.store)
    description = described(tmp_path / "store")
    assert {field.name for field in description.fields} == {"t2m", "precipitation", "time"}
    assert (description.samples, description.details) == (8, {"consolidated": True})
    notes = " ".join(description.notes)
    assert "lat [8] is left out: its first axis is lat" in notes
    assert "lon [12] is left out: its first axis has 12 rows, not 8" in notes
    assert {array.name: array.note for array in description.arrays if array.note} == {
        "crs": "a scalar, not an array of samples"
    }
    assert read_all(tmp_path / "store", description)["t2m"].shape == (8, 8, 12)


def test_element_types_that_are_no_tensors_are_named(tmp_path: Path) -> None:
    group = zarr.open_group(str(tmp_path / "store"), mode="w")
    group.create_array("data", data=np.ones((4, 3), "f4"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        group.create_array("fixed", data=np.array(["a", "bb", "c", "d"]))
        group.create_array("text", shape=(4,), dtype="string")[:] = np.array(["a", "bb", "c", "d"], object)
        group.create_array("records", data=np.zeros(4, [("a", "i4"), ("b", "f8")]))
    group.create_array("phase", data=np.ones(4, "c8"))
    group.create_array("when", data=np.array([1, 2, 3, 4], "M8[s]"))
    group.create_array("unknown", data=np.ones(4, "f4"))
    metadata = tmp_path / "store" / "unknown" / "zarr.json"
    metadata.write_text(metadata.read_text().replace('"float32"', '"decimal7"'))
    description = described(tmp_path / "store")
    assert [field.name for field in description.fields] == ["data"]
    notes = {array.name: array.note for array in description.arrays}
    assert "strings" in notes["fixed"]
    assert "strings" in notes["text"]
    assert "structured" in notes["records"]
    assert "complex64" in notes["phase"]
    assert "datetime64" in notes["when"]
    assert "decimal7" in notes["unknown"]


def test_a_folder_of_stores(tmp_path: Path) -> None:
    for number in range(3):
        group = zarr.open_group(str(tmp_path / f"part{number}.zarr"), mode="w")
        group.create_array("x", data=np.ones((4 + number, 3), "f4"))
    (tmp_path / "readme.txt").write_text("about")
    inspection = inspect_path(str(tmp_path))
    assert (inspection.format, inspection.files, dict(inspection.other_files)) == ("zarr", 3, {".txt": 1})
    assert inspection.description.samples == 4


def test_what_is_no_store_is_refused_in_one_line(tmp_path: Path) -> None:
    array = np.ones((2, 2), "f4")
    with zarr.storage.ZipStore(tmp_path / "store.zip", mode="w") as store:
        zarr.create_array(store, name="x", data=array)
    fmt = create(DatasetConfig(format="zarr", fields=[FieldConfig("x", "float32", [2])]), 1)
    assert "zip store" in refusal(lambda: fmt.open(tmp_path / "store.zip"))
    (tmp_path / "folder").mkdir()
    assert "is not a Zarr store" in refusal(lambda: fmt.open(tmp_path / "folder"))
    zarr.open_group(str(tmp_path / "empty"), mode="w")
    assert "without arrays" in refusal(lambda: describe(tmp_path / "empty"))
    group = zarr.open_group(str(tmp_path / "other"), mode="w")
    group.create_array("y/x", data=array)
    assert "it has y" in refusal(lambda: fmt.open(tmp_path / "other"))
    (tmp_path / "other" / "zarr.json").write_text("{")
    assert str(tmp_path / "other") in refusal(lambda: describe(tmp_path / "other"))
    wrong = create(DatasetConfig(format="zarr", fields=[FieldConfig("y", "float32", [2])]), 1)
    group = zarr.open_group(str(tmp_path / "group"), mode="w")
    group.create_array("y/x", data=array)
    assert "is a group" in refusal(lambda: wrong.open(tmp_path / "group"))


@pytest.mark.parametrize(
    ("case", "word"),
    [
        ({"chunks": (4, 2)}, "lies in 2 files"),
        ({"chunks": (4, 4), "compressors": zarr.codecs.BloscCodec()}, "codec blosc"),
        ({"chunks": (4, 4), "filters": zarr.codecs.TransposeCodec(order=(1, 0))}, "codec transpose"),
        ({"chunks": (4, 4), "zarr_format": 2, "order": "F"}, "Fortran"),
    ],
)
def test_stores_that_only_the_library_reads(case: dict[str, Any], word: str, tmp_path: Path) -> None:
    options = {**case}
    group = zarr.open_group(str(tmp_path / "store"), mode="w", zarr_format=options.pop("zarr_format", 3))
    group.create_array("x", shape=(4, 4), dtype="f4", **options)[...] = 1
    fmt = create(DatasetConfig(format="zarr", fields=[FieldConfig("x", "float32", [4])]), 1)
    line = refusal(lambda: fmt.layout(tmp_path / "store"))
    assert word in line
    assert "loader.engine=dataloader" in line


def test_a_shard_with_its_index_at_the_start(tmp_path: Path) -> None:
    shard = zarr.codecs.ShardingCodec(chunk_shape=(1, 4), index_location="start")
    zarr.create_array(str(tmp_path / "store"), shape=(3, 4), chunks=(4, 4), dtype="i4", serializer=shard,
                      compressors=None, filters=None)[...] = np.arange(12).reshape(3, 4)  # fmt: skip
    fmt = create(
        DatasetConfig(format="zarr", fields=[FieldConfig("x", "int32", [4])], zarr=ZarrConfig(root="array")), 1
    )
    layout = fmt.layout(tmp_path / "store").arrays["x"]
    plan: Any = layout.plan(np.arange(3), np.arange(3) * 16)
    content = layout.path.read_bytes()
    got = [np.frombuffer(content, "i4", 4, int(offset)).tolist() for offset in plan.offsets]
    assert got == np.arange(12).reshape(3, 4).tolist()


def test_the_description_survives_json(tmp_path: Path) -> None:
    zarr.create_array(str(tmp_path / "store"), data=IMAGES)
    assert json.dumps(dict(described(tmp_path / "store").details)) == "{}"
    with pytest.raises(DataError, match="not a Zarr store"):
        describe(tmp_path)


@pytest.mark.parametrize(("module", "word"), [(None, "not installed"), ("2.18.0", "zarr 2.18.0 is installed")])
def test_a_missing_library_is_told_in_one_line(
    module: str | None, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zarr.create_array(str(tmp_path / "store"), data=IMAGES)
    if module is None:
        monkeypatch.setitem(sys.modules, "zarr", None)
    else:
        monkeypatch.setattr(zarr, "__version__", module)
    config = DatasetConfig(format="zarr", fields=[FieldConfig("x")])
    for attempt in (lambda: create(config, 1), lambda: describe(tmp_path / "store")):
        with pytest.raises(MissingPackageError, match=word) as error:
            attempt()
        assert error.value.hint == "pip install 'dlio-torch[zarr]'"
