"""Files that are generated like existing ones: the same arrays, layout and codec, and sizes within some percent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
from format_configs import CONFIGS
from observed_calls import array, observed
from optional_parts import formats

from dlio_torch.config.schema import Config, DatasetConfig, TrainConfig
from dlio_torch.config.validate import validate
from dlio_torch.errors import DataError
from dlio_torch.formats.core.data_description import DataDescription
from dlio_torch.formats.core.inspection import Inspection, inspect_path
from dlio_torch.formats.core.recreation import ObservedReads, Recreation, recreation
from dlio_torch.formats.core.registry import all_facts, create, facts, load_function
from dlio_torch.formats.image.options import ImageConfig
from dlio_torch.formats.testing.contract import write

AS_DESCRIBED = "dlio_torch.formats.core.recreation:as_described"
RNG = np.random.default_rng(0)


def recreated(existing: Path, folder: Path, reads: ObservedReads, samples: int) -> tuple[Recreation, Inspection, Path]:
    """Inspects existing files, and generates one like them; returns its recreation, inspection and path."""
    before = inspect_path(str(existing))
    result = recreation(before.format, before.description, reads)
    name = result.format or before.format
    kind = facts(name)
    options: dict[str, Any] = {} if kind.options is None else {kind.option_group: kind.options(**result.options)}
    config = DatasetConfig(format=name, fields=list(result.fields), samples_per_file=samples, **options)
    fmt = create(config, 7)
    folder.mkdir()
    path = write(fmt, folder / f"generated{fmt.suffix}", 0, samples)
    return result, inspect_path(str(path)), path


def sizes_agree(path: Path, generated: Path, within: float = 0.05) -> bool:
    return abs(path.stat().st_size - generated.stat().st_size) <= within * path.stat().st_size


def arrays_of(description: DataDescription) -> list[tuple[Any, ...]]:
    return [(item.name, item.dtype, item.shape, item.chunks, item.compression) for item in description.arrays]


def test_every_function_can_be_loaded() -> None:
    """No format has the function of the format whose facts it extends."""
    names = [kind.name for kind in all_facts() if kind.recreate]
    assert {"hdf5", "parquet", "arrow", "webdataset", "npz", "npy", "csv", "tokens", "imagefolder"} <= set(names)
    assert all(callable(load_function(name, facts(name).recreate)) for name in names)
    for kind in all_facts():
        folder = kind.format.split(":")[0].rpartition(".")[0]
        assert kind.recreate in ("", AS_DESCRIBED) or kind.recreate.startswith(folder), kind.name


@pytest.mark.parametrize("name", formats(["safetensors", "tfrecord", "lmdb", "mds", "indexed_binary", "netcdf"]))
def test_options_that_read_also_generate(name: str, tmp_path: Path) -> None:
    """Also of formats whose files state all that a generated file needs."""
    fmt = create(replace(CONFIGS[name], samples_per_file=7), 1)
    path = write(fmt, tmp_path / f"a{fmt.suffix}", 0, 7)
    assert facts(name).recreate == AS_DESCRIBED
    result, after, _ = recreated(path, tmp_path / "new", observed([path], [], 7), 7)
    assert arrays_of(after.description) == arrays_of(inspect_path(str(path)).description)
    assert not result.differences


@pytest.mark.parametrize("name", formats(["zarr"]))
def test_zarr_chunks_and_codec(name: str, tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    path = tmp_path / "a.zarr"
    group = zarr.open_group(str(path), mode="w")
    codec = zarr.codecs.ZstdCodec(level=1)
    image = group.create_array("image", shape=(40, 16, 16), dtype="float32", chunks=(4, 16, 8), compressors=[codec])
    image[:] = RNG.standard_normal((40, 16, 16), np.float32)
    result, after, _ = recreated(path, tmp_path / "new", observed([path], [], 40), 40)
    assert result.options["compression"] == "zstd"
    assert [item[:4] for item in arrays_of(after.description)] == [("image", "float32", (40, 16, 16), (4, 16, 8))]


def test_a_format_that_generates_no_files_like_these_says_so() -> None:
    with pytest.raises(DataError, match="larcv3 has no options that generate"):
        recreation("larcv3", DataDescription(), observed([]))


def test_hdf5_with_chunks_beside_contiguous_labels(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    images = (RNG.integers(0, 256, (96, 3, 32, 32)) & 0x3F).astype(np.uint8)
    with h5py.File(path, "w") as file:
        file.create_dataset("images", data=images, chunks=(8, 3, 32, 32), compression="gzip", compression_opts=5)
        file["labels"] = RNG.integers(0, 10, 96)
    result, after, generated = recreated(path, tmp_path / "new", observed([path], [], 96), 96)
    assert arrays_of(after.description) == arrays_of(inspect_path(str(path)).description)
    assert result.options["compression_level"] == 5
    assert not result.differences
    assert sizes_agree(path, generated)


def test_hdf5_volumes_of_which_boxes_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    coarse = RNG.integers(0, 256, (4, 8, 8)).astype(np.uint8).repeat(8, 0).repeat(8, 1).repeat(8, 2)
    with h5py.File(path, "w") as file:
        volume = coarse ^ RNG.integers(0, 8, coarse.shape, np.uint8)
        file.create_dataset("raw", data=volume, chunks=(16, 16, 16), compression="gzip")
    reads = observed([path], [], 40, array("", 1, 8, 8, 8))
    result, after, generated = recreated(path, tmp_path / "new", reads, 40)
    assert result.format == "hdf5_crops"
    assert result.options["crop"] == [8, 8, 8]
    assert arrays_of(after.description) == arrays_of(inspect_path(str(path)).description)
    assert sizes_agree(path, generated)


def test_rows_of_hdf5_arrays_are_no_boxes(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = RNG.standard_normal((6, 5, 8), np.float32)
    for shape in ((5, 8), (1, 5, 8), (40,)):  # as they are, with an axis of channels, flattened
        description = inspect_path(str(path)).description
        assert recreation("hdf5", description, observed([path], [], 6, array("0", *shape))).format == ""


def test_parquet_with_dictionaries(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    features = pa.FixedSizeListArray.from_arrays(pa.array(RNG.standard_normal(400 * 64, np.float32)), 64)
    table = pa.table({"features": features, "label": pa.array(RNG.integers(0, 10, 400))})
    pq.write_table(table, path, row_group_size=50)
    result, after, generated = recreated(path, tmp_path / "new", observed([path], [], 400), 400)
    assert result.options | {"row_group_samples": 50, "compression": "snappy", "dictionary": True} == result.options
    assert after.description.details["row_groups"] == 8
    assert sizes_agree(path, generated, 0.1)


def test_arrow_folder_of_a_saved_data_set(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    columns = {"ids": RNG.integers(0, 9, (300, 32), np.int32), "label": RNG.integers(0, 2, 300)}
    datasets.Dataset.from_dict(columns).save_to_disk(tmp_path / "saved")
    (data,) = (tmp_path / "saved").glob("*.arrow")
    reads = observed([data], [], 300, array("ids", 32), array("label"))
    result, after, generated = recreated(tmp_path / "saved", tmp_path / "new", reads, 300)
    assert result.files == 1
    assert list(result.data_files) == [data]  # state.json is not generated
    assert [item.name for item in after.description.fields] == ["ids", "label"]
    assert sizes_agree(data, generated, 0.1)


def test_webdataset_images_as_large_as_the_existing_ones(tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    pytest.importorskip("PIL")
    path = tmp_path / "a.tar"
    with webdataset.TarWriter(str(path)) as shard:
        for number in range(12):
            pixels = RNG.integers(0, 60, (64, 48, 3), np.uint8)
            shard.write({"__key__": f"{number:04d}", "jpg": pixels, "cls": number % 3})
    reads = observed([path], [], None, array("0", 3, 64, 48), array("1"))
    result, after, generated = recreated(path, tmp_path / "new", reads, 12)
    assert result.options["decode"] == "torchrgb"  # the batches are float32
    assert [(item.name, item.shape) for item in result.fields] == [("cls", []), ("jpg", [64, 48, 3])]
    assert after.description.samples == 12
    assert sizes_agree(path, generated, 0.1)


def test_images_have_the_size_of_the_existing_ones_to_a_thousandth(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for number in range(8):
        path = tmp_path / "images" / f"class{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.fromarray(RNG.integers(0, 90, (96, 128, 3), np.uint8)).save(path, quality=90)
    files = sorted((tmp_path / "images").rglob("*.jpg"))
    before = inspect_path(str(tmp_path / "images"))
    result = recreation(before.format, before.description, observed(files, [], 8, array("0", 3, 64, 64)))
    options = ImageConfig(**result.options)
    generated = create(DatasetConfig(format=before.format, image=options, **result.dataset), Config().seed)
    folder = tmp_path / "new"
    folder.mkdir()
    sizes = [write(generated, folder / f"{number}.jpg", number, 1).stat().st_size for number in range(32)]
    mean = np.mean([path.stat().st_size for path in files])
    assert abs(np.mean(sizes) - mean) < mean / 1000
    assert (options.width_mean, options.height_mean, options.size) == (128, 96, 64)
    assert (generated.specs()[0].dtype, generated.specs()[0].shape) == (np.float32, (3, 64, 64))  # as in the batches


def test_npz_archives_with_compressed_members(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    image = RNG.integers(0, 16, (40, 40, 40)).astype(np.int16)
    np.savez_compressed(path, image=image, mask=np.zeros((40, 40, 40), np.uint8))
    result, after, generated = recreated(path, tmp_path / "new", observed([path], [], 1), 1)
    assert result.samples_per_file == 1
    assert sizes_agree(path, generated, 0.15)
    assert [(item.name, item.shape) for item in after.description.arrays] == [
        ("image", (40, 40, 40)),
        ("mask", (40, 40, 40)),
    ]


def test_csv_with_a_header(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    path = tmp_path / "a.csv"
    pd.DataFrame(RNG.standard_normal((300, 12)).round(4), columns=[f"x{i}" for i in range(12)]).to_csv(
        path, index=False
    )
    result, after, generated = recreated(path, tmp_path / "new", observed([path], [], 300), 300)
    assert result.options["header"] is True
    assert after.description.details["columns"] == 12
    assert sizes_agree(path, generated)


@pytest.mark.parametrize(
    ("dtype", "delivered"), [("float32", (np.float32, (3, 96, 128))), ("uint8", (np.uint8, (96, 128, 3)))]
)
def test_images_that_keep_their_size_can_be_stacked(dtype: str, delivered: tuple[Any, ...], tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for number in range(4):
        path = tmp_path / "images" / f"class{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.fromarray(RNG.integers(0, 90, (96, 128, 3), np.uint8)).save(path)
    files = sorted((tmp_path / "images").rglob("*.jpg"))
    before = inspect_path(str(tmp_path / "images"))
    shape = (3, 96, 128) if dtype == "float32" else (96, 128, 3)
    result = recreation(before.format, before.description, observed(files, [], 4, array("0", *shape, dtype=dtype)))
    config = DatasetConfig(
        format=before.format, fields=list(result.fields), image=ImageConfig(**result.options), **result.dataset
    )
    (spec,) = [spec for spec in create(config, 7).specs() if spec.name == "image"]
    assert (spec.dtype, spec.shape) == delivered
    validate(Config(recipe="test", dataset=config, train=TrainConfig(batch_size=4)))
