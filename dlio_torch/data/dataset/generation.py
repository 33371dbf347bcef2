"""Writes the synthetic data set: in parallel, atomically, and only what is missing.

A file has its final name only when it is complete and on the device, so whatever bears a final name
is used as it is.  A generation that was killed leaves ``.part`` files, which the next one removes.

Threads make the content of a file in pieces while others are written; where a format's writer stands it, several
files are under way at once, so that the device is not left alone while one is created, flushed or named.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import Config
from dlio_torch.data.dataset import description
from dlio_torch.data.dataset import manifest as layout
from dlio_torch.data.dataset.checksum import CHECKSUMS, make_checksums
from dlio_torch.data.dataset.disk_space import OTHER_ROOT, stored_bytes
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.dataset.once import OnceFiles
from dlio_torch.data.dataset.visibility import check_seen
from dlio_torch.dist.base import Communicator
from dlio_torch.environment.cores import whole_cores
from dlio_torch.errors import DlioError, PreconditionError
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.ordered_map import in_order
from dlio_torch.ownership.marker import KEY
from dlio_torch.storage.base import Storage
from dlio_torch.storage.local.atomic_file import PART, part_name
from dlio_torch.storage.local.stored_paths import in_the_way, remove, size_of, true_error
from dlio_torch.storage.registry import open_storage
from dlio_torch.syserrors import refused
from dlio_torch.trace.spans import Recorder
from dlio_torch.units import format_size

LOCK = description.LOCK
_STALE = re.compile(
    rf"\.({'|'.join(layout.SPLITS)})_[0-9]{{7,}}.*{re.escape(PART)}.*|\.dlio_torch\.\w+\.[0-9]+{re.escape(PART)}"
)
_FLUSHING = 4  # files under way for each thread: most of the time of a small one is spent waiting for the device
_UNDER_WAY_BYTES = 256 << 20  # in files under way, beyond which two are enough
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Generated:
    """What a generation did, on all ranks.

    Attributes:
        written: files written now.
        reused: files that were already there.
        bytes: bytes written now.
        data_bytes: bytes of all files of the data set.
        seconds: wall time, without the checksum's.
        checksum: of the data set, where it was asked for; see :mod:`dlio_torch.data.dataset.checksum`.
    """

    written: int
    reused: int
    bytes: int
    data_bytes: int
    seconds: float
    checksum: str | None = None


@dataclass(frozen=True)
class _Job:
    path: Path
    name: str  # below the folder of the data set
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
        PreconditionError: too little space, another process is writing this data set, or something else bears the name
            of a file.
        DlioError: a file could not be written (see :mod:`dlio_torch.syserrors`).
    """
    start = time.perf_counter()
    folder, once = layout.data_folder(config, fmt), OnceFiles(config, fmt)
    storage = open_storage(folder)
    with _exclusive(folder, comm):
        _use_description(config, fmt, folder, comm)
        jobs = _Jobs(list(layout.generated(config, fmt).values()))
        todo, there_bytes = _to_write(jobs, fmt, comm, overwrite=config.generate.overwrite)
        replaced_bytes = there_bytes if config.generate.overwrite else 0
        sample_bytes = 0.0
        if comm.rank == 0:
            sample_bytes = stored_bytes(fmt)
            _require_space(jobs.samples(todo) * sample_bytes - replaced_bytes, folder)
        sample_bytes = comm.broadcast_object(sample_bytes)
        mine = todo[comm.rank :: comm.world_size].tolist()
        size = 0
        if progress is not None:
            progress(0, len(mine))
        try:
            with contextlib.closing(_writing(config, fmt, storage, recorder, jobs, mine, sample_bytes)) as sizes:
                for done, written in enumerate(sizes, start=1):
                    size += written
                    if progress is not None:
                        progress(done, len(mine))
            if comm.rank == 0:
                size += once.write(overwrite=config.generate.overwrite, fsync=config.generate.fsync)
        except DlioError as error:
            error.leave_at_once = True  # HDF5 crashes where a file is freed that could not be closed
            raise
        comm.barrier()
        total = comm.broadcast_object(sum(comm.gather_objects(size) or []))
        seconds, checksum = time.perf_counter() - start, None
        if config.generate.checksum:
            manifests = list(layout.generated(config, fmt).values())
            checksum = make_checksums(folder, manifests, fmt, comm, config.generate.num_workers or whole_cores())
        elif len(todo) and comm.rank == 0:
            (folder / CHECKSUMS).unlink(missing_ok=True)  # that of other files
    data_bytes = there_bytes - replaced_bytes + total
    return Generated(len(todo), len(jobs) - len(todo), total, data_bytes, seconds, checksum)


