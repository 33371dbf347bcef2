"""The calls of PyTorch and of file libraries that a configuration stands for, as text to copy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from dlio_torch.config.schema import Config, FieldConfig, LoaderConfig
from dlio_torch.formats.core.chunk_shapes import chunk_shape
from dlio_torch.formats.hdf5.file import CHUNK_SLOTS, CHUNK_W0
from dlio_torch.sweep.tune.axes import prefetch_factor

Call = tuple[str, str]
"""What it is, and its text."""

_WIDTH = 100


def loader_call(config: Config, ranks: int) -> Call:
    """The loader: a ``DataLoader``, torchdata's nodes where threads read ahead, which it cannot do, or our own."""
    if config.loader.engine == "decoupled":
        return "dlio_torch (PyTorch has no such loader)", _decoupled(config)
    batch = config.train.batch_size // (ranks if config.train.batch_scope == "global" else 1)
    if config.loader.read_threads:
        return "torchdata.nodes (a DataLoader has no reader threads)", _nodes(config, ranks, batch)
    return "DataLoader(...)", _call("torch.utils.data.DataLoader", ["dataset"], _options(config, ranks, batch))


def _options(config: Config, ranks: int, batch: int) -> dict[str, Any]:
    loader = config.loader
    options: dict[str, Any] = {"batch_size": batch}
    if config.access.pattern == "samples":
        if ranks > 1 or config.access.order not in ("sequential", "shuffled"):
            options["sampler"] = _Name(_sampler(config, ranks))
        else:
            options["shuffle"] = config.access.order == "shuffled"
    options |= {
        "drop_last": config.access.tail == "drop",
        "num_workers": loader.num_workers,
        "pin_memory": loader.pin_memory,
    }
    if loader.num_workers:
        options["prefetch_factor"] = prefetch_factor(loader)
        options["persistent_workers"] = loader.persistent_workers
        if loader.multiprocessing_context:
            options["multiprocessing_context"] = loader.multiprocessing_context
    if not loader.in_order:
        options["in_order"] = False
    return options


def _sampler(config: Config, ranks: int) -> str:
    shuffled = config.access.order == "shuffled"
    if config.access.order not in ("sequential", "shuffled"):
        return "sampler"  # an order of the application's own
    if ranks > 1:
        return f"torch.utils.data.DistributedSampler(dataset, shuffle={shuffled})"
    return f"torch.utils.data.{'RandomSampler' if shuffled else 'SequentialSampler'}(dataset)"


def _decoupled(config: Config) -> str:
    defaults = LoaderConfig()
    names = [field.name for field in fields(defaults)]
    options = {name: getattr(config.loader, name) for name in names}
    changed = {name: value for name, value in options.items() if value != getattr(defaults, name)}
    return _call("dlio_torch.config.schema.LoaderConfig", [], changed)


def _nodes(config: Config, ranks: int, batch: int) -> str:
    loader = config.loader
    # More reads at a time than batches ahead cannot be.
    reading = min(loader.read_threads, loader.prefetch_batches)
    waiting = loader.prefetch_batches - reading
    lines = [
        "import torchdata.nodes as tn",
        "",
        "batches = torch.utils.data.BatchSampler(",
        f"    {_sampler(config, ranks)}, batch_size={batch}, drop_last={config.access.tail == 'drop'}",
        ")",
        "",
        "",
        "def read(indices):",
        "    return torch.utils.data.default_collate([dataset[i] for i in indices])",
        "",
        "",
        f'node = tn.ParallelMapper(tn.SamplerWrapper(batches), read, num_workers={reading}, method="thread")',
    ]
    if waiting:
        lines.append(f"node = tn.Prefetcher(node, prefetch_factor={waiting})")
    if loader.pin_memory:
        lines.append("node = tn.PinMemory(node)")
    return "\n".join([*lines, "loader = tn.Loader(node)"])


def data_calls(config: Config, searched: Sequence[str]) -> Iterator[Call]:
    """Calls that write and open the files, for the options of the data that were searched."""
    if not any(key.split(".")[0] == "dataset" for key in searched):
        return
    make = _FORMATS.get(config.dataset.format)
    if make is not None:
        yield from make(config)


