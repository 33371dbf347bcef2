"""Content of generated samples: deterministic, independent, of the asked-for type and compressibility."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlio_torch.formats.core import payload
from dlio_torch.formats.core.array_specs import DTYPES
from dlio_torch.native.filling import Filler, NativeFiller, NumpyFiller

PINNED_WORDS = [2170409827660744702, 5873313493417807178]
PINNED_FLOATS = [0.16693538427352905, 0.11765813827514648]
PINNED_LENGTHS = [115, 122, 133, 71, 32]


def make(
    dtype: str, shape: tuple[int, ...] = (4096,), share: float = 0.0, seed: int = 1, sample: int = 0
) -> np.ndarray:
    return payload.array(payload.rng(seed, sample), shape, np.dtype(dtype), share)


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_are_of_the_type_and_shape(dtype: str) -> None:
    for shape in [(), (1,), (3,), (5, 7), (2, 1, 9)]:
        array = make(dtype, shape)
        assert array.shape == shape
        assert array.dtype == dtype
        assert array.flags.c_contiguous
        assert array.flags.writeable


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floats_are_evenly_spread_below_one(dtype: str) -> None:
    array = make(dtype, (100_000,)).astype(np.float64)
    assert array.min() >= 0
    assert array.max() < 1
    assert np.histogram(array, 10, (0, 1))[0] == pytest.approx([10_000] * 10, rel=0.05)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int64"])
def test_integers_use_their_whole_range(dtype: str) -> None:
    array = make(dtype, (100_000,))
    limits = np.iinfo(dtype)
    span = float(limits.max) - float(limits.min)
    assert float(array.min()) < limits.min + 0.01 * span
    assert float(array.max()) > limits.max - 0.01 * span


def test_booleans_are_both() -> None:
    assert make("bool", (10_000,)).mean() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_the_compressible_share_is_zero_everywhere(dtype: str, share: float) -> None:
    array = make(dtype, (2048,), share)
    per_block = 512 // array.dtype.itemsize
    blocks = array.reshape(-1, per_block)
    kept = round(per_block * (1 - share))
    assert not blocks[:, kept:].any()
    assert kept == 0 or blocks[:, :kept].any(axis=1).all()


def test_the_compressible_share_is_what_deflate_saves() -> None:
    sizes = [len(zlib.compress(make("uint8", (1 << 18,), share).tobytes(), 4)) / (1 << 18) for share in (0, 0.5, 0.9)]
    assert sizes == pytest.approx([1.0, 0.5, 0.1], abs=0.03)


def test_seed_sample_and_stream_each_give_other_content() -> None:
    keys = [(1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1), (1, 1 << 40, 0), (1, (1 << 40) + 1, 0), (1 << 63, 0, 0)]
    keys += [((1 << 63) + 1, 0, 0), (1 << 63, 1, 0), (1 << 63, 0, 1)]
    made = {payload.array(payload.rng(*key), (8,), np.dtype("u8")).tobytes() for key in keys}
    assert len(made) == len(keys)


def test_content_is_the_same_for_ever() -> None:
    # Data sets on disk are recognised by their options alone: another generator would need another version.
    assert payload.array(payload.rng(7, 3, 1), (2,), np.dtype("u8")).tolist() == PINNED_WORDS
    assert payload.array(payload.rng(7, 3, 1), (2,), np.dtype("f4")).tolist() == PINNED_FLOATS
    assert payload.lengths(7, 2, 10, 5, 100.0, 20.0).tolist() == PINNED_LENGTHS


@given(
    first=st.integers(0, 1 << 41),
    count=st.integers(1, 50),
    skip=st.integers(0, 49),
    seed=st.integers(0, (1 << 64) - 1),
)
def test_a_length_depends_on_its_own_sample_alone(first: int, count: int, skip: int, seed: int) -> None:
    many = payload.lengths(seed, 3, first, count + skip, 40.0, 12.0)
    assert payload.lengths(seed, 3, first + skip, count, 40.0, 12.0).tolist() == many[skip:].tolist()


@pytest.mark.parametrize(("mean", "stdev"), [(100.0, 20.0), (19046.0, 7242.0), (10.0, 0.0)])
def test_lengths_have_the_mean_and_the_spread(mean: float, stdev: float) -> None:
    lengths = payload.lengths(1, 0, 0, 20_000, mean, stdev)
    assert lengths.mean() == pytest.approx(mean, rel=0.01)
    assert lengths.std() == pytest.approx(stdev, rel=0.05, abs=0.01)
    assert lengths.min() >= 1
    assert lengths.max() <= 2 * mean - 1


def test_streams_and_seeds_of_lengths_are_independent() -> None:
    made = [payload.lengths(*key, 0, 5000, 1000.0, 300.0) for key in [(1, 0), (1, 1), (2, 0), ((1 << 63) + 1, 0)]]
    assert np.abs(np.corrcoef(made) - np.eye(4)).max() < 0.05


@given(mean=st.floats(0.1, 1e6), stdev=st.floats(0, 1e7))
def test_lengths_are_within_their_bounds(mean: float, stdev: float) -> None:
    lengths = payload.lengths(1, 0, 0, 100, mean, stdev)
    assert lengths.dtype == np.int64
    assert lengths.min() >= 1
    assert lengths.max() <= max(1, round(2 * mean) - 1)


# --- many samples at once ---

FILLERS = [pytest.param(NativeFiller, id="native"), pytest.param(lambda: NumpyFiller("asked for"), id="numpy")]


@pytest.fixture(params=FILLERS)
def filler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Filler:
    made: Filler = request.param()
    monkeypatch.setattr(payload, "open_filler", lambda: made)
    return made


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_filled_memory_holds_the_arrays_of_the_samples(filler: Filler, dtype: str, share: float) -> None:
    sizes = np.array([1, 513, 7, 1000, 64], np.int64)
    into = np.empty(sizes.sum(), dtype)
    payload.fill(into, (1 << 63) + 5, 3, 1 << 40, sizes, share)
    alone = [
        payload.array(payload.rng((1 << 63) + 5, (1 << 40) + i, 3), (size,), np.dtype(dtype), share)
        for i, size in enumerate(sizes.tolist())
    ]
    assert into.tobytes() == np.concatenate(alone).tobytes()


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float64"])
def test_a_sample_can_be_made_in_parts(filler: Filler, dtype: str) -> None:
    whole, part = np.empty(5000, dtype), np.empty(5000 - 1024, dtype)
    payload.fill(whole, 7, 0, 11, np.array([5000]), 0.4)
    payload.fill(part, 7, 0, 11, np.array([5000 - 1024]), 0.4, start=1024)
    assert part.tobytes() == whole[1024:].tobytes()


def test_unaligned_memory_is_filled() -> None:
    into = np.empty(8 * 100 + 1, np.uint8)[1:].view(np.float64)
    payload.fill(into, 1, 0, 0, np.array([100]))
    assert into.tolist() == payload.array(payload.rng(1, 0), (100,), np.dtype("f8")).tolist()
