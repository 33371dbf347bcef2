"""Writes the synthetic data set: in parallel, atomically, and only what is missing.

A file has its final name only when it is complete and on the device, so whatever bears a final name
is used as it is.  A generation that was killed leaves ``.part`` files, which the next one removes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from dlio_torch.config.schema import Config
from dlio_torch.data import layout
from dlio_torch.data.layout import Manifest
from dlio_torch.dist.base import Communicator
from dlio_torch.errors import PreconditionError, RunFailed
from dlio_torch.formats.base import Format
from dlio_torch.trace.spans import Recorder
from dlio_torch.units import format_size

PART = ".part"
_LOCK = ".lock"
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Generated:
    """What a generation did, on all ranks.

    Attributes:
        written: files written now.
        reused: files that were already there.
        bytes: bytes written now.
        seconds: wall time.
    """

    written: int
    reused: int
    bytes: int
    seconds: float


@dataclass(frozen=True)
class _Job:
    path: Path
    first_sample: int
    num_samples: int


def generate(
    config: Config, fmt: Format, comm: Communicator, recorder: Recorder, progress: Progress | None = None
) -> Generated:
    """Write all missing files of the data set; each rank writes its share of them.

    Args:
        config: the experiment.
        fmt: the format of ``config.dataset``.
        comm: the ranks.
        recorder: for spans named ``generate``.
        progress: called on each rank with the files done and the files to do.

    Raises:
        PreconditionError: too little space, or another process is writing this data set.
        RunFailed: a file could not be written.
    """
    start = time.perf_counter()
    folder = layout.data_folder(config, fmt)
    with _exclusive(folder, comm):
        _use_description(config, fmt, folder, comm)
        jobs = list(_jobs(layout.generated(config, fmt)))
        todo = comm.broadcast_object(_missing(jobs, config.generate.overwrite) if comm.rank == 0 else [])
        if comm.rank == 0:
            _check_space(folder, sum(jobs[i].num_samples for i in todo) * fmt.stored_bytes())
        mine = todo[comm.rank :: comm.world_size]
        size = 0
        with ThreadPoolExecutor(config.generate.num_workers or os.cpu_count() or 1) as pool:
            for done, number in enumerate(mine):
                if progress is not None:
                    progress(done, len(mine))
                began = time.perf_counter_ns()
                written = _write(jobs[number], fmt, pool, fsync=config.generate.fsync)
                recorder.add("generate", began, time.perf_counter_ns(), file=str(jobs[number].path), bytes=written)
                size += written
        if progress is not None:
            progress(len(mine), len(mine))
        comm.barrier()
    total = comm.broadcast_object(sum(comm.gather_objects(size) or []))
    return Generated(len(todo), len(jobs) - len(todo), total, time.perf_counter() - start)


def _jobs(manifests: dict[str, Manifest]) -> Iterator[_Job]:
    for manifest in manifests.values():
        first = manifest.first_sample
        for file in range(manifest.num_files):
            yield _Job(manifest.path(file), first, manifest.count(file))
            first += manifest.count(file)


def _missing(jobs: list[_Job], overwrite: bool) -> list[int]:
    return [number for number, job in enumerate(jobs) if overwrite or not job.path.is_file()]


@contextlib.contextmanager
def _exclusive(folder: Path, comm: Communicator) -> Iterator[None]:
    """Rank 0 holds the folder's lock, so that two runs do not write the same data set at once."""
    if comm.rank != 0:
        comm.barrier()
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / _LOCK).open("w")
    except OSError as error:
        raise PreconditionError(
            f"the data set cannot be written to {folder}: {error.strerror}", hint="choose another dataset.root"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise PreconditionError(
                f"another process is writing {folder}", hint="wait for it, or choose another dataset.root"
            ) from error
        except OSError:
            pass  # a file system without locks: final names still appear only when files are complete
        for stale in folder.rglob(f".*{PART}"):
            stale.unlink(missing_ok=True)
        comm.barrier()
        yield


def _use_description(config: Config, fmt: Format, folder: Path, comm: Communicator) -> None:
    """Take the parameters of the data set that is there, or fix them for a new one."""
    parameters: dict[str, float] = {}
    if comm.rank == 0:
        found = layout.read_description(folder)
        if found is None:
            found = layout.describe(config, fmt)
            _publish(folder / layout.DESCRIPTION, json.dumps(found, indent=1))
        parameters = found["parameters"]
    fmt.use_parameters(comm.broadcast_object(parameters))


def _publish(path: Path, text: str) -> None:
    part = _part(path)
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}{PART}")


def _check_space(folder: Path, needed: float) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise PreconditionError(
            f"{folder} needs {format_size(int(needed))} and the file system has {format_size(free)} left",
            hint="choose another dataset.root, or a smaller scale",
        )


def _write(job: _Job, fmt: Format, pool: ThreadPoolExecutor, *, fsync: bool) -> int:
    """Write one file and give it its name; returns its bytes."""
    part = _part(job.path)
    try:
        job.path.parent.mkdir(parents=True, exist_ok=True)
        fmt.write(part, job.first_sample, job.num_samples, pool)
        if fsync:
            _fsync(part)
        size = part.stat().st_size
        part.replace(job.path)
        if fsync:
            _fsync(job.path.parent)
    except OSError as error:
        part.unlink(missing_ok=True)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise RunFailed(
            f"{job.path} could not be written: {error.strerror or error}",
            hint="free space, or choose another dataset.root; finished files are kept" if full else "see dataset.root",
        ) from error
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return size


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
