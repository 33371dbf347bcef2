"""Small data sets for the decoupled engine, and movers whose reads a test can see, delay or hold."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from data_files import config_of, make
from recorded_requests import records, scattered, temporary_archive

from dlio_torch.config.schema import AccessConfig, Config, FieldConfig, LoaderConfig, TrainConfig
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.dataset.map_dataset import CatchingDataset, SampleDataset
from dlio_torch.data.engines.assemble import assemble
from dlio_torch.data.engines.batch_loader import BatchLoader
from dlio_torch.data.engines.decoupled.batch_groups import DecoupledSource
from dlio_torch.data.engines.decoupled.engine import DecoupledEngine
from dlio_torch.data.order.planning import plan_order
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.errors import DataError, DlioError
from dlio_torch.formats.arrow.options import ArrowConfig
from dlio_torch.formats.core.batch import Batch
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.extents.options import ExtentsConfig
from dlio_torch.formats.hdf5.options import Hdf5Config
from dlio_torch.formats.image.options import ImageConfig
from dlio_torch.formats.indexed_binary.options import BinaryConfig
from dlio_torch.formats.numpy.options import NpzConfig
from dlio_torch.formats.safetensors.options import SafetensorsConfig
from dlio_torch.formats.tfrecord.options import TfrecordConfig
from dlio_torch.formats.tokens.options import TokensConfig
from dlio_torch.formats.webdataset.options import WebdatasetConfig
from dlio_torch.formats.zarr.options import ZarrConfig
from dlio_torch.iotrace.recorder.spans import NULL
from dlio_torch.native.extents import open_mover

FIXED = [FieldConfig("a", shape=[5, 6]), FieldConfig("b", "int16", shape=[])]
VARIABLE = [FieldConfig("a", shape=[5]), FieldConfig("v", "int32", shape=[2], length_mean=4, length_stdev=2)]
LABELLED = [FieldConfig("a", shape=[5, 6]), FieldConfig("label", "int64", shape=[]), FieldConfig("b", "int16")]
LARGER = [
    FieldConfig("a", shape=[50, 30]),
    FieldConfig("n", "int64", shape=[3]),
    FieldConfig("c", "uint8", shape=[3001]),
]
BIG = [FieldConfig("a", shape=[3000]), FieldConfig("v", shape=[2], length_mean=50, length_stdev=9)]
PIXELS = [FieldConfig("image", "uint8", shape=[20, 30, 3])]
LISTS = [
    FieldConfig("f", "float32", shape=[2], length_mean=400, length_stdev=300),
    FieldConfig("n", "int64", shape=[], length_mean=4, length_stdev=2),
    FieldConfig("v", "float64", shape=[2], length_mean=200, length_stdev=90),
]
TOKENS = [FieldConfig("a", "int32", shape=[16])]
ROWS = [FieldConfig("a", "bool", shape=[16], length_mean=3, length_stdev=2)]
CUT = [
    FieldConfig("a", shape=[7, 9, 11], chunk=[2, 3, 4, 11]),
    FieldConfig("v", "float64", shape=[4, 6], length_mean=5, length_stdev=2, chunk=[3, 4, 4]),
]
READ_ZSTD = ArrowConfig(memory_map=False, compression="zstd")
MEMBERS = [
    FieldConfig("x.npy", "float32", shape=[5, 6]),
    FieldConfig("bin", "int32", shape=[9]),
    FieldConfig("cls", "int64"),
    FieldConfig("v.npy", "int16", shape=[2], length_mean=4, length_stdev=2),
    FieldConfig("json", "uint8", length_mean=40, length_stdev=9),
]
IMAGE_MEMBERS = [FieldConfig("jpg", "uint8", shape=[20, 30, 3]), FieldConfig("id", "int32")]
SELECTED = [FieldConfig("a", shape=[7, 9], chunk=[2, 3, 4], select=[0, 4, 5, 6])]

# Name -> samples of a file, options of dataset.
LAYOUTS: dict[str, tuple[int, dict[str, Any]]] = {
    "npy": (7, {"format": "npy", "fields": FIXED}),
    "npy, one a file": (1, {"format": "npy", "fields": VARIABLE}),
    "npz": (7, {"format": "npz", "fields": VARIABLE}),
    "npz, one a file": (1, {"format": "npz", "fields": VARIABLE}),
    "npz, deflated": (7, {"format": "npz", "fields": VARIABLE, "npz": NpzConfig(compressed=True)}),
    "npz, deflated, one a file": (1, {"format": "npz", "fields": VARIABLE, "npz": NpzConfig(compressed=True)}),
    "npz, last axis": (7, {"format": "npz", "fields": FIXED, "npz": NpzConfig(sample_axis="last")}),
    "npz, not small": (7, {"format": "npz", "fields": BIG}),
    "npy, not small": (7, {"format": "npy", "fields": BIG[:1]}),
    "npy, one a file, not small": (1, {"format": "npy", "fields": [FieldConfig("a", shape=[20000])]}),
    "csv": (7, {"format": "csv", "fields": [*FIXED, FieldConfig("d", "float64", shape=[3]), FieldConfig("t", "bool")]}),
    "csv, wide": (7, {"format": "csv", "fields": [FieldConfig("a", shape=[200])]}),
    "arrow": (7, {"format": "arrow", "fields": LISTS, "arrow": ArrowConfig(memory_map=False, batch_rows=3)}),
    "arrow, truth values": (7, {"format": "arrow", "fields": ROWS, "arrow": ArrowConfig(memory_map=False)}),
    "arrow, file": (7, {"format": "arrow", "fields": LABELLED, "arrow": ArrowConfig(memory_map=False, ipc="file")}),
    "arrow, zstd": (
        7,
        {"format": "arrow", "fields": LISTS, "arrow": ArrowConfig(memory_map=False, compression="zstd")},
    ),
    "png": (1, {"format": "png", "fields": PIXELS}),
    "jpeg, labels": (1, {"format": "jpeg", "fields": PIXELS, "num_subfolders": 3}),
    "jpeg, stored": (1, {"format": "jpeg", "fields": PIXELS, "image": ImageConfig(decode=False)}),
    "imagefolder": (
        1,
        {
            "format": "imagefolder",
            "fields": [],
            "num_subfolders": 3,
            "image": ImageConfig(transform="random_resized_crop", size=9),
        },
    ),
    "imagefolder, any size": (
        1,
        {
            "format": "imagefolder",
            "fields": [],
            "num_subfolders": 3,
            "image": ImageConfig(width_mean=30, height_mean=20),
        },
    ),
    "imagefolder, masks, any size": (
        1,
        {
            "format": "imagefolder",
            "fields": [],
            "num_subfolders": 3,
            "image": ImageConfig(masks="*_mask.png", width_mean=30),
        },
    ),
    "binary": (7, {"format": "indexed_binary", "fields": TOKENS}),
    "binary, rows": (7, {"format": "indexed_binary", "fields": ROWS}),
    "binary, no index": (7, {"format": "indexed_binary", "fields": TOKENS, "binary": BinaryConfig(index=False)}),
    "binary, documents": (
        7,
        {"format": "indexed_binary", "fields": TOKENS, "binary": BinaryConfig(document_mean=23, document_stdev=9)},
    ),
    "extents": (7, {"format": "extents", "extents": ExtentsConfig(temporary_archive(scattered()))}),
    "extents, same bytes": (7, {"format": "extents", "extents": ExtentsConfig(temporary_archive(records(7, 2000)))}),
    "mds": (7, {"format": "mds", "fields": LARGER}),
    "mds, variable": (7, {"format": "mds", "fields": LISTS}),
    "tokens": (7, {"format": "tokens", "tokens": TokensConfig(window=50)}),
    "tokens, every token": (7, {"format": "tokens", "tokens": TokensConfig(window=50, stride=1)}),
    "tokens, stored": (7, {"format": "tokens", "tokens": TokensConfig(window=50, targets=False, header="llm.c")}),
    "tokens, stored, every token": (
        7,
        {"format": "tokens", "tokens": TokensConfig(window=50, stride=1, targets=False)},
    ),
    "tfrecord": (7, {"format": "tfrecord", "fields": LABELLED}),
    "tfrecord, index": (7, {"format": "tfrecord", "fields": LARGER, "tfrecord": TfrecordConfig(index=True)}),
    "tfrecord, variable": (7, {"format": "tfrecord", "fields": LISTS, "tfrecord": TfrecordConfig(float_lists=["f"])}),
    "tfrecord, gzip": (
        7,
        {"format": "tfrecord", "fields": LISTS, "tfrecord": TfrecordConfig(float_lists=["f"], compression="gzip")},
    ),
    "tfrecord, unchecked": (7, {"format": "tfrecord", "fields": LARGER, "tfrecord": TfrecordConfig(verify_crc=False)}),
    "webdataset": (7, {"format": "webdataset", "fields": MEMBERS}),
    "webdataset, images": (7, {"format": "webdataset", "fields": [*IMAGE_MEMBERS, *MEMBERS]}),
    "webdataset, stored": (
        7,
        {"format": "webdataset", "fields": IMAGE_MEMBERS, "webdataset": WebdatasetConfig(decode="none")},
    ),
    "webdataset, gzip": (
        7,
        {"format": "webdataset", "fields": MEMBERS, "webdataset": WebdatasetConfig(compression="gzip")},
    ),
    "hdf5": (7, {"format": "hdf5", "fields": VARIABLE}),
    "hdf5, chunks": (7, {"format": "hdf5", "fields": VARIABLE, "hdf5": Hdf5Config(chunk_bytes=64)}),
    "hdf5, large chunks": (7, {"format": "hdf5", "fields": FIXED, "hdf5": Hdf5Config(chunk_bytes=4096)}),
    "hdf5, cut": (7, {"format": "hdf5", "fields": CUT}),
    "hdf5, gzip": (7, {"format": "hdf5", "fields": CUT, "hdf5": Hdf5Config(compression="gzip", chunk_bytes=300)}),
    "hdf5, select": (7, {"format": "hdf5", "fields": SELECTED}),
    "zarr": (7, {"format": "zarr", "fields": VARIABLE}),
    "zarr, shard": (7, {"format": "zarr", "fields": CUT, "zarr": ZarrConfig(shard_bytes=1 << 20)}),
    "zarr, shard, zstd": (
        7,
        {
            "format": "zarr",
            "fields": VARIABLE,
            "zarr": ZarrConfig(chunk_bytes=64, shard_bytes=1 << 20, compression="zstd"),
        },
    ),
    "zarr, chunks": (7, {"format": "zarr", "fields": FIXED, "zarr": ZarrConfig(chunk_bytes=120)}),
    "zarr, shards": (
        7,
        {"format": "zarr", "fields": LARGER, "zarr": ZarrConfig(3001, shard_bytes=18000, compression="zstd")},
    ),
    "zarr, gzip": (7, {"format": "zarr", "fields": BIG, "zarr": ZarrConfig(compression="gzip")}),
    "safetensors": (7, {"format": "safetensors", "fields": FIXED}),
    "safetensors, one a file": (
        1,
        {"format": "safetensors", "fields": VARIABLE, "safetensors": SafetensorsConfig(samples="file")},
    ),
    "hdf5, select, contiguous": (7, {"format": "hdf5", "fields": [FieldConfig("a", shape=[5, 6], select=[0, 2, 3])]}),
}

LARGE = {"format": "npy", "fields": [FieldConfig("a", shape=[1 << 18])]}


def data_of(root: Path, layout: str, samples: int = 21) -> tuple[Format, Manifest]:
    """A data set of ``samples`` samples below ``root``."""
    each, dataset = LAYOUTS.get(layout, (samples, LARGE))
    fmt, manifests = make(config_of(root, num_files=samples // each, samples_per_file=each, **dataset))
    return fmt, manifests["train"]


def faithful(fmt: Format, manifest: Manifest, sampler: BatchSampler, unit: str = "sample") -> BatchLoader:
    """What the format's own library reads."""
    return BatchLoader(LoaderConfig(), CatchingDataset(SampleDataset(fmt, manifest, NULL, unit=unit)), sampler)


