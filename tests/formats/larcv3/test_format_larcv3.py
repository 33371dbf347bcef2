"""larcv3's layout: the contract, the facts of a real file, sizes and offsets of stored chunks, and damage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal

import h5py
import numpy as np
import pytest
from real_data import real_input

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.batch import BatchBuffer, Sample, samples_of
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.larcv3.format import Larcv3Format
from dlio_torch.formats.larcv3.options import Larcv3Config, ProducerConfig
from dlio_torch.formats.larcv3.size_fit import LEVELS
from dlio_torch.formats.larcv3.writer import UNREAD
from dlio_torch.formats.testing.contract import (
    SEED,
    FormatContract,
    assert_equal,
    check_batch,
    is_open,
    read,
    refusal,
    write,
)

LABEL = ProducerConfig("sparse2d_sbnd_cosmicseg", "label", 2742, 175)
WIRE = ProducerConfig("sparse2d_sbndwire", "charge", 6641, 124)
COSMIC = Larcv3Config(producers=[LABEL, WIRE])
# The same densities of voxels in smaller images.
SMALL = replace(COSMIC, image_shape=[512, 320], voxels_mean=1500, voxels_stdev=600)
NAMES = [LABEL.name, WIRE.name]


def config(options: Larcv3Config) -> DatasetConfig:
    return DatasetConfig(format="larcv3", larcv3=options)


def make(options: Larcv3Config = SMALL, seed: int = 1) -> Larcv3Format:
    return Larcv3Format(config(options), seed)


class TestLarcv3(FormatContract):
    configs: ClassVar[Mapping[str, DatasetConfig]] = {
        "cosmic": config(SMALL),
        "small-units": config(replace(SMALL, merge_events=2)),
        "short-chunks": config(replace(SMALL, voxels_chunk=100, table_chunk=3, extents_chunk=2)),
        "long-chunks": config(replace(SMALL, voxels_chunk=2000, voxels_mean=2000)),
        "one-producer-two-images": config(replace(SMALL, producers=[WIRE], images=2)),
        "stored": config(replace(SMALL, producers=[replace(WIRE, stored_chunk_mean=12000)], compression_level=0)),
        "small-caches": config(
            replace(SMALL, chunk_cache_bytes=0, table_cache_chunks=1, metadata_cache_bytes=1024, opens=1)
        ),
    }

    fits: ClassVar[dict[str, Mapping[str, float]]] = {}

    def make(self, config: DatasetConfig, seed: int = SEED) -> Format:
        fmt = super().make(config, seed)
        key = repr(config.larcv3)
        if key not in self.fits:  # half a second
            self.fits[key] = fmt.parameters()
        fmt.use_parameters(self.fits[key])
        return fmt

    def test_stored_bytes_are_estimated(self, config: DatasetConfig, tmp_path: Path) -> None:
        # Of files as small as these, headers and tables are a large part; the estimate is of the voxels.
        fmt = self.make(config)
        with h5py.File(self.written(fmt, tmp_path), "r") as file:
            arrays = [file[f"Data/{producer.name}_group/voxels"] for producer in config.larcv3.producers]
            size = sum(array.id.get_storage_size() for array in arrays)
            filled = arrays[0].shape[0] / (arrays[0].id.get_num_chunks() * arrays[0].chunks[0])
        if config.larcv3.compression_level:
            assert fmt.stored_bytes() * self.num_samples == pytest.approx(size * filled, rel=0.25)
        else:  # a level that cannot give the sizes that were asked for
            assert size > fmt.stored_bytes() * self.num_samples


# --- layout ------------------------------------------------------------------------------------------

# Read off the application's own file with h5dump: members with offsets, record size, chunk length.
RECORDS = {
    "extents": ({"first": ("<u8", 0), "N": ("<u4", 8)}, 16, 10),
    "voxel_extents": ({"first": ("<u8", 0), "N": ("<u4", 8), "ID": ("<u4", 12)}, 16, 100),
    "image_meta": (
        {
            "valid": ("|u1", 0),
            "projection_id": ("<u8", 8),
            "image_sizes": (("<f8", (2,)), 16),
            "number_of_voxels": (("<u8", (2,)), 32),
            "origin": (("<f8", (2,)), 48),
        },
        72,
        100,
    ),
    "voxels": ({"id": ("<u8", 0), "value": ("<f4", 8)}, 16, 1000),
}
EVENT_ID = ({"run": ("<i8", 0), "subrun": ("<i8", 8), "event": ("<i8", 16)}, 24, 100)
ARRAYS = {
    "Events/event_id": EVENT_ID,
    **{f"Data/{name}_group/{table}": record for name in NAMES for table, record in RECORDS.items()},
}


def members(dtype: np.dtype[Any]) -> dict[str, tuple[Any, int]]:
    assert dtype.fields is not None
    return {
        name: (field[0].str if field[0].subdtype is None else (field[0].base.str, field[0].shape), field[1])
        for name, field in dtype.fields.items()
    }


def real_file() -> Path:
    """The application's own example file, where there is one."""
    return real_input("cosmic_tagging_light.h5")


