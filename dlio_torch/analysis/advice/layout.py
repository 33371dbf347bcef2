"""Rules on what is read: how the data lie in their files, and how large the calls are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dlio_torch.analysis.advice.choice import Finding
from dlio_torch.analysis.advice.evidence import LEAST, Advice, Evidence, Predicted, Value
from dlio_torch.analysis.advice.text import percent, power_of_two, size_text, value_text
from dlio_torch.config.schema import Config, FieldConfig
from dlio_torch.units import format_size

AMPLIFIED = 1.5
"""From so many bytes read for each byte of a sample, the layout is looked at."""
SMALL = 16 << 10
"""Mean read calls up to this size are small: the time of a call weighs more than that of its bytes."""
MANY = 8
"""Read calls of a sample below which their size does not matter."""
MATTERS = 0.3
"""Share of the waits from which reading, or decoding, is looked at."""
DECODES = 0.5
"""Share of the waits from which decompression is."""
_LEAST_DECODE_S = 0.2  # the kernel counts in ticks of milliseconds: shorter sums mean nothing
_TRANSFER = (64 << 10, 1 << 20)  # least and most size that is advised

_TRANSFER_KEYS: Mapping[str, str] = {
    "tfrecord": "dataset.tfrecord.transfer_size",
    "csv": "dataset.csv.read_bytes",
    "npz": "dataset.npz.buffer_bytes",
    "npy": "dataset.npz.buffer_bytes",
    "jpeg": "dataset.image.buffer_bytes",
    "png": "dataset.image.buffer_bytes",
}
# Inflating takes about as long whatever the level was: only another filter, or none, decodes faster.
_COMPRESSION: Mapping[str, tuple[str, Value]] = {
    "hdf5": ("dataset.hdf5.compression", "none"),
    "tfrecord": ("dataset.tfrecord.compression", "none"),
    "netcdf": ("dataset.netcdf.compression", "none"),
    "netcdf_cf": ("dataset.netcdf.compression", "none"),
    "parquet": ("dataset.parquet.compression", "none"),
    "npz": ("dataset.npz.compressed", False),
    "larcv3": ("dataset.larcv3.compression_level", 0),
    "hdf5_volume": ("dataset.volume.compression_level", 0),
}
"""By format: the option, and its value without compression."""


def read_amplification(evidence: Evidence) -> Iterator[Finding]:
    """More is read than samples hold, because what is stored together is more than what is asked for."""
    read, size = evidence.number("reads.bytes_per_sample"), evidence.sample_bytes
    share = evidence.part("device", "page_cache", "decode", "read")
    if evidence.waits < LEAST or not read or not size or read < AMPLIFIED * size:
        return
    if share is None or share < MATTERS:
        return
    found = _layout(evidence.config, read / size)
    if found is None:
        yield (
            f"read amplification: {read / size:.1f} bytes are read for each of a sample, and no option is known to "
            "cause it"
        )
        return
    key, value, why, factor = found
    best = size * factor
    yield Advice(
        "read_amplification",
        key,
        value,
        f"{read / size:.1f} bytes are read for each byte of a sample ({why}); {key}={value} is predicted to bring that "
        f"to {factor:.1f} at best",
        (
            ("reads.bytes_per_sample", read),
            ("sample.bytes", size),
            ("stalls.shares.reading", share),
            ("shares.fetch", evidence.waits),
        ),
        Predicted(
            figure="reads.bytes_per_sample",
            now=read,
            low=best,
            high=None,
            gain_low=None,
            gain_high=max(0.0, evidence.waits * share * (1 - best / read)),
            assumption="reading and decoding take time in proportion to the bytes; the access pattern stays",
        ),
        "low",
    )


def _layout(config: Config, ratio: float) -> tuple[str, str, str, float] | None:
    """Option, value, reason, and bytes that will be read for each of a sample at best; None: not known."""
    data, access = config.dataset, config.access
    if data.format == "hdf5":
        return _hdf5(config)
    if data.format == "hdf5_volume":
        return _volume(config, ratio)
    if data.format == "parquet" and access.pattern == "samples" and access.order != "sequential":
        group, batch = data.parquet.row_group_samples, config.train.batch_size
        if group > batch:
            why = f"row groups of {group} samples are read whole for a few"
            return "dataset.parquet.row_group_samples", str(batch), why, 1.0
    if data.format == "tfrecord" and access.pattern == "samples" and access.order != "sequential":
        size = sum(_sample_bytes(item) for item in data.fields)
        fits = max(4096, power_of_two(size))
        if size and data.tfrecord.transfer_size >= 2 * fits:
            why = f"each read call asks for {size_text(data.tfrecord.transfer_size)}"
            return "dataset.tfrecord.transfer_size", size_text(fits), why, max(1.0, fits / size)
    return None


def _hdf5(config: Config) -> tuple[str, str, str, float] | None:
    data, hdf5 = config.dataset, config.dataset.hdf5
    for i, item in enumerate(data.fields):
        size = _sample_bytes(item)
        chunk = _chunk_bytes(item, hdf5.chunk_bytes)
        if chunk < 1.2 * size or not size:
            continue
        why = f"chunks of {format_size(chunk)} for samples of {format_size(size)}"
        in_order = config.access.order in ("sequential", "random_blocks")
        if in_order and chunk > hdf5.chunk_cache_bytes:
            # Its neighbours come next, but the chunk did not stay in the cache.
            return (
                "dataset.hdf5.chunk_cache_bytes",
                size_text(power_of_two(chunk)),
                f"{why}, not kept in the cache",
                1.0,
            )
        if in_order:
            continue
        if item.chunk is not None:
            return f"dataset.fields.{i}.chunk", f"[{','.join(map(str, (1, *item.shape)))}]".replace(" ", ""), why, 1.0
        return "dataset.hdf5.chunk_bytes", size_text(size), why, 1.0
    return None


def _volume(config: Config, ratio: float) -> tuple[str, str, str, float] | None:
    """Chunks that a patch touches hold prod(patch + chunk - 1) voxels on average, places being random."""
    volume = config.dataset.volume
    for i, array in enumerate(volume.arrays):
        smaller = [max(8, length // 2) for length in array.chunk]
        now, then = (_touched(volume.patch, chunk) for chunk in (array.chunk, smaller))
        if then <= 0.75 * now:
            why = f"a patch of {_by(volume.patch)} touches chunks of {_by(array.chunk)}"
            return f"dataset.volume.arrays.{i}.chunk", f"[{','.join(map(str, smaller))}]", why, ratio * then / now
    return None


def _touched(patch: Sequence[int], chunk: Sequence[int]) -> float:
    return math.prod((one + other - 1) / one for one, other in zip(patch, chunk, strict=True))


def _by(lengths: Sequence[int]) -> str:
    return "x".join(map(str, lengths))


def small_transfers(evidence: Evidence) -> Iterator[Finding]:
    """Many small read calls."""
    mean, calls = evidence.number("reads.mean_bytes"), evidence.number("reads.calls_per_sample")
    share = evidence.part("device", "page_cache", "read")
    if evidence.waits < LEAST or mean is None or mean > SMALL or calls is None or calls < MANY:
        return
    if share is None or share < MATTERS:
        return
    read = mean * calls
    found = _transfer(evidence.config, read)
    if found is None:
        yield f"larger transfers: read calls are of {format_size(mean)}, and no option is known to change that"
        return
    key, size = found
    least = max(1.0, read / size)
    yield Advice(
        "small_transfers",
        key,
        size_text(size),
        f"a sample takes {calls:.0f} read calls of {format_size(mean)}; {key}={size_text(size)} is predicted to bring "
        f"that to {least:.0f} at best",
        (
            ("reads.mean_bytes", mean),
            ("reads.calls_per_sample", calls),
            ("stalls.shares.reading", share),
            ("shares.fetch", evidence.waits),
        ),
        Predicted(
            figure="reads.calls_per_sample",
            now=calls,
            low=least,
            high=None,
            gain_low=None,
            gain_high=evidence.waits * share * (1 - least / calls),
            assumption="what a call costs beside its bytes was not measured; at best it is all of the time of reading",
        ),
        "low",
    )


def _transfer(config: Config, sample: float) -> tuple[str, int] | None:
    """Option and size of larger transfers; None where no option makes them larger."""
    data = config.dataset
    size = int(min(max(power_of_two(sample), _TRANSFER[0]), _TRANSFER[1]))
    key = _TRANSFER_KEYS.get(data.format)
    if key is None and data.format == "hdf5" and data.hdf5.chunk_bytes:
        largest = max((_sample_bytes(item) for item in data.fields), default=0)
        size = int(min(largest, _TRANSFER[1]))
        key = "dataset.hdf5.chunk_bytes"
    if key is None:
        return None
    _, group, name = key.split(".")
    now = int(getattr(getattr(data, group), name))
    return (key, size) if size >= 4 * max(now, 4096) else None


def compression(evidence: Evidence) -> Iterator[Finding]:
    """Waits are mostly for decompression."""
    share, seconds = evidence.part("decode"), evidence.number("stalls.parts.decode")
    if evidence.waits < LEAST or share is None or share < DECODES or seconds is None:
        return
    found = _COMPRESSION.get(evidence.config.dataset.format)
    if found is None:
        return
    key, value = found
    _, group, name = key.split(".")
    now = getattr(getattr(evidence.config.dataset, group), name)
    if now == value or evidence.config.dataset.path is not None:
        return
    if seconds < _LEAST_DECODE_S:
        yield f"less compression: {seconds:.2f} s of decoding are too little to tell it from copying"
        return
    if not evidence.allows({key: value}):
        return
    text = value_text(value)
    yield Advice(
        "compression",
        key,
        text,
        f"fetch waits {percent(evidence.waits)} of the time, {percent(share)} of that for decoding in the format's "
        f"library; {key}={text} (now {value_text(now)}) could save that, and reads more bytes",
        (
            ("shares.fetch", evidence.waits),
            ("stalls.shares.decode", share),
            ("stalls.parts.decode", seconds),
            ("reads.bytes_per_sample", evidence.number("reads.bytes_per_sample")),
            ("sample.bytes", evidence.sample_bytes),
        ),
        Predicted(
            figure="shares.fetch",
            now=evidence.waits,
            low=_without(evidence.waits, evidence.waits * share),
            high=None,
            gain_low=None,
            gain_high=evidence.waits * share,
            assumption="decoding is estimated, and all of it decompression; the storage gives larger files as fast",
        ),
        "low",
    )


def _without(share: float, saved: float) -> float:
    """A share of the time, when so much of the time is saved out of it."""
    return (share - saved) / (1 - saved) if saved < 1 else 0.0


def _sample_bytes(item: FieldConfig) -> int:
    return int(math.prod(item.shape) * np.dtype(item.dtype).itemsize * (item.length_mean or 1))


def _chunk_bytes(item: FieldConfig, default: int) -> int:
    return default if item.chunk is None else math.prod(item.chunk) * np.dtype(item.dtype).itemsize
