"""Descriptions of HDF5 files of unknown origin: what is read, what is named and why, and what the user is asked."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from decoupled_data import assert_same, decoupled, faithful
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from dlio_torch.config.compose import compose
from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.data.dataset.file_counts import FileCounts
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.errors import DataError
from dlio_torch.formats.core.array_specs import DTYPES
from dlio_torch.formats.core.data_description import DataDescription
from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.formats.core.recognition import recognised_file
from dlio_torch.formats.hdf5.describe import describe
from dlio_torch.formats.hdf5.format import Hdf5Format
from dlio_torch.formats.hdf5.options import Hdf5Config
from dlio_torch.formats.hdf5.reader import EXTENTS
from dlio_torch.formats.testing.contract import read, write

ROWS = 12
_NO_FILTER = 40_001  # a number that nobody has registered


def described(folder: Path, **content: Any) -> DataDescription:
    """The description of a file with these arrays."""
    path = folder / "file.h5"
    with h5py.File(path, "w") as file:
        for name, array in content.items():
            file[name] = array
    return describe(path)


def notes(description: DataDescription) -> dict[str, str]:
    return {array.name: array.note for array in description.arrays if array.note}


# --- arrays of a sample ---------------------------------------------------------------------------------


def test_arrays_with_equal_first_axes_are_fields(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        images = np.zeros((ROWS, 8, 8, 3), np.uint8)
        file.create_dataset("images", data=images, chunks=(2, 8, 8, 3), compression="gzip", shuffle=True)
        file["labels"] = np.arange(ROWS)
        file["names"] = ["cat", "dog"]
        file.attrs["camera"] = "front"
    description = describe(path)
    assert description.fields == (FieldConfig("images", "uint8", [8, 8, 3]), FieldConfig("labels", "int64"))
    assert description.samples == ROWS
    assert description.questions == ()
    images, labels, names = description.arrays
    assert (images.dtype, images.shape, images.chunks) == ("uint8", (ROWS, 8, 8, 3), (2, 8, 8, 3))
    assert images.compression == "shuffle, gzip 4"
    with h5py.File(path) as file:
        assert images.stored_bytes == file["images"].id.get_storage_size()
    assert labels.note == ""
    assert (names.dtype, names.shape) == ("string (variable length)", (2,))
    assert "no tensor holds strings" in names.note


def test_the_chunk_cache_is_that_of_the_installed_library(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file.create_dataset("a", data=np.zeros((ROWS, 4)), chunks=(2, 4))
    with h5py.File(tmp_path / "file.h5") as file:
        cache = file.id.get_access_plist().get_cache()[2]
    options = describe(tmp_path / "file.h5").options
    assert options.get("chunk_cache_bytes", Hdf5Config().chunk_cache_bytes) == cache
    assert described(tmp_path, a=np.zeros((ROWS, 4))).options == {}


def test_a_shorter_array_beside_the_samples_is_named(tmp_path: Path) -> None:
    description = described(tmp_path, images=np.zeros((ROWS, 4)), labels=np.zeros(ROWS), mean=np.zeros(4))
    assert [field.name for field in description.fields] == ["images", "labels"]
    assert notes(description) == {"mean": "its first axis is 4, that of the samples 12"}


@pytest.mark.parametrize(
    ("content", "sets"),
    [
        ({"images": np.zeros((ROWS, 4)), "mean": np.zeros(4)}, [["images"], ["mean"]]),
        (
            {"test/x": np.zeros((3, 2)), "test/y": np.zeros(3), "train/x": np.zeros((9, 2)), "train/y": np.zeros(9)},
            [["train/x", "train/y"], ["test/x", "test/y"]],
        ),
        (
            {"X_test": np.zeros((5, 2)), "X_train": np.zeros((5, 2)), "y_test": np.zeros(5), "y_train": np.zeros(5)},
            [["X_train", "y_train"], ["X_test", "y_test"]],
        ),
    ],
)
def test_several_sets_of_samples_are_asked_for(content: dict[str, Any], sets: list[list[str]], tmp_path: Path) -> None:
    description = described(tmp_path, **content)
    assert description.fields == ()
    assert description.samples is None
    (question,) = description.questions
    for names, line in zip(sets, description.notes, strict=True):
        answer = line.partition(": dataset.fields")[2]
        config = compose([f"dataset.path={tmp_path / 'file.h5'}", f"dataset.fields{answer}"]).config
        assert [field.name for field in config.dataset.fields] == names
        assert Hdf5Format(config.dataset, 1).inspect(tmp_path / "file.h5").num_samples == len(content[names[0]])
    assert question.setting in description.notes[0]
    assert f"{sets[0][0]}" in question.problem


def test_one_group_per_sample_is_named(tmp_path: Path) -> None:
    content = {f"sample_{i:04}/image": np.zeros((8, 8)) for i in range(5)}
    content |= {f"sample_{i:04}/label": np.array(i) for i in range(5)}
    description = described(tmp_path, **content)
    assert description.fields == ()
    assert description.questions == ()
    assert "5 arrays or groups differ in a number only (sample_#/image)" in description.notes[0]
    assert "stack them into one array per field" in description.notes[0]


def test_numbered_arrays_of_a_sample_are_fields(tmp_path: Path) -> None:
    content = {"image": np.zeros((ROWS, 4)), **{f"labels_{i}": np.zeros(ROWS) for i in range(4)}}
    assert len(described(tmp_path, **content).fields) == 5


def test_our_arrays_of_variable_length_are_described(tmp_path: Path) -> None:
    fields = [FieldConfig("points", "float32", [3], length_mean=100, length_stdev=30), FieldConfig("label", "int32")]
    fmt = Hdf5Format(DatasetConfig(format="hdf5", fields=fields), 1)
    path = write(fmt, tmp_path / "file.h5", 0, 9)
    description = describe(path)
    label, points = description.fields
    assert (label.name, points.name, points.shape, points.length_stdev) == ("label", "points", [3], 0)
    assert description.samples == 9
    assert notes(description) == {"points_extents": "rows of each sample in points"}
    again = Hdf5Format(DatasetConfig(format="hdf5", fields=[points, label]), 1)
    reader = again.open(path)
    assert read(again, reader, [3, 5])["points"].numpy().tobytes() == b"".join(
        fmt.expected(sample)["points"].tobytes() for sample in (3, 5)
    )
    reader.close()


@pytest.mark.parametrize("options", [{}, {"chunks": (5, 2, 3), "compression": "gzip"}])
def test_big_endian_elements_are_turned(options: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    content = np.arange(ROWS * 6, dtype=np.float32).reshape(ROWS, 2, 3)
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=content.astype(">f4"), **options)
    description = describe(path)
    assert description.fields == (FieldConfig("a", "float32", [2, 3]),)
    assert description.notes[0] == "a: elements in foreign byte order, which are turned after the read"
    assert description.arrays[0].dtype == ">f4"
    for select in ([], [1]):
        fields = [FieldConfig("a", "float32", [2, 3], select=select)]
        fmt = Hdf5Format(DatasetConfig(format="hdf5", fields=fields), 1)
        reader = fmt.open(path)
        got = read(fmt, reader, [7, 2])["a"].numpy()
        reader.close()
        wanted = content[[7, 2]][:, select or [0, 1]]
        assert got.tobytes() == wanted.tobytes()
        manifest = Manifest("train", 0, FileCounts([ROWS]), tmp_path, ["file.h5"], ".h5")
        sampler = BatchSampler(SamplerSpec(batch_size=4, order="shuffled", seed=3), num_samples=ROWS)
        with closing(decoupled(fmt, manifest, sampler, verify=False)) as engine:
            for want, batch in zip(faithful(fmt, manifest, sampler).epoch(0), engine.epoch(0), strict=True):
                assert_same(want, batch)


# --- what no tensor holds ---------------------------------------------------------------------------------


def _low_level(kind: Callable[[], Any]) -> Callable[[h5py.File], None]:
    def create(file: h5py.File) -> None:
        h5py.h5d.create(file.id, b"a", kind(), h5py.h5s.create_simple((ROWS,)))

    return create


def _bfloat16() -> Any:
    kind = h5py.h5t.IEEE_F16LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)
    kind.set_ebias(127)
    return kind


def _twenty_bits() -> Any:
    kind = h5py.h5t.STD_I32LE.copy()
    kind.set_precision(20)
    return kind


def _created(*arguments: Any, **options: Any) -> Callable[[h5py.File], None]:
    return lambda file: file.create_dataset("a", *arguments, **options) and None


UNREAD: dict[str, tuple[Callable[[h5py.File], Any], str, str]] = {
    "fixed strings": (_created(data=np.array([b"abc"] * ROWS)), "string (3 bytes)", "no tensor holds strings"),
    "strings": (_created(data=["x"] * ROWS), "string (variable length)", "no tensor holds strings"),
    "compound": (
        _created((ROWS,), [("x", "f4"), ("y", "i8")]), "compound (x float32, y int64)", "each member as an array",
    ),
    "references": (_created((ROWS,), h5py.ref_dtype), "reference", "no tensor holds references"),
    "regions": (_created((ROWS,), h5py.regionref_dtype), "reference", "no tensor holds references"),
    "lists": (_created((ROWS,), h5py.vlen_dtype("f4")), "lists of float32", "a list of its own length"),
    "arrays": (_created((ROWS,), np.dtype(("f4", (2, 3)))), "float32 [2, 3]", "axes of the dataset"),
    "complex": (_created((ROWS,), "c8"), "complex64", "store real and imaginary parts"),
    "times": (_created((ROWS,), h5py.opaque_dtype(np.dtype("M8[s]"))), "datetime64[s]", "store them as int64"),
    "time": (_low_level(lambda: h5py.h5t.UNIX_D32LE), "time", "store them as int64"),
    "empty": (_created(data=h5py.Empty("f4")), "float32", "it has a type and no elements"),
    "scalar": (_created(data=3.0), "float64", "a single value"),
    "no rows": (_created((0, 3), "f4"), "float32", "an axis has length 0"),
    "empty rows": (_created((ROWS, 0), "f4"), "float32", "an axis has length 0"),
    "bfloat16": (_low_level(_bfloat16), "bfloat16", "h5py converts it to float32"),
    "20 bits": (_low_level(_twenty_bits), "integer of 20 bits in 4 bytes", "h5py converts it to int32"),
    "never written": (_created((1 << 40, 99), "f8"), "float64", "larger than a file of this size can hold"),
    "external storage": (
        _created((ROWS,), "f4", external=[("raw.bin", 0, 4 * ROWS)]), "float32", "in the external file raw.bin",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNREAD)
def test_an_array_that_is_not_read_is_named(case: str, tmp_path: Path) -> None:
    create, dtype, note = UNREAD[case]
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        create(file)
    description = describe(path)
    (array,) = description.arrays
    assert array.dtype == dtype
    assert note in array.note
    assert description.fields == ()
    assert "no array can be read as samples" in description.notes
    # Nobody can read it by naming it either.
    fmt = Hdf5Format(DatasetConfig(format="hdf5", fields=[FieldConfig("a")]), 1)
    with pytest.raises(DataError, match=r"file\.h5"):
        fmt.inspect(path)


def test_an_enumeration_is_read_as_its_codes(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file.create_dataset("kind", (ROWS,), h5py.enum_dtype({"CAT": 0, "DOG": 1}, "u1"))
        file["truth"] = np.zeros(ROWS, bool)
    description = describe(tmp_path / "file.h5")
    assert [field.dtype for field in description.fields] == ["uint8", "bool"]
    assert description.notes == ("kind: codes of an enumeration (0 CAT, 1 DOG)",)


def test_a_filter_that_is_not_installed_is_named_and_asked_about(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((4, 8))
        properties.set_filter(_NO_FILTER, h5py.h5z.FLAG_OPTIONAL, (1, 2))  # nothing is written, so it is not used
        space = h5py.h5s.create_simple((ROWS, 8))
        h5py.h5d.create(file.id, b"images", h5py.h5t.IEEE_F32LE, space, properties)
        file["labels"] = np.zeros(ROWS)
    description = describe(path)
    assert (
        f"needs HDF5 filter {_NO_FILTER} (filter {_NO_FILTER}), which this h5py has not" in notes(description)["images"]
    )
    (question,) = description.questions
    assert question.problem == "of the arrays of a sample, images cannot be read; labels can"
    assert question.setting == "dataset.fields=[{name: labels, dtype: float64, shape: []}]"


def test_links_and_virtual_datasets_are_named_and_not_followed(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "part.h5", "w") as file:
        file["a"] = np.zeros((ROWS, 3), np.float32)
    layout = h5py.VirtualLayout((2 * ROWS, 3), "f4")
    layout[:ROWS] = h5py.VirtualSource("part.h5", "a", (ROWS, 3))
    layout[ROWS:] = h5py.VirtualSource("missing.h5", "a", (ROWS, 3))
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file.create_virtual_dataset("all", layout)
        file["group/real"] = np.zeros((5, 2))
        file["again"] = file["group/real"]
        file["soft"] = h5py.SoftLink("/group/real")
        file["dangling"] = h5py.SoftLink("/nothing")
        file["outside"] = h5py.ExternalLink("part.h5", "/a")
    description = describe(tmp_path / "file.h5")
    said = notes(description)
    assert said["soft"] == "soft link to /group/real, not followed"
    assert said["dangling"] == "soft link to /nothing, not followed"
    assert said["outside"] == "link to another file: /a of part.h5, not followed"
    assert "virtual dataset: its bytes are in other files (part.h5, missing.h5), which are not followed" in said["all"]
    shapes = {array.name: array.shape for array in description.arrays}
    assert shapes["all"] == (2 * ROWS, 3)
    assert [field.name for field in description.fields] == ["again"]  # an object is listed once, by its first name


def test_rows_that_cannot_be_read_are_asked_about_with_a_table_of_their_extents(tmp_path: Path) -> None:
    layout = h5py.VirtualLayout((3 * ROWS, 4), "f4")
    layout[:] = h5py.VirtualSource("missing.h5", "a", (3 * ROWS, 4))
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file.create_virtual_dataset("points", layout)
        table = np.zeros(ROWS, EXTENTS)
        table["first"], table["N"] = 3 * np.arange(ROWS), 3
        file["points_extents"] = table
        file["labels"] = np.zeros(ROWS)
    description = describe(tmp_path / "file.h5")
    assert description.fields == ()
    (question,) = description.questions
    assert question.problem == "of the arrays of a sample, points cannot be read; labels can"
    assert notes(description)["points_extents"] == "rows of each sample in points"


def test_names_that_no_field_can_have_are_named(tmp_path: Path) -> None:
    description = described(tmp_path, index=np.zeros(ROWS), label=np.zeros(ROWS))
    assert [field.name for field in description.fields] == ["label"]
    assert "reserved" in notes(description)["index"]


# --- files of other libraries, files in use ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "line"),
    [
        ({"PYTABLES_FORMAT_VERSION": np.bytes_("2.1")}, "written by PyTables 2.1"),
        ({"keras_version": "3.0", "layer_names": [b"conv"]}, "weights of a Keras model"),
        ({"encoding-type": "anndata"}, "written by anndata"),
    ],
)
def test_the_writer_of_a_file_is_named(attributes: dict[str, Any], line: str, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file["values"] = np.zeros((ROWS, 3))
        file.attrs.update(attributes)
    assert any(line in note for note in describe(tmp_path / "file.h5").notes)


def test_a_file_of_matlab_is_recognised_behind_its_user_block(tmp_path: Path) -> None:
    path = tmp_path / "file.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        file["a"] = np.zeros((5, 3))
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64")
    inspection = inspect_path(str(path))
    assert inspection.format == "hdf5"
    assert inspection.description.samples == 5
    assert "written by MATLAB" in inspection.description.notes[0]


OPEN_FOR_WRITING = """
import sys, h5py
file = h5py.File(sys.argv[1], "w", libver="latest")
file["a"] = [1, 2]
file.flush()
if sys.argv[2] == "swmr":
    file.swmr_mode = True
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("mode", "words"), [("plain", "another process has it open for writing"), ("swmr", "marked as open for writing")]
)
def test_a_file_that_another_process_writes_is_named(mode: str, words: str, tmp_path: Path) -> None:
    if os.environ.get("HDF5_USE_FILE_LOCKING"):
        pytest.skip("HDF5_USE_FILE_LOCKING changes the locks of the library")
    path = tmp_path / "file.h5"
    command = [sys.executable, "-c", OPEN_FOR_WRITING, str(path), mode]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
        with pytest.raises(DataError, match=words) as caught:
            inspect_path(str(path))
        writer.communicate("")
    assert str(path) in str(caught.value)


