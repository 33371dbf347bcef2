"""Rules on memory: data that fit into memory, and a page cache that hides the storage."""

from __future__ import annotations

from collections.abc import Iterator

from dlio_torch.analysis.advice.advice_item import Advice
from dlio_torch.analysis.advice.choice import Finding, unusable
from dlio_torch.analysis.advice.evidence import LEAST, Evidence
from dlio_torch.analysis.advice.value_text import outlook
from dlio_torch.analysis.cache import WARM
from dlio_torch.units import format_size, percent

READS = 0.3
"""Share of production above which reading is worth avoiding."""
COPY = 1 << 30
"""Smallest rate in bytes per second at which a batch is copied from memory."""


def in_memory(evidence: Evidence) -> Iterator[Finding]:
    """Rule on data that are read again in each epoch, but would fit into memory."""
    config, model = evidence.config, evidence.model
    samples, size = _samples(evidence), evidence.sample_bytes
    if evidence.waits < LEAST or config.train.epochs < 2 or config.loader.in_memory or not samples or not size:
        return
    if evidence.number("io.rchar_bytes") is None or not evidence.allows({"loader.in_memory": True}):
        return
    if model is None or unusable(evidence):
        return
    production, read, prepared = model.mean("production"), model.mean("read"), model.mean("preprocess")
    if not production or read is None or read < READS * production:
        return
    memory = evidence.memory
    share = 1 if config.access.partition == "none" else max(1, int(evidence.summary.get("world_size") or 1))
    needed = samples * size / share
    if memory is None or needed > memory / 2:
        return
    if evidence.amount_scaled:
        yield (
            "reading into memory: the scale reduces the data set of this run; the full data set may not fit into memory"
        )
        return
    predicted = evidence.forecast(
        model.setup,
        sure=True,
        assumption="the data are read and preprocessed once before training; this time is not counted",
        changed=model.without(("read", "preprocess"), (evidence.batch_bytes or 0.0) / COPY),
    )
    if (predicted.gain_low or 0.0) < LEAST:
        return
    yield Advice(
        "in_memory",
        "loader.in_memory",
        "true",
        f"steps wait for data {percent(evidence.waits)} of the time, reading is {percent(read / production)} of the "
        f"production of a batch, and a rank's data ({format_size(needed)}) fit into its memory "
        f"({format_size(memory)} free); loader.in_memory=true {outlook(predicted)}",
        (
            ("shares.fetch", evidence.waits),
            ("making.seconds_per_batch", production),
            ("making.read_s", read),
            ("making.preprocess_s", prepared),
            ("data.bytes_of_a_rank", needed),
            ("environment.memory.available_bytes", memory),
            ("train.epochs", config.train.epochs),
        ),
        predicted,
        "medium",
    )


def cold_cache(evidence: Evidence) -> Iterator[Finding]:
    """Rule on runs whose bytes came from the page cache, so that their figures do not show the storage."""
    delivered, requested = evidence.number("io.device_read_share"), evidence.number("io.rchar_bytes")
    if delivered is None or not requested or delivered > WARM or evidence.config.cache_goal != "as_is":
        return
    if evidence.figure("cache.warnings"):  # which say the same
        return
    before = evidence.number("io.cached_share_before")
    fits = evidence.figure("cache.fits_in_memory")
    known = "" if before is None else f", {percent(before)} of the data were in the page cache before the run"
    more = (
        ("; add cache.every_epoch=true to measure the storage in each epoch")
        if evidence.config.train.epochs > 1 and fits
        else ""
    )
    yield Advice(
        "cold_cache",
        "cache.state",
        "cold",
        f"the device delivered only {percent(delivered)} of the bytes read{known}: the figures of this run show "
        f"memory, not storage; set cache.state=cold to measure the storage{more}",
        (
            ("io.device_read_share", delivered),
            ("io.rchar_bytes", requested),
            ("io.cached_share_before", before),
            ("cache.fits_in_memory", fits),
        ),
        None,
        "high",
    )


def _samples(evidence: Evidence) -> int:
    data = evidence.config.dataset
    if data.path is None:
        return data.num_files * data.samples_per_file
    return int(evidence.number("dataset.layout.samples") or 0)