def _writing(
    config: Config,
    fmt: Format,
    storage: Storage,
    recorder: Recorder,
    jobs: _Jobs,
    mine: list[int],
    sample_bytes: float,
) -> Generator[int, None, None]:
    """Write the files of these numbers; yields the bytes of each, in this order."""
    threads, fsync = config.generate.num_workers or whole_cores(), config.generate.fsync
    folders: set[str] = set()

    def write(number: int) -> int:
        job = jobs[number]
        began = time.perf_counter_ns()
        written = _write(job, fmt, storage, pool, job.num_samples * sample_bytes, fsync=fsync)
        recorder.add("generate", began, time.perf_counter_ns(), file=str(job.path), bytes=written)
        folders.add(job.name.rpartition("/")[0])
        return written

    at_once = 1
    if fmt.writes_at_once and mine:
        largest = max(1.0, jobs[mine[0]].num_samples * sample_bytes)
        at_once = max(2, min(threads * (_FLUSHING if fsync else 1), int(_UNDER_WAY_BYTES / largest)))
    with _threads(threads, at_once) as (pool, files):
        yield from in_order(files, write, mine, 2 * at_once) if at_once > 1 else map(write, mine)
    for folder in folders if fsync else ():
        storage.sync_folder(folder)


@contextlib.contextmanager
def _threads(contents: int, files: int) -> Iterator[tuple[Executor, Executor]]:
    """Threads that make content, and threads that write files; where something fails, all of them end early."""
    with ThreadPoolExecutor(contents) as pool, ThreadPoolExecutor(files) as writers:
        try:
            yield pool, writers
        except BaseException:
            # A file that is under way gets no further content: it fails, and is removed.
            for executor in (pool, writers):
                executor.shutdown(wait=False, cancel_futures=True)
            raise


class _Jobs:
    """The files of all splits by number; made when asked for, as there may be millions."""

    def __init__(self, manifests: list[Manifest]) -> None:
        self._manifests = manifests

    def __len__(self) -> int:
        return sum(manifest.num_files for manifest in self._manifests)

    def __getitem__(self, number: int) -> _Job:
        for manifest in self._manifests:
            if number < manifest.num_files:
                count = manifest.count(number)  # the same in each generated file
                path = manifest.path(number)
                name = path.relative_to(manifest.folder).as_posix()
                return _Job(path, name, manifest.first_sample + number * count, count)
            number -= manifest.num_files
        raise IndexError(number)

    def shares(self, rank: int, world_size: int) -> Iterator[tuple[int, str]]:
        """Number and path of each file that is the rank's to look at."""
        first = 0
        for manifest in self._manifests:
            for file in range((rank - first) % world_size, manifest.num_files, world_size):
                yield first + file, manifest.path_text(file)
            first += manifest.num_files

    def samples(self, numbers: npt.NDArray[np.int64]) -> int:
        """Samples of these files."""
        first = total = 0
        for manifest in self._manifests:
            inside = numbers[(numbers >= first) & (numbers < first + manifest.num_files)] - first
            total += int(manifest.counts().array(inside).sum())
            first += manifest.num_files
        return total


