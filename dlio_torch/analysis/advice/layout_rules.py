"""Rules on the layout of data in files, and on the sizes of read calls."""

from __future__ import annotations

from collections.abc import Iterator

from dlio_torch.analysis.advice.advice_item import Advice, Predicted
from dlio_torch.analysis.advice.choice import Finding
from dlio_torch.analysis.advice.evidence import LEAST, Evidence
from dlio_torch.analysis.advice.value_text import value_text
from dlio_torch.config.schema import Config
from dlio_torch.formats.core.registry import facts
from dlio_torch.units import exact_size, format_size, percent, power_of_two

AMPLIFIED = 1.5
"""Read bytes per byte of a sample above which the file layout is judged."""
SMALL = 16 << 10
"""Bytes; read calls are small up to this mean size: their fixed cost outweighs the transfer."""
MANY = 8
"""Read calls per sample below which the size of the calls does not matter."""
MATTERS = 0.3
"""Share of the waits above which reading, or decoding, is judged."""
DECODES = 0.5
"""Share of the waits above which decompression is judged."""
_LEAST_DECODE_S = 0.2  # the kernel counts in ticks of milliseconds: shorter sums mean nothing
_TRANSFER = (64 << 10, 1 << 20)  # least and most size that is advised


def read_amplification(evidence: Evidence) -> Iterator[Finding]:
    """Rule on read amplification: files are read in chunks or blocks larger than the requested samples."""
    read, size = evidence.number("reads.bytes_per_sample"), evidence.sample_bytes
    share = evidence.part("device", "page_cache", "decode", "read")
    if evidence.waits < LEAST or not read or not size or read < AMPLIFIED * size:
        return
    if share is None or share < MATTERS:
        return
    if evidence.config.dataset.path is not None:  # written already, by options that nobody states here
        yield (
            f"read amplification: {read / size:.1f} bytes are read for each byte of a sample; `inspect` shows chunks "
            "and row groups of the files, which decide on that when they are written"
        )
        return
    change = facts(evidence.config.dataset.format).layout_advice(evidence.config, read / size)
    if change is None:
        yield (
            f"read amplification: {read / size:.1f} bytes are read for each byte of a sample, and no option is known "
            "that causes it"
        )
        return
    key, value, factor = change.key, change.value, change.amplification
    best = size * factor
    yield Advice(
        "read_amplification",
        key,
        value,
        f"read amplification: {read / size:.1f} bytes are read for each byte of a sample ({change.reason}); with "
        f"{key}={value}, {factor:.1f} bytes or more are predicted",
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
            assumption="reading and decoding times are proportional to the bytes; the access pattern does not change",
        ),
        "low",
    )


def small_transfers(evidence: Evidence) -> Iterator[Finding]:
    """Rule on many small read calls per sample."""
    mean, calls = evidence.number("reads.mean_bytes"), evidence.number("reads.calls_per_sample")
    share = evidence.part("device", "page_cache", "read")
    if evidence.waits < LEAST or mean is None or mean > SMALL or calls is None or calls < MANY:
        return
    if share is None or share < MATTERS:
        return
    read = mean * calls
    transfer = _transfer(evidence.config, read)
    if transfer is None:
        yield (
            f"larger read calls: the mean read call returns only {format_size(mean)}, and no option is known that "
            "enlarges it"
        )
        return
    key, size = transfer
    least = max(1.0, read / size)
    yield Advice(
        "small_transfers",
        key,
        exact_size(size),
        f"a sample takes {calls:.0f} read calls of {format_size(mean)}; with {key}={exact_size(size)}, {least:.0f} "
        "or more calls are predicted",
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
            assumption=(
                "the fixed cost of a read call was not measured; the best case assumes that it is all of the "
                "reading time"
            ),
        ),
        "low",
    )


def _transfer(config: Config, sample: float) -> tuple[str, int] | None:
    """Option and value that enlarge the read calls; None if there is no such option."""
    wanted = int(min(max(power_of_two(sample), _TRANSFER[0]), _TRANSFER[1]))
    change = facts(config.dataset.format).larger_transfers(config, wanted, _TRANSFER[1])
    if change is None:
        return None
    key, present, size = change
    return (key, size) if size >= 4 * max(present, 4096) else None


def compression(evidence: Evidence) -> Iterator[Finding]:
    """Rule on decompression that causes most of the waits."""
    share, seconds = evidence.part("decode"), evidence.number("stalls.parts.decode")
    if evidence.waits < LEAST or share is None or share < DECODES or seconds is None:
        return
    about = facts(evidence.config.dataset.format)
    if about.uncompressed is None:
        return
    name, value = about.uncompressed
    key, now = about.key(name), about.value(evidence.config, name)
    if now == value or evidence.config.dataset.path is not None:
        return
    if seconds < _LEAST_DECODE_S:
        yield f"less compression: {seconds:.2f} s of decoding are too short to separate decompression from copying"
        return
    if not evidence.allows({key: value}):
        return
    text = value_text(value)
    yield Advice(
        "compression",
        key,
        text,
        f"steps wait for data {percent(evidence.waits)} of the time, {percent(share)} of this wait for decoding in "
        f"the format's library; {key}={text} (now {value_text(now)}) could avoid the decoding, but reads more bytes",
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
            assumption=(
                "the decoding time is an estimate and is all decompression; the storage delivers the larger files "
                "at the same rate of samples"
            ),
        ),
        "low",
    )


def _without(share: float, saved: float) -> float:
    """Share of the waits in the time that remains after a part of the waits is saved."""
    return (share - saved) / (1 - saved) if saved < 1 else 0.0