@pytest.fixture(scope="module")
def small_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(make(), tmp_path_factory.mktemp("larcv3") / "small.h5", 0, 13)


@pytest.fixture(params=["generated", "real"])
def cosmic_file(request: pytest.FixtureRequest, small_file: Path) -> Path:
    return real_file() if request.param == "real" else small_file


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_have_larcv3_s_records_chunks_and_filters(name: str, cosmic_file: Path) -> None:
    fields, itemsize, chunk = ARRAYS[name]
    with h5py.File(cosmic_file, "r") as file:
        array = file[name]
        assert members(array.dtype) == fields
        assert array.dtype.itemsize == itemsize
        assert array.chunks == (chunk,)
        assert array.maxshape == (None,)
        plist = array.id.get_create_plist()
        assert [plist.get_filter(number)[0] for number in range(plist.get_nfilters())] == [h5py.h5z.FILTER_DEFLATE]
        assert array.compression_opts == 1


def test_records_are_stored_with_the_types_of_the_real_file(small_file: Path) -> None:
    with h5py.File(small_file, "r") as made, h5py.File(real_file(), "r") as real:
        for name in ARRAYS:
            assert made[name].id.get_type().equal(real[name].id.get_type()), name
            # The version of the index decides about the sizes of its nodes.
            assert made[name].id.get_create_plist().get_layout() == real[name].id.get_create_plist().get_layout()


def test_tables_refer_to_each_other(cosmic_file: Path) -> None:
    with h5py.File(cosmic_file, "r") as file:
        events = file["Events/event_id"].shape[0]
        for name in NAMES:
            group = file[f"Data/{name}_group"]
            assert group["extents"][:].tolist() == [(event * 3, 3) for event in range(events)]
            images = group["voxel_extents"][:]
            assert images["ID"].tolist() == [0, 1, 2] * events
            assert images["first"].tolist() == np.concatenate([[0], np.cumsum(images["N"])[:-1]]).tolist()
            assert group["voxels"].shape == (int(images["N"].sum()),)
            assert group["image_meta"].shape == (3 * events,)
            meta = group["image_meta"][:]
            assert meta["projection_id"].tolist() == [0, 1, 2] * events
            assert meta["valid"].all()
            for image in images[:6]:
                ids = group["voxels"][image["first"] : image["first"] + image["N"]]["id"]
                assert (np.diff(ids.astype(np.int64)) > 0).all()
                assert ids[-1] < meta["number_of_voxels"][0].prod()


def test_both_producers_have_the_same_voxels(cosmic_file: Path) -> None:
    with h5py.File(cosmic_file, "r") as file:
        label, wire = (file[f"Data/{name}_group/voxels"] for name in NAMES)
        assert (label["id"] == wire["id"]).all()
        assert set(np.unique(label["value"])) == {0, 1, 2}


