"""Decoders of chunks for the decoupled engine: native code decodes all sound chunks, Python's libraries alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_files import config_of, make
from decoupled_data import assert_same, decoupled, faithful

from dlio_torch import native
from dlio_torch.config.schema import FieldConfig
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.errors import DataError
from dlio_torch.formats.core import chunk_decoder
from dlio_torch.formats.core.chunk_decoder import ChunkDecoder, NativeChunkDecoder, PythonChunkDecoder
from dlio_torch.formats.core.layout import Chunks
from dlio_torch.formats.hdf5.options import Hdf5Config
from dlio_torch.formats.larcv3.options import Larcv3Config, ProducerConfig
from dlio_torch.native.memory import address_of

FIELDS = [FieldConfig("a", shape=[6, 7]), FieldConfig("b", "int16", shape=[5])]
PRODUCERS = [ProducerConfig("label", "label", 2742, 175), ProducerConfig("wire", "charge", 6641, 124)]
EVENTS = Larcv3Config(producers=PRODUCERS, images=2, image_shape=[64, 40], voxels_mean=60, voxels_stdev=20)
DATA: dict[str, dict[str, Any]] = {
    "hdf5": {"format": "hdf5", "fields": FIELDS, "hdf5": Hdf5Config(compression="gzip", chunk_bytes=200)},
    "larcv3": {"format": "larcv3", "larcv3": EVENTS},
}


def native_decoder() -> NativeChunkDecoder:
    try:
        decoder = NativeChunkDecoder()
    except native.NativeUnavailable as error:
        pytest.skip(str(error))
    if "no library" in decoder.implementation:
        pytest.skip("needs a library that inflates")
    return decoder


@pytest.mark.parametrize("data", DATA)
def test_native_code_decodes_all_chunks_of_sound_files(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native_decoder()
    fmt, manifests = make(config_of(tmp_path, num_files=2, samples_per_file=7, **DATA[data]))
    sampler = BatchSampler(SamplerSpec(batch_size=4, order="shuffled", seed=3), num_samples=14)
    want = list(faithful(fmt, manifests["train"], sampler).epoch(0))
    monkeypatch.setattr(chunk_decoder, "decoded", _never)
    loader = decoupled(fmt, manifests["train"], sampler)
    for one, other in zip(want, list(loader.epoch(0)), strict=True):
        assert_same(one, other)
    loader.close()


def _never(*arguments: Any) -> None:
    raise AssertionError("a chunk came to Python's libraries")


def chunks_of(filters: tuple[str, ...], stored: list[bytes], size: int, fill: bytes | None = None) -> Chunks:
    """A plan that takes each chunk as two halves, one after another."""
    numbers, zero = np.arange(len(stored), dtype=np.int64), np.zeros(len(stored), np.int64)
    half = size // 2
    return Chunks(
        numbers * 1000, np.array([len(part) for part in stored], np.int64), zero, size, filters, 2,
        np.repeat(numbers, 2), np.tile(np.array([0, half]), len(stored)), np.full(2 * len(stored), half, np.int64),
        np.arange(2 * len(stored), dtype=np.int64) * half, fill,
    )  # fmt: skip


DECODERS = {"native": native_decoder, "Python": lambda: PythonChunkDecoder("a test")}


@pytest.fixture(params=DECODERS)
def decoder(request: pytest.FixtureRequest) -> ChunkDecoder:
    chosen: ChunkDecoder = DECODERS[request.param]()
    return chosen


def test_parts_of_a_plan_are_decoded_apart(decoder: ChunkDecoder) -> None:
    contents = [bytes([number]) * 8 for number in range(5)]
    chunks, memory = chunks_of((), contents, 8), np.zeros(40, np.uint8)
    whole = np.frombuffer(b"".join(contents), np.uint8).copy()
    for low, high in ((3, 5), (0, 1), (1, 3)):
        stored = address_of(whole) + 8 * np.arange(low, high, dtype=np.int64)
        decoder.decode(Path("a.h5"), chunks, low, high, stored, address_of(memory))
    assert memory.tobytes() == whole.tobytes()


def test_chunks_that_were_never_written_are_filled(decoder: ChunkDecoder) -> None:
    memory, shuffled = np.zeros(16, np.uint8), np.frombuffer(b"acegbdfh", np.uint8).copy()
    chunks = chunks_of(("shuffle",), [b"", b"acegbdfh"], 8, b"xy")
    stored = np.full(2, address_of(shuffled), np.int64)
    decoder.decode(Path("a.h5"), chunks, 0, 2, stored, address_of(memory))
    assert memory.tobytes() == b"xyxyxyxyabcdefgh"


@pytest.mark.parametrize("filters", [("gzip",), ("fletcher32",), ()])
def test_damage_names_file_and_chunk(decoder: ChunkDecoder, filters: tuple[str, ...]) -> None:
    memory, bad = np.zeros(16, np.uint8), np.frombuffer(b"damaged!?", np.uint8).copy()
    chunks = chunks_of(filters, [bytes(bad)] * 2, 8)
    with pytest.raises(DataError, match=r"a\.h5: the chunk at byte 1000 "):
        decoder.decode(Path("a.h5"), chunks, 1, 2, np.array([address_of(bad)]), address_of(memory))
