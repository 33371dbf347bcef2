"""Collects the results of all ranks into ``summary.json``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dlio_torch.analysis.cache import from_device, maps_files, uncached_bytes
from dlio_torch.analysis.checkpoint_part import checkpoint_part
from dlio_torch.analysis.device_decoding import decoding_figures
from dlio_torch.analysis.goodput_inputs import goodput_part
from dlio_torch.analysis.mpiio_requests import of_ranks
from dlio_torch.analysis.reader_summary import reader_summary
from dlio_torch.analysis.step_metrics import summarise
from dlio_torch.checkpoint.registry import layout_of
from dlio_torch.config.schema import Config
from dlio_torch.environment.cores import IDLE_LEAST_S
from dlio_torch.iotrace.recorder.io_counters import IoCounters
from dlio_torch.storage.cache_state import CachePreparation, DataSize
from dlio_torch.storage.staging import Staged
from dlio_torch.train.order import comparable_settings, whole
from dlio_torch.train.result import EpochFigures, TrainResult


@dataclass(frozen=True)
class RankResult:
    """Result that one rank sends to rank 0.

    Attributes:
        train: steps and epochs.
        load_s: seconds that reading the data set into memory took, ``None`` if it was not.
        load_bytes: bytes that were read into memory, ``None`` likewise.
        load_io: what the kernel counted meanwhile, ``None`` likewise and where it does not tell.
        emulator: what spent the compute time.
        mpi_io: what was asked of MPI-IO, ``None`` where files were read by POSIX calls.
        staged: what was copied to storage of the node, epoch by epoch.
        loader_io: what read the extents of the files, see
            :func:`~dlio_torch.data.engines.decoupled.reading_io.effective_io`; ``None`` for other engines.
    """

    train: TrainResult
    load_s: float | None
    load_bytes: int | None
    load_io: IoCounters | None
    emulator: dict[str, Any]
    mpi_io: dict[str, Any] | None = None
    staged: Sequence[Staged] = ()
    loader_io: dict[str, str | int | None] | None = None


def collect(
    config: Config,
    ranks: Sequence[RankResult],
    *,
    reads_files: bool,
    reads_by_calls: bool,
    device: bool,
    size: DataSize | None,
    prepared: Sequence[CachePreparation],
    about: dict[str, Any],
) -> dict[str, Any]:
    """Builds the content of ``summary.json``.

    Definitions, over all ranks and the time of the epochs (evaluation included, generation, restore and
    loading into memory left out; staging is before the epochs, or a pause between them)::

        reads.bytes_per_sample  bytes that read calls returned (rchar) / samples delivered
        reads.calls_per_sample  read calls (syscr) / samples delivered
        reads.mean_bytes        rchar / syscr
        load.mean_bytes         the same for the time in which the data set was read into memory
        order[].crc32           CRC-32 of the sample numbers of an epoch's steps, in global order
                                (:mod:`dlio_torch.train.order`)
        order_comparable        settings with which other runs have the same ``order[].crc32``

    They are the kernel's counts of the ranks' processes and their loader workers: the trainer's own
    few reads are among them, page faults of mapped files are not.

    Args:
        config: the resolved configuration.
        ranks: the results in the order of ranks.
        reads_files: whether batches came from files during the epochs.
        reads_by_calls: whether they were read by calls, which the kernel counts; not by io_uring.
        device: whether the kernel counts the bytes that the data's device delivers.
        size: of the data, ``None`` where there are no files.
        prepared: what was done with the page cache, or only looked at, before epochs.
        about: what the caller knows of the run; becomes part of the summary.
    """
    results = [rank.train for rank in ranks]
    layout = layout_of(config.checkpoint.layout)
    counted_with = [
        [
            (epoch.io, None if size is None else uncached_bytes(config, size, prepared, epoch.epoch))
            for epoch in result.epochs
        ]
        for result in results
    ]
    counters = [[epoch.io for epoch in result.epochs] for result in results]
    samples = sum(int(result.steps["samples"].sum()) for result in results)
    counts_calls = reads_files and reads_by_calls
    rchar = _total(counters, "rchar") if counts_calls else None
    syscr = _total(counters, "syscr") if counts_calls else None
    extra: dict[str, Any] = {
        **about,
        "published_on": {
            "system": config.system.name,
            "world_size": config.system.world_size,
            "ranks_per_node": config.system.ranks_per_node,
        },
        "emulator": ranks[0].emulator,
        "stage": _stage(config, ranks),
        "load": _load(ranks),
        "restore": {
            "seconds": [None if result.restored is None else result.restored.seconds for result in results],
            "bytes": [None if result.restored is None else result.restored.bytes for result in results],
        },
        "saved": {
            "checkpoints": sum(len(result.saves) for result in results),
            "bytes": sum(result.checkpoint_bytes for result in results),
            "fsync": None if layout is None else layout.flushes(config),
        },
        "reads": {
            "samples": samples,
            "bytes_per_sample": _ratio(rchar, samples),
            "calls_per_sample": _ratio(syscr, samples),
            "mean_bytes": _ratio(rchar, syscr),
        },
        "order": _order(results),
        "order_comparable": comparable_settings(config, len(ranks)),
        "mpi_io": of_ranks([rank.mpi_io for rank in ranks]),
        "loader_io": [rank.loader_io for rank in ranks],
        "verified_samples": samples if config.verify else None,
        "gpu": results[0].gpu,
        "copies_ahead": [result.copies_ahead for result in results],
        "device_decoding": decoding_figures([result.decoding for result in results]),
        "workers": reader_summary(config, [result.readers for result in results]),
        "pauses": [result.pauses for result in results],
        "epochs": [
            [
                {
                    "epoch": e.epoch,
                    "seconds": e.seconds,
                    "io": _counted(e.io, device),
                    "idle_cores": _idle_cores(e),
                }
                for e in result.epochs
            ]
            for result in results
        ],
        "io": [
            {
                "rchar": _total([epochs], "rchar") if counts_calls else None,
                "read_bytes": _total([epochs], "read_bytes") if reads_files and device else None,
                "from_device": from_device(counted) if counts_calls and device and not maps_files(config) else None,
                "cached_share": prepared[0].cached_share if prepared else None,
            }
            for epochs, counted in zip(counters, counted_with, strict=True)
        ],
    }
    summary = summarise([result.steps for result in results], config=config, extra=extra)
    summary["checkpoints"].update(checkpoint_part(results))
    return {**summary, "goodput": goodput_part(summary, config)}


def _order(results: Sequence[TrainResult]) -> list[dict[str, Any]]:
    """Checksum of the sample order of each epoch, from the first step that this run took."""
    rows = []
    for epochs in zip(*(result.epochs for result in results), strict=True):
        crc, part = whole([epoch.order for epoch in epochs]), epochs[0].order
        rows.append(
            {
                "epoch": epochs[0].epoch,
                "first_step": epochs[0].first_step,
                "steps": part.steps if part is not None else None,
                "crc32": f"{crc:08x}" if crc is not None else None,
            }
        )
    return rows


def _stage(config: Config, ranks: Sequence[RankResult]) -> dict[str, Any] | None:
    """Summary of the copies staged: a row for each rank and epoch with files to copy."""
    if config.stage.dir is None:
        return None
    rows = [asdict(staged) for rank in ranks for staged in rank.staged]
    epochs = {row["epoch"] for row in rows}
    seconds = sum(max(row["seconds"] for row in rows if row["epoch"] == epoch) for epoch in epochs)
    size = sum(row["bytes"] for row in rows)
    return {
        "dir": config.stage.dir,
        "per": config.stage.per,
        "files": sum(row["files"] for row in rows),
        "reused": sum(row["reused"] for row in rows),
        "bytes": size,
        "seconds": seconds,
        "bytes_per_s": size / seconds if size and seconds else None,
        "ranks": rows,
    }


def _load(ranks: Sequence[RankResult]) -> dict[str, Any]:
    loads = [[rank.load_io] for rank in ranks]
    rchar, syscr = _total(loads, "rchar"), _total(loads, "syscr")
    return {
        "seconds": [rank.load_s for rank in ranks],
        "bytes": [rank.load_bytes for rank in ranks],
        "rchar_bytes": rchar,
        "calls": syscr,
        "mean_bytes": _ratio(rchar, syscr),
    }


def _counted(io: IoCounters | None, device: bool) -> dict[str, int | None] | None:
    """The kernel's I/O counters as plain values; device bytes are None on file systems without a device."""
    return None if io is None else {**asdict(io), "read_bytes": io.read_bytes if device else None}


def _idle_cores(epoch: EpochFigures) -> float | None:
    if epoch.idle_core_s is None or epoch.seconds < IDLE_LEAST_S:
        return None
    return epoch.idle_core_s / epoch.seconds


def _total(counters: Sequence[Sequence[IoCounters | None]], name: str) -> int | None:
    total = 0
    for rank in counters:
        for epoch in rank:
            if epoch is None:
                return None
            total += int(getattr(epoch, name))
    return total


def _ratio(a: int | None, b: int | None) -> float | None:
    return a / b if a is not None and b else None