def test_a_part_of_a_family_is_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "part%02d.h5", "w", driver="family", memb_size=1 << 16) as file:
        file["a"] = np.zeros(1 << 14)
    for name in ("part00.h5", "part01.h5"):
        with pytest.raises(DataError, match="is one of several files that together are one HDF5 file"):
            inspect_path(str(tmp_path / name))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    described(tmp_path, a=np.zeros((ROWS, 9)))
    path = tmp_path / "file.h5"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"file\.h5 cannot be read: .*truncated file"):
        inspect_path(str(path))


def test_a_user_block_is_looked_for_in_other_files_only_as_far_as_they_go(tmp_path: Path) -> None:
    for size in (0, 511, 512, 3000):
        (tmp_path / "file").write_bytes(bytes(size))
        assert recognised_file(tmp_path / "file") is None


# --- random files ------------------------------------------------------------------------------------------


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_what_is_described_is_read_as_by_h5py(data: st.DataObject, tmp_path: Path) -> None:
    path = tmp_path / "random.h5"
    path.unlink(missing_ok=True)
    rows = data.draw(st.integers(1, 7), "rows")
    names = data.draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=3, unique=True), "names")
    stored = {}
    with h5py.File(path, "w", libver=data.draw(st.sampled_from(["earliest", "latest"]))) as file:
        for name in names:
            shape = (rows, *data.draw(st.lists(st.integers(1, 4), max_size=2)))
            dtype = np.dtype(data.draw(st.sampled_from(DTYPES)))
            stored[name] = data.draw(arrays_of.arrays(dtype, shape))
            options = data.draw(
                st.sampled_from(
                    [{}, {"chunks": True}, {"compression": "gzip", "shuffle": True}, {"compression": "lzf"}]
                )
            )
            order = data.draw(st.sampled_from("<>"), "byte order") if dtype.kind in "iuf" else "="
            file.create_dataset(name, data=stored[name].astype(dtype.newbyteorder(order)), **options)
        file["text"] = ["x"] * rows
    description = describe(path)
    assert description.samples == rows
    assert {field.name for field in description.fields} == set(names)
    fmt = Hdf5Format(
        DatasetConfig(format="hdf5", fields=list(description.fields), hdf5=Hdf5Config(**description.options)), 1
    )
    reader = fmt.open(path)
    order = data.draw(st.permutations(range(rows)))
    batch = read(fmt, reader, order)
    reader.close()
    for name, content in stored.items():
        assert batch[name].numpy().tobytes() == content[order].tobytes(), name