def test_the_reader_gives_what_slicing_gives(cosmic_file: Path) -> None:
    fmt = make(COSMIC)
    with closing(fmt.open(cosmic_file)) as reader, h5py.File(cosmic_file, "r") as file:
        assert reader.num_samples == fmt.inspect(cosmic_file).num_samples == file["Events/event_id"].shape[0]
        for event in [*range(reader.num_samples), 0]:
            ((index, sample),) = samples_of(read(fmt, reader, [event]), fmt.specs())
            assert index == event
            assert sample.pop("event_id").tobytes() == file["Events/event_id"][event].tobytes()
            for name in NAMES:
                first, count = file[f"Data/{name}_group/extents"][event]
                rows = slice(first, first + count)
                extents = file[f"Data/{name}_group/voxel_extents"][rows]
                voxels = slice(extents["first"][0], extents["first"][-1] + extents["N"][-1])
                want = {
                    "voxel_extents": extents,
                    "image_meta": file[f"Data/{name}_group/image_meta"][rows],
                    "voxels": file[f"Data/{name}_group/voxels"][voxels],
                }
                for table, array in want.items():
                    got = sample.pop(f"{name}/{table}")
                    assert got.dtype == array.dtype
                    assert array.dtype.names is not None
                    assert all((got[name] == array[name]).all() for name in array.dtype.names)
            assert not sample


# --- sizes and offsets of stored chunks --------------------------------------------------------------------