def _to_write(jobs: _Jobs, fmt: Format, comm: Communicator, *, overwrite: bool) -> tuple[npt.NDArray[np.int64], int]:
    """Numbers of the files that are missing, or that miss what belongs to them, or of all, and bytes of the others.

    Each rank looks at its share of the files, at each once; what they have found goes from rank to rank as a bit for
    each file.  With ``overwrite`` the numbers are those of all files, and the bytes those that are there already.
    """
    mine, size = np.zeros(len(range(comm.rank, len(jobs), comm.world_size)), bool), 0
    for number, path in jobs.shares(comm.rank, comm.world_size):
        found = fmt.stored_size(path)
        if found is None:
            mine[number // comm.world_size] = True
        else:
            size += found
    everyone = comm.gather_objects((np.packbits(mine), size))
    missing, total = np.full(len(jobs), overwrite), 0
    for rank, (bits, there) in enumerate(everyone or []):
        part = missing[rank :: comm.world_size]
        part |= np.unpackbits(bits, count=len(part)).astype(bool)
        total += there
    packed = comm.broadcast_object((np.packbits(missing), total))
    assert packed is not None
    every, total = packed
    return np.flatnonzero(np.unpackbits(every, count=len(jobs))), total


def _require_space(needed: float, folder: Path) -> None:
    """Raise unless ``needed`` bytes have room.

    Raises:
        PreconditionError: there is too little space for them.
    """
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise PreconditionError(
            f"{folder} needs {format_size(int(needed))} and the file system has {format_size(free)} left",
            hint=OTHER_ROOT,
        )


@contextlib.contextmanager
def _exclusive(folder: Path, comm: Communicator) -> Iterator[None]:
    """Rank 0 holds the folder's lock, so that two runs do not write the same data set at once."""
    if comm.rank != 0:
        comm.barrier()
        yield
        return
    with contextlib.ExitStack() as stack:
        with _unwritable(folder):
            folder.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context((folder / LOCK).open("w"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise PreconditionError(
                f"another process is writing {folder}", hint="wait for it, or choose another dataset.root"
            ) from error
        except OSError:
            pass  # a file system without locks: final names still appear only when files are complete
        with _unwritable(folder):
            for stale in list(_unfinished(folder)):
                remove(stale)
        comm.barrier()
        yield


def _unfinished(folder: Path | str) -> Iterator[Path]:
    """What a generation that was killed has left, by the names in the folder and its subfolders."""
    with contextlib.suppress(PermissionError), os.scandir(folder) as entries:
        for entry in entries:
            if _STALE.fullmatch(entry.name):
                yield Path(entry.path)
            elif entry.is_dir(follow_symlinks=False):
                yield from _unfinished(entry.path)


@contextlib.contextmanager
def _unwritable(folder: Path) -> Iterator[None]:
    """Turn an error of the system into the line that the user sees."""
    try:
        yield
    except OSError as error:
        raise refused(
            f"the data set cannot be written to {folder}", error, elsewhere="choose another dataset.root"
        ) from error


def _use_description(config: Config, fmt: Format, folder: Path, comm: Communicator) -> None:
    """Take the parameters of the data set that is there, or fix them for a new one."""
    found: dict[str, Any] | None = None
    if comm.rank == 0:
        before = found = description.read_description(folder)
        if found is None:
            found = description.describe(config, fmt)
            with _unwritable(folder):
                is_ours = os.listdir(folder) == [LOCK]  # what lay there before is not ours
        else:
            description.check_description(found, config, fmt)
            is_ours = KEY in found
        if is_ours:
            found = description.with_list(found, config, fmt)
        if found != before:
            with _unwritable(folder):
                content = json.dumps(found, indent=1).encode()
                open_storage(folder).put(description.DESCRIPTION, content, durable=config.generate.fsync)
    found = comm.broadcast_object(found)
    assert found is not None
    description.use_description(found, folder, fmt)
    if comm.rank != 0:
        check_seen(folder / description.DESCRIPTION, comm, "dataset.root")


def _write(job: _Job, fmt: Format, storage: Storage, pool: Executor, needed: float, *, fsync: bool) -> int:
    """Write one file of about ``needed`` bytes and give it its name; returns its bytes."""
    part = part_name(job.path)
    kind = in_the_way(job.path)
    if kind is not None and not fmt.is_there(job.path):  # somebody's folder, say, which must not be replaced
        raise PreconditionError(f"{job.path} is {kind}, not a file of this data set", hint="move it away")
    try:
        job.path.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(job.path.parent).free < needed:
            # Libraries do not stand a full disk well: HDF5 may crash when it closes such a file.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fmt.write(part, job.first_sample, job.num_samples, pool)
        suffixes = (*fmt.companions(), "")  # the file itself comes last: where it is, all of them are
        parts = [part.with_name(part.name + suffix) for suffix in suffixes]
        size = sum(size_of(written) for written in parts)
        for written, suffix in zip(parts, suffixes, strict=True):
            storage.put_file(job.name + suffix, written, durable=fsync)
    except (OSError, RuntimeError) as error:  # h5py raises the latter where closing fails
        _remove(part, fmt)
        raise refused(
            f"{job.path} could not be written",
            true_error(error, job.path.parent, needed),
            elsewhere="choose another dataset.root",
            kept="finished files are kept",
        ) from error
    except BaseException:
        _remove(part, fmt)
        raise
    return size


def _remove(part: Path, fmt: Format) -> None:
    for suffix in (*fmt.companions(), ""):
        with contextlib.suppress(OSError):
            remove(part.with_name(part.name + suffix))