def decoupled(
    fmt: Format, manifest: Manifest, sampler: BatchSampler, *, verify: bool = True, **options: Any
) -> BatchLoader:
    """The same by the decoupled engine; ``verify``: the data were generated, and are compared."""
    config = LoaderConfig(**{"engine": "decoupled", "timeout_s": 60.0, **options})
    return BatchLoader(config, DecoupledSource(fmt, manifest, NULL, verify=verify), sampler)


class WatchedMover:
    """Reads as ever, and says so.

    Attributes:
        read_bytes: bytes read so far.
        reads: calls.
        gate: every read waits for it.
    """

    how = "a test's"
    cold = False

    def __init__(self) -> None:
        self._inner = open_mover()
        self._lock = threading.Lock()
        self.read_bytes = self.reads = 0
        self.gate = threading.Event()
        self.gate.set()

    def read(self, descriptors: Any, offsets: Any, lengths: Any, addresses: Any, request: int) -> None:
        self.gate.wait()
        self._inner.read(descriptors, offsets, lengths, addresses, request)
        with self._lock:
            self.read_bytes += int(np.sum(lengths))
            self.reads += 1

    def copy(self, sources: Any, lengths: Any, addresses: Any) -> None:
        self._inner.copy(sources, lengths, addresses)


def assert_same(want: Batch, got: Batch) -> None:
    """The same arrays in the same order, byte by byte."""
    assert list(want) == list(got)
    for name, tensor in want.items():
        other = got[name]
        assert (tensor.dtype, tensor.shape) == (other.dtype, other.shape), name
        assert tensor.numpy().tobytes() == other.numpy().tobytes(), name