@pytest.fixture(scope="module")
def cosmic_64(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 events as the application's: 7,400 chunks."""
    return write(make(replace(COSMIC, merge_events=20)), tmp_path_factory.mktemp("larcv3") / "cosmic.h5", 0, 64)


def stored(path: Path, producer: str) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and sizes of the full chunks of voxels, in the order of the array."""
    with h5py.File(path, "r") as file:
        array = file[f"Data/{producer}_group/voxels"]
        found: list[tuple[int, int, int]] = []
        array.id.chunk_iter(lambda chunk: found.append((chunk.chunk_offset[0], chunk.byte_offset, chunk.size)))
        found.sort()
        assert [start for start, _, _ in found] == list(range(0, array.shape[0], 1000))
        offsets, sizes = np.array(found)[: array.shape[0] // 1000, 1:].T
        return offsets, sizes


@pytest.mark.parametrize("producer", [LABEL, WIRE], ids=["label", "wire"])
def test_stored_chunks_have_the_published_sizes(producer: ProducerConfig, cosmic_64: Path) -> None:
    _, sizes = stored(cosmic_64, producer.name)
    assert sizes.mean() == pytest.approx(producer.stored_chunk_mean, rel=0.03)
    assert sizes.std() == pytest.approx(producer.stored_chunk_stdev, rel=0.25)


def test_sizes_that_were_asked_for_are_met(tmp_path: Path) -> None:
    producers = [ProducerConfig("a", "label", 2600, 170), ProducerConfig("b", "charge", 5000, 300)]
    path = write(make(replace(COSMIC, producers=producers)), tmp_path / "file.h5", 0, 24)
    for producer in producers:
        _, sizes = stored(path, producer.name)
        assert sizes.mean() == pytest.approx(producer.stored_chunk_mean, rel=0.04)
        assert sizes.std() == pytest.approx(producer.stored_chunk_stdev, rel=0.4)


@pytest.mark.parametrize("kind", ["label", "charge"])
def test_a_published_distribution_of_sizes_is_met(kind: Literal["label", "charge"], tmp_path: Path) -> None:
    # A long tail below, as the chunks of the published run have it: no mean and spread would tell.
    below = [-420, -310, -210, -130, -80, -50, -25, 0, 20, 40, 65, 95, 125, 155, 200]
    quantiles = [(2420.0 if kind == "label" else 6380.0) + size for size in below]
    producer = ProducerConfig("a", kind, stored_chunk_quantiles=quantiles)
    options = replace(COSMIC, producers=[producer], compression_level=4, image_shares=[0.4, 0.4, 0.2])
    _, sizes = stored(write(make(options), tmp_path / "file.h5", 0, 60), "a")
    for level, wanted in list(zip(LEVELS, quantiles, strict=True))[2:-1]:
        assert np.quantile(sizes, level) == pytest.approx(wanted, abs=35), level


def test_images_of_an_event_grow_together(tmp_path: Path) -> None:
    options = replace(SMALL, image_shares=[0.41, 0.41, 0.18], unread_bytes=70_000)
    path = write(make(options), tmp_path / "file.h5", 0, 40)
    with h5py.File(path, "r") as file:
        counts = file[f"Data/{WIRE.name}_group/voxel_extents"]["N"].reshape(40, 3)
        unread = file[UNREAD]
        assert unread.id.get_storage_size() == pytest.approx(40 * 70_000, abs=65536)
    events = counts.sum(1)
    assert counts.sum(0) / events.sum() == pytest.approx([0.41, 0.41, 0.18], abs=0.02)
    assert events.mean() == pytest.approx(3 * SMALL.voxels_mean, rel=0.15)
    assert np.corrcoef(counts[:, 0], counts[:, 1])[0, 1] > 0.9


def test_tables_lie_apart_from_each_other(tmp_path: Path) -> None:
    # Between the chunks that a reader goes through lie megabytes, as in the published run.
    events = 40
    path = write(make(replace(SMALL, unread_bytes=131_072)), tmp_path / "file.h5", 0, events)
    with h5py.File(path, "r") as file:
        label, wire = (f"Data/{name}_group" for name in NAMES)

        def last(name: str) -> int:
            array = file[name].id
            return int(array.get_chunk_info(array.get_num_chunks() - 1).byte_offset)

        names = ["Events/event_id", f"{wire}/image_meta", f"{label}/extents", f"{label}/voxels", f"{wire}/voxels"]
        order = [last(name) for name in names]
    assert order == sorted(order)
    assert order[1] - order[0] > 1 << 20
    assert order[2] - order[1] > 1 << 20
    assert order[3] - order[2] > 1 << 20


def test_inspect_tells_the_sizes(cosmic_64: Path) -> None:
    info = make(COSMIC).inspect(cosmic_64)
    for producer in (LABEL, WIRE):
        details = info.details[producer.name]
        offsets, sizes = stored(cosmic_64, producer.name)
        assert details["chunk_rows"] == 1000
        assert details["voxels"] // 1000 == len(offsets)
        assert details["stored_chunk_mean_bytes"] == pytest.approx(sizes.mean(), rel=0.01)
        assert details["stored_chunk_stdev_bytes"] == pytest.approx(sizes.std(), rel=0.1)


def test_stored_bytes_tell_the_size_of_a_file(cosmic_64: Path) -> None:
    assert make(COSMIC).stored_bytes() * 64 == pytest.approx(cosmic_64.stat().st_size, rel=0.1)


def test_images_are_as_large_as_the_application_s(cosmic_64: Path) -> None:
    with h5py.File(cosmic_64, "r") as file:
        counts = file[f"Data/{WIRE.name}_group/voxel_extents"]["N"]
    assert counts.mean() == pytest.approx(COSMIC.voxels_mean, rel=0.1)
    assert counts.std() == pytest.approx(COSMIC.voxels_stdev, rel=0.15)


@pytest.mark.parametrize("producer", NAMES)
def test_chunks_of_a_producer_lie_back_to_back(producer: str, cosmic_64: Path) -> None:
    offsets, sizes = stored(cosmic_64, producer)
    follows = offsets[1:] == offsets[:-1] + sizes[:-1]
    # All but those before which the library put a node of the index, one for each 32 to 64 chunks.
    assert follows.mean() >= 0.9
    assert (np.diff(offsets) > 0).all()


def test_merge_events_decides_where_the_producers_alternate(cosmic_64: Path) -> None:
    with h5py.File(cosmic_64, "r") as file:
        ends = np.cumsum(file[f"Data/{WIRE.name}_group/voxel_extents"]["N"].reshape(64, 3).sum(1))
    (label, _), (wire, _) = (stored(cosmic_64, name) for name in NAMES)
    # Chunks of each unit of 20 events: one that straddles two units belongs to the second.
    units = [slice(ends[low - 1] // 1000 if low else 0, ends[min(low + 20, 64) - 1] // 1000) for low in (0, 20, 40, 60)]
    order = [offsets[unit] for unit in units for offsets in (label, wire)]
    assert sum(map(len, order)) == 2 * len(label)
    for before, after in pairwise(order):
        assert before.max() < after.min()


# --- content --------------------------------------------------------------------------------------------


def change_voxel_id(sample: Sample) -> None:
    sample[f"{WIRE.name}/voxels"]["id"][17] += 1


def change_voxel_value(sample: Sample) -> None:
    sample[f"{LABEL.name}/voxels"]["value"][3] += 1


def change_meta(sample: Sample) -> None:
    sample[f"{WIRE.name}/image_meta"]["origin"][1, 1] = 0.5


def change_extents(sample: Sample) -> None:
    sample[f"{LABEL.name}/voxel_extents"]["N"][0] -= 1


def change_start(sample: Sample) -> None:
    sample[f"{LABEL.name}/voxel_extents"]["first"][2] += 1


def lose_a_voxel(sample: Sample) -> None:
    sample[f"{WIRE.name}/voxels"] = sample[f"{WIRE.name}/voxels"][:-1]


def change_event(sample: Sample) -> None:
    sample["event_id"]["event"] += 1


@pytest.mark.parametrize(
    ("change", "array"),
    [
        (change_voxel_id, f"{WIRE.name}/voxels"),
        (change_voxel_value, f"{LABEL.name}/voxels"),
        (change_meta, f"{WIRE.name}/image_meta"),
        (change_extents, f"{LABEL.name}/voxel_extents"),
        (change_start, f"{LABEL.name}/voxel_extents"),
        (lose_a_voxel, f"{WIRE.name}/voxels"),
        (change_event, "event_id"),
    ],
)
def test_a_changed_sample_is_noticed(change: Callable[[Sample], None], array: str, small_file: Path) -> None:
    fmt = make()
    with closing(fmt.open(small_file)) as reader:
        ((_, sample),) = samples_of(read(fmt, reader, [5]), fmt.specs())
    assert fmt.differences(5, sample) is None
    change(sample)
    difference = fmt.differences(5, sample)
    assert difference is not None
    assert difference.startswith(f"{array}: ")


def test_other_samples_differ() -> None:
    fmt = make()
    assert fmt.differences(1, fmt.expected(2)) is not None


def test_parameters_of_an_earlier_fit_decide_about_the_content() -> None:
    one, two = make(), make()
    parameters = {name: value * 0.5 for name, value in one.parameters().items()}
    two.use_parameters(parameters)
    assert two.parameters() == parameters
    assert one.differences(0, two.expected(0)) is not None
    one.use_parameters(parameters)
    assert one.differences(0, two.expected(0)) is None


def test_images_without_voxels_are_read(tmp_path: Path) -> None:
    fmt = make(replace(SMALL, image_shape=[1, 3]))
    path = write(fmt, tmp_path / "file.h5", 0, 4)
    assert fmt.inspect(path).num_samples == 4
    with closing(fmt.open(path)) as reader:
        batch = read(fmt, reader, [3, 1])
    check_batch(fmt, batch, [3, 1])
    assert batch[f"{WIRE.name}/voxels:lengths"].tolist() == [0, 0]
    assert batch[f"{WIRE.name}/voxels"].shape == (0, 16)


# --- identity of a data set -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        {"producers": [LABEL]},
        {"producers": [LABEL, replace(WIRE, stored_chunk_mean=6000)]},
        {"images": 2},
        {"image_shape": [512, 321]},
        {"voxels_mean": 1501.0},
        {"voxels_stdev": 601.0},
        {"extents_chunk": 11},
        {"table_chunk": 101},
        {"voxels_chunk": 999},
        {"compression_level": 2},
        {"merge_events": 5},
        {"image_shares": [0.5, 0.3, 0.2]},
        {"unread_bytes": 1000},
        {"producers": [LABEL, replace(WIRE, stored_chunk_quantiles=[float(6000 + i) for i in range(15)])]},
    ],
    ids=str,
)
def test_options_that_change_bytes_change_the_identity(changed: dict[str, Any]) -> None:
    assert make(replace(SMALL, **changed)).layout_options() != make().layout_options()


@pytest.mark.parametrize(
    "changed",
    [
        {"chunk_cache_bytes": 0},
        {"table_cache_chunks": 1},
        {"metadata_cache_bytes": 4096},
        {"cold_events": 9},
        {"opens": 1},
    ],
    ids=str,
)
def test_options_of_reading_leave_the_identity_alone(changed: dict[str, Any]) -> None:
    assert make(replace(SMALL, **changed)).layout_options() == make().layout_options()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"producers": []}, "dataset.larcv3.producers is empty"),
        ({"producers": [WIRE, WIRE]}, f"dataset.larcv3.producers names '{WIRE.name}' twice"),
        ({"producers": [replace(WIRE, name="a/b")]}, "name='a/b' is not a valid name of an HDF5 group"),
        ({"producers": [replace(WIRE, name="")]}, "name='' is not a valid name of an HDF5 group"),
        ({"image_shape": [5]}, "dataset.larcv3.image_shape=[5] is not the shape"),
        ({"image_shape": [5, 0]}, "dataset.larcv3.image_shape=[5, 0] is not the shape"),
        (
            {"metadata_cache_bytes": 1},
            "dataset.larcv3.metadata_cache_bytes=1 is outside of the sizes that HDF5 accepts",
        ),
        (
            {"producers": [replace(WIRE, stored_chunk_quantiles=[6000.0, 5000.0])]},
            f"stored_chunk_quantiles of {WIRE.name} must be 15 non-decreasing sizes, not [6000.0, 5000.0]",
        ),
        (
            {"producers": [replace(WIRE, stored_chunk_quantiles=[float(6000 - i) for i in range(15)])]},
            f"stored_chunk_quantiles of {WIRE.name} must be 15 non-decreasing sizes",
        ),
        (
            {"image_shares": [0.5, 0.5]},
            "dataset.larcv3.image_shares=[0.5, 0.5] must have one positive number for each of 3 images",
        ),
        (
            {"image_shares": [0.5, 0.5, 0.0]},
            "dataset.larcv3.image_shares=[0.5, 0.5, 0.0] must have one positive number for each of 3 images",
        ),
        (
            {"metadata_cache_bytes": 1 << 30},
            "dataset.larcv3.metadata_cache_bytes=1073741824 is outside of the sizes that HDF5 accepts",
        ),
    ],
)
def test_options_that_cannot_work_are_named(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make(replace(SMALL, **changed))
    assert words in str(caught.value)


# --- files that do not fit --------------------------------------------------------------------------------

GROUP = f"Data/{WIRE.name}_group"


def copy_of(small_file: Path, folder: Path) -> Path:
    path = folder / "file.h5"
    path.write_bytes(small_file.read_bytes())
    return path


def replaced(file: h5py.File, name: str, content: Any) -> None:
    del file[name]
    file[name] = content


def both(fmt: Larcv3Format, path: Path) -> str:
    """What inspect() says; opening must refuse as well, and with the same words."""
    line = refusal(lambda: fmt.inspect(path), closed=path)
    assert refusal(lambda: fmt.open(path), closed=path) == line
    assert str(path) in line
    return line


@pytest.mark.parametrize("name", [*ARRAYS, "Events", "Data", GROUP])
def test_what_is_missing_is_named(name: str, small_file: Path, tmp_path: Path) -> None:
    path = copy_of(small_file, tmp_path)
    with h5py.File(path, "r+") as file:
        del file[name]
    line = both(make(), path)
    assert f"has no array '{name}" in line
    assert "contains: " in line


def test_another_producer_is_named_with_those_that_are_there(small_file: Path) -> None:
    line = both(make(replace(SMALL, producers=[replace(WIRE, name="sparse2d_other")])), small_file)
    assert "has no array 'Data/sparse2d_other_group/extents'" in line
    assert f"group /Data contains: {LABEL.name}_group, {WIRE.name}_group" in line


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("dtype", ["<f4", [("first", "<u8"), ("N", "<u8")], [("id", "<u8"), ("value", "<f8")]])
def test_another_record_type_is_named(name: str, dtype: Any, small_file: Path, tmp_path: Path) -> None:
    path = copy_of(small_file, tmp_path)
    with h5py.File(path, "r+") as file:
        replaced(file, name, np.zeros(len(file[name]), dtype))
    line = both(make(), path)
    assert f"{name} holds " in line
    assert "replace the file by a larcv3 file" in line


@pytest.mark.parametrize("events", [12, 14, 0])
def test_extents_that_do_not_fit_the_events(events: int, small_file: Path, tmp_path: Path) -> None:
    path = copy_of(small_file, tmp_path)
    with h5py.File(path, "r+") as file:
        file[f"{GROUP}/extents"].resize((events,))
    assert f"{GROUP}/extents has {events} rows, but the file has 13 events" in both(make(), path)


@pytest.mark.parametrize("table", ["voxel_extents", "image_meta", "voxels"])
def test_a_table_that_ends_early_is_named(table: str, small_file: Path, tmp_path: Path) -> None:
    path = copy_of(small_file, tmp_path)
    with h5py.File(path, "r+") as file:
        array = file[f"{GROUP}/{table}"]
        rows = array.shape[0] - 1
        array.resize((rows,))
    fmt = make()
    for attempt in (lambda: fmt.inspect(path), lambda: read_event(fmt, path, 12)):
        assert f"/{GROUP}/{table} has {rows} rows, but rows " in refusal(attempt)
    read_event(fmt, path, 11)
    assert not is_open(path)


def read_event(fmt: Larcv3Format, path: Path, event: int) -> None:
    with closing(fmt.open(path)) as reader:
        read(fmt, reader, [event])


@pytest.mark.parametrize(
    ("table", "member", "value"),
    [
        ("extents", "first", (1 << 64) - 1),
        ("extents", "N", (1 << 32) - 1),
        ("voxel_extents", "first", 1 << 63),
        ("voxel_extents", "N", (1 << 32) - 1),
    ],
)
def test_damaged_indices_are_no_crash(table: str, member: str, value: int, small_file: Path, tmp_path: Path) -> None:
    path = copy_of(small_file, tmp_path)
    with h5py.File(path, "r+") as file:
        array = file[f"{GROUP}/{table}"]
        rows = array[:]
        rows[member][-1] = value
        array[:] = rows
    fmt = make()
    assert str(path) in refusal(lambda: fmt.inspect(path))
    assert str(path) in refusal(lambda: read_event(fmt, path, 12))


def test_a_damaged_chunk_is_an_error_of_its_events_alone(small_file: Path, tmp_path: Path) -> None:
    path = copy_of(small_file, tmp_path)
    with h5py.File(path, "r") as file:
        chunk = file[f"{GROUP}/voxels"].id.get_chunk_info(0)
    with path.open("r+b") as raw:
        raw.seek(chunk.byte_offset)
        raw.write(b"\xff" * chunk.size)
    fmt = make()
    fmt.inspect(path)
    with closing(fmt.open(path)) as reader:
        line = refusal(lambda: read(fmt, reader, [0]))
        assert f"{path}: rows 0 to " in line
        assert f"of /{GROUP}/voxels cannot be read" in line
        check_batch(fmt, read(fmt, reader, [1, 12]), [1, 12])


def test_a_file_without_events_is_counted(tmp_path: Path, small_file: Path) -> None:
    path = copy_of(small_file, tmp_path)
    with h5py.File(path, "r+") as file:
        for name in ARRAYS:
            file[name].resize((0,))
    assert make().inspect(path).num_samples == 0


def test_tables_that_are_not_chunked_are_read(tmp_path: Path, small_file: Path) -> None:
    path = copy_of(small_file, tmp_path)
    with h5py.File(path, "r+") as file:
        for name in ARRAYS:
            replaced(file, name, file[name][:])
    fmt = make(replace(SMALL, table_cache_chunks=2))
    assert fmt.inspect(path).details[WIRE.name]["chunk_rows"] is None
    with closing(fmt.open(path)) as reader, closing(make().open(small_file)) as other:
        buffers = [BatchBuffer(fmt.specs(), range(13)) for _ in range(2)]
        reader.read(0, 13, buffers[0], 0)
        other.read(0, 13, buffers[1], 0)
        assert_equal(buffers[0].finish(), buffers[1].finish())