def _hdf5(config: Config) -> Iterator[Call]:
    options = config.dataset.hdf5
    calls = [_dataset(config, field) for field in config.dataset.fields]
    yield "create_dataset(...)", "\n".join(calls)
    yield "h5py.File(...)", _opened(options.chunk_cache_bytes, core=options.driver == "core")


def _opened(cache_bytes: int, *, core: bool = False) -> str:
    options: dict[str, Any] = {"rdcc_nbytes": cache_bytes, "rdcc_nslots": CHUNK_SLOTS, "rdcc_w0": CHUNK_W0}
    if core:
        options |= {"driver": "core", "backing_store": False}
    return _call("h5py.File", ["path", '"r"'], options)


def _dataset(config: Config, field: FieldConfig) -> str:
    options = config.dataset.hdf5
    rows = max(1, round(config.dataset.samples_per_file * (field.length_mean or 1)))
    shape = (rows, *field.shape)
    chunks: tuple[int, ...] | None = None
    if field.chunk is not None:
        chunks = tuple(min(a, b) for a, b in zip(field.chunk, shape, strict=True))
    elif options.chunk_bytes:
        chunks = chunk_shape(rows, tuple(field.shape), np.dtype(field.dtype).itemsize, options.chunk_bytes)
    keywords: dict[str, Any] = {"shape": shape, "dtype": field.dtype, "chunks": chunks}
    if chunks is not None and options.compression != "none":
        keywords["compression"] = options.compression
        if options.compression == "gzip":
            keywords["compression_opts"] = options.compression_level
    return _call("file.create_dataset", [_literal(field.name)], keywords)


def _larcv3(config: Config) -> Iterator[Call]:
    yield "h5py.File(...)", _opened(config.dataset.larcv3.chunk_cache_bytes)


def _volume(config: Config) -> Iterator[Call]:
    yield "h5py.File(...)", _opened(config.dataset.volume.chunk_cache_bytes)


def _tfrecord(config: Config) -> Iterator[Call]:
    options = config.dataset.tfrecord
    keywords: dict[str, Any] = {"buffer_size": options.transfer_size}
    if options.compression == "gzip":
        keywords["compression_type"] = "GZIP"
    yield "TFRecordDataset(...)", _call("tf.data.TFRecordDataset", ["files"], keywords)


def _parquet(config: Config) -> Iterator[Call]:
    options = config.dataset.parquet
    keywords = {"row_group_size": options.row_group_samples, "compression": options.compression}
    yield "write_table(...)", _call("pyarrow.parquet.write_table", ["table", "path"], keywords)


def _buffered(config: Config) -> Iterator[Call]:
    size = config.dataset.npz.buffer_bytes
    if size:
        yield "open(...)", f'file = open(path, "rb", buffering={size})\narrays = numpy.load(file)'


def _binary(config: Config) -> Iterator[Call]:
    if config.dataset.binary.access == "mmap":
        yield "memmap(...)", 'numpy.memmap(path, mode="r")'
    else:
        size = math.prod(config.dataset.fields[0].shape) if config.dataset.fields else "count"
        dtype = config.dataset.fields[0].dtype if config.dataset.fields else "uint8"
        yield "fromfile(...)", _call("numpy.fromfile", ["path"], {"dtype": dtype, "count": size, "offset": _Name("at")})


_FORMATS: dict[str, Callable[[Config], Iterator[Call]]] = {
    "hdf5": _hdf5,
    "larcv3": _larcv3,
    "hdf5_volume": _volume,
    "tfrecord": _tfrecord,
    "parquet": _parquet,
    "npz": _buffered,
    "npy": _buffered,
    "indexed_binary": _binary,
}


class _Name(str):
    """Text that is code, not a value."""


def _call(name: str, arguments: Sequence[str], keywords: dict[str, Any]) -> str:
    parts = [*arguments, *(f"{key}={_literal(value)}" for key, value in keywords.items())]
    line = f"{name}({', '.join(parts)})"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), ")"])


def _literal(value: Any) -> str:
    if isinstance(value, _Name):
        return str(value)
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' if isinstance(value, str) else repr(value)