def outcome(fmt: Format, manifest: Manifest) -> list[str]:
    """What comes of reading everything: nothing wrong, or one line for each batch that cannot be read."""
    sampler = BatchSampler(SamplerSpec(batch_size=7), num_samples=manifest.num_samples)
    loader = decoupled(fmt, manifest, sampler)
    batches, found = loader.epoch(0), []
    try:
        while True:
            try:
                next(batches)
            except DlioError as error:
                found.append(str(error))
            except StopIteration:
                return found
    finally:
        loader.close()


def watched(
    fmt: Format, manifest: Manifest, sampler: BatchSampler, **options: Any
) -> tuple[DecoupledEngine, WatchedMover]:
    """An engine whose reads are seen."""
    mover = WatchedMover()
    config = LoaderConfig(**{"engine": "decoupled", "timeout_s": 60.0, **options})
    return DecoupledEngine(config, DecoupledSource(fmt, manifest, NULL), sampler, mover), mover


class NotedMover(WatchedMover):
    """Remembers the reads of each file, in their order.

    Attributes:
        seen: first byte and length of each extent, by the file's inode.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[int, list[tuple[int, int]]] = {}
        self._one = threading.Lock()

    def read(self, descriptors: Any, offsets: Any, lengths: Any, addresses: Any, request: int) -> None:
        with self._one:
            for file in np.unique(descriptors).tolist():
                mine = np.flatnonzero(descriptors == file)
                inode = os.fstat(file).st_ino
                self.seen.setdefault(inode, []).extend(zip(offsets[mine].tolist(), lengths[mine].tolist(), strict=True))
        super().read(descriptors, offsets, lengths, addresses, request)


def feed_of(
    data: tuple[Config, Format, Manifest], access: dict[str, Any], train: dict[str, Any], rank: int, **loader: Any
) -> BatchLoader:
    """The loader of a rank of two, which compares samples with what was generated."""
    config, fmt, manifest = data
    config = replace(
        config,
        access=AccessConfig(**access),
        train=TrainConfig(**train),
        loader=LoaderConfig(**{"timeout_s": 60.0, **loader}),
        verify=True,
    )
    manifests = {"train": manifest}
    return assemble(config, fmt, manifests, plan_order(config, fmt, manifests, rank, 2), NULL).train


def assembled(
    data: tuple[Config, Format, Manifest],
    access: dict[str, Any],
    train: dict[str, Any],
    rank: int,
    first: tuple[int, int] = (0, 0),
    **loader: Any,
) -> list[Batch]:
    """The batches of a rank of two from an epoch and a step on, up to the end of the third epoch."""
    feed = feed_of(data, access, train, rank, **loader)
    epoch, step = first
    if step:
        feed.load_state_dict({**feed.state_dict(), "epoch": epoch, "step": step})
    taken = []
    for number in range(epoch, 3):
        batches = feed.epoch(number)
        for _ in range(step if number == epoch else 0, len(feed)):
            taken.append({name: tensor.clone() for name, tensor in next(batches).items()})
    feed.close()
    return taken


def as_bytes(batches: list[Batch]) -> list[Any]:
    """All that can differ in batches."""
    return [[(n, t.dtype, t.shape, t.numpy().tobytes()) for n, t in batch.items()] for batch in batches]


def good_and_bad(loader: BatchLoader) -> tuple[int, list[str]]:
    """Samples that come in the first epoch, and what is said in place of the others."""
    batches, good = loader.epoch(0), 0
    bad: list[str] = []
    while True:
        try:
            good += len(next(batches)["index"])
        except DataError as error:
            bad.append(str(error))
        except StopIteration:
            return good, bad
