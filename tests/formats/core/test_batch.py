"""Batches: arrays read in place, records as bytes, variable lengths one after another."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer, batch_bytes, concatenate, samples_of

# 16 bytes of which 12 are used, as HDF5 files have them.
RECORD = np.dtype({"names": ["id", "value"], "formats": ["<u8", "<f4"], "offsets": [0, 8], "itemsize": 16})
IMAGE = ArraySpec("image", np.dtype("float32"), (2, 3))
SCALAR = ArraySpec("label", np.dtype("int64"), ())
HEAD = ArraySpec("head", RECORD, ())
POINTS = ArraySpec("points", np.dtype("uint8"), (4,), variable=True)
VOXELS = ArraySpec("voxels", RECORD, (), variable=True)
ALL = [IMAGE, SCALAR, HEAD, POINTS, VOXELS]


def records(count: int, start: int = 0) -> np.ndarray:
    """Records whose padding is not zero."""
    return np.arange(start, start + 16 * count).astype(np.uint8).view(RECORD)


def filled(lengths: list[int]) -> BatchBuffer:
    buffer = BatchBuffer(ALL, range(100, 100 + len(lengths)))
    for at, length in enumerate(lengths):
        buffer.fixed["image"][at] = at
        buffer.fixed["label"][at] = -at
        # Readers write bytes; an assignment of records would leave out the padding.
        buffer.fixed["head"].view("V16")[at] = records(1, at).view("V16")[0]
        buffer.put("points", at, np.full((length, 4), at, np.uint8))
        buffer.put("voxels", at, records(length, at))
    return buffer


def test_tensors_of_a_batch() -> None:
    batch = filled([2, 0, 3]).finish()
    assert list(batch) == ["index", "image", "label", "head", "points", "points:lengths", "voxels", "voxels:lengths"]
    assert batch["index"].tolist() == [100, 101, 102]
    assert (batch["image"].shape, batch["image"].dtype) == ((3, 2, 3), torch.float32)
    assert batch["image"][:, 1, 2].tolist() == [0, 1, 2]
    assert batch["label"].tolist() == [0, -1, -2]
    assert (batch["head"].shape, batch["head"].dtype) == ((3, 16), torch.uint8)
    assert batch["head"][2].tolist() == list(range(2, 18))
    assert batch["points"].tolist() == [[0] * 4] * 2 + [[2] * 4] * 3
    assert (batch["points:lengths"].tolist(), batch["points:lengths"].dtype) == ([2, 0, 3], torch.int64)
    assert batch["voxels"].shape == (5, 16)
    # Every byte of the file, padding included.
    assert batch["voxels"].flatten().tolist() == [*range(32), *range(2, 50)]


@pytest.mark.parametrize("spec", [IMAGE, SCALAR, HEAD], ids=lambda spec: spec.name)
def test_fixed_arrays_are_not_copied(spec: ArraySpec) -> None:
    buffer = BatchBuffer([spec], [0, 1])
    assert buffer.finish()[spec.name].data_ptr() == buffer.fixed[spec.name].ctypes.data


def test_a_single_variable_sample_is_not_copied() -> None:
    rows = np.ones((5, 4), np.uint8)
    buffer = BatchBuffer([POINTS], [0])
    buffer.put("points", 0, rows)
    assert buffer.finish()["points"].data_ptr() == rows.ctypes.data


def test_a_sample_that_was_left_out_is_an_error() -> None:
    buffer = BatchBuffer([POINTS], [0, 1, 2])
    buffer.put("points", 1, np.ones((5, 4), np.uint8))
    with pytest.raises(KeyError, match="array points: 2 of 3 samples of the batch were not read"):
        buffer.finish()


def test_bytes_of_a_batch_leave_out_what_the_tool_adds() -> None:
    batch = filled([2, 0, 3]).finish()
    assert batch_bytes(batch) == 3 * 24 + 3 * 8 + 3 * 16 + 5 * 4 + 5 * 16


@given(lengths=st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_samples_come_out_as_they_went_in(lengths: list[int]) -> None:
    batch = filled(lengths).finish()
    found = list(samples_of(batch, ALL))
    assert [index for index, _ in found] == list(range(100, 100 + len(lengths)))
    for at, (length, (_, sample)) in enumerate(zip(lengths, found, strict=True)):
        assert list(sample) == [spec.name for spec in ALL]
        assert sample["image"].tolist() == [[at] * 3] * 2
        assert sample["label"] == -at
        assert (sample["head"].dtype, sample["head"].tobytes()) == (RECORD, records(1, at).tobytes())
        assert sample["points"].tolist() == [[at] * 4] * length
        assert (sample["voxels"].dtype, sample["voxels"].shape) == (RECORD, (length,))
        assert sample["voxels"].tobytes() == records(length, at).tobytes()
        assert length == 0 or np.shares_memory(sample["points"], batch["points"].numpy())


def test_records_keep_their_padding_when_put_together() -> None:
    pieces = [records(2), records(0), records(3, 7)]
    joined = concatenate(pieces)
    assert joined.dtype == RECORD
    assert joined.tobytes() == b"".join(piece.tobytes() for piece in pieces)
    # What NumPy's own would do instead.
    assert np.concatenate(pieces).dtype.itemsize == 12


def test_indices_are_the_batch_s_own() -> None:
    indices = np.array([3, 4])
    batch = BatchBuffer([SCALAR], indices).finish()
    batch["index"].zero_()
    assert indices.tolist() == [3, 4]
