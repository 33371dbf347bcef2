"""Generation of the synthetic data set: in parallel, with atomic files, and only missing files.

A file has its final name only when it is complete and on the device, so whatever bears a final name
is used as it is.  A generation that was killed leaves ``.part`` files, which the next one removes.

Threads make the content of a file in pieces while others are written; where a format's writer stands it, several
files are under way at once, so that the device is not left alone while one is created, flushed or named.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlio_torch.config.schema import Config
from dlio_torch.data.dataset import description
from dlio_torch.data.dataset.checksum import CHECKSUMS, make_checksums
from dlio_torch.data.dataset.generated_files import GeneratedFile, GeneratedFiles, files_to_write
from dlio_torch.data.dataset.generation_lock import exclusive, unwritable
from dlio_torch.data.dataset.manifest import data_folder, generated_manifests
from dlio_torch.data.dataset.once import OnceFiles
from dlio_torch.data.dataset.stored_size import OTHER_ROOT, stored_bytes
from dlio_torch.data.dataset.visibility import check_seen
from dlio_torch.dist.base import Communicator
from dlio_torch.environment.cores import whole_cores
from dlio_torch.errors import DlioError, PreconditionError
from dlio_torch.files.atomic_file import part_name
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.ordered_map import in_order
from dlio_torch.iotrace.recorder.spans import Recorder
from dlio_torch.ownership.marker import KEY
from dlio_torch.ownership.names import LOCK
from dlio_torch.storage.base import Storage
from dlio_torch.storage.local.stored_paths import kind_of, remove, size_of, system_error
from dlio_torch.storage.registry import open_storage
from dlio_torch.syserrors import refused
from dlio_torch.units import format_size

_FLUSHING = 4  # files under way for each thread: most of the time of a small one is spent waiting for the device
_UNDER_WAY_BYTES = 256 << 20  # in files under way, beyond which two are enough
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Generated:
    """Result of a generation, summed over all ranks.

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
    folder, once = data_folder(config, fmt), OnceFiles(config, fmt)
    storage = open_storage(folder)
    with exclusive(folder, comm):
        _use_description(config, fmt, folder, comm)
        files = GeneratedFiles(list(generated_manifests(config, fmt).values()))
        todo, there_bytes = files_to_write(files, fmt, comm, overwrite=config.generate.overwrite)
        replaced_bytes = there_bytes if config.generate.overwrite else 0
        sample_bytes = 0.0
        if comm.rank == 0:
            sample_bytes = stored_bytes(fmt)
            _require_space(files.samples(todo) * sample_bytes - replaced_bytes, folder)
        sample_bytes = comm.broadcast_object(sample_bytes)
        mine = todo[comm.rank :: comm.world_size].tolist()
        size = 0
        if progress is not None:
            progress(0, len(mine))
        try:
            with contextlib.closing(_writing(config, fmt, storage, recorder, files, mine, sample_bytes)) as sizes:
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
        if comm.rank == 0:
            files.index_folders(fmt)
        total = comm.broadcast_object(sum(comm.gather_objects(size) or []))
        seconds, checksum = time.perf_counter() - start, None
        if config.generate.checksum:
            manifests = list(generated_manifests(config, fmt).values())
            checksum = make_checksums(folder, manifests, fmt, comm, config.generate.num_workers or whole_cores())
        elif len(todo) and comm.rank == 0:
            (folder / CHECKSUMS).unlink(missing_ok=True)  # that of other files
    data_bytes = there_bytes - replaced_bytes + total
    return Generated(len(todo), len(files) - len(todo), total, data_bytes, seconds, checksum)


def _writing(
    config: Config,
    fmt: Format,
    storage: Storage,
    recorder: Recorder,
    files: GeneratedFiles,
    mine: list[int],
    sample_bytes: float,
) -> Generator[int, None, None]:
    """Write the files of the given numbers; yields the bytes of each file in this order."""
    threads, fsync = config.generate.num_workers or whole_cores(), config.generate.fsync
    folders: set[str] = set()

    def write(number: int) -> int:
        file = files[number]
        began = time.perf_counter_ns()
        written = _write(file, fmt, storage, pool, file.num_samples * sample_bytes, fsync=fsync)
        recorder.add("generate", began, time.perf_counter_ns(), file=str(file.path), bytes=written)
        folders.add(file.name.rpartition("/")[0])
        return written

    at_once = 1
    if fmt.writes_at_once and mine:
        largest = max(1.0, files[mine[0]].num_samples * sample_bytes)
        at_once = max(2, min(threads * (_FLUSHING if fsync else 1), int(_UNDER_WAY_BYTES / largest)))
    with _threads(threads, at_once) as (pool, writers):
        yield from in_order(writers, write, mine, 2 * at_once) if at_once > 1 else map(write, mine)
    for folder in folders if fsync else ():
        storage.sync_folder(folder)


@contextlib.contextmanager
def _threads(contents: int, files: int) -> Iterator[tuple[Executor, Executor]]:
    """Pools of threads that generate content and of threads that write files; all end early after an error."""
    with ThreadPoolExecutor(contents) as pool, ThreadPoolExecutor(files) as writers:
        try:
            yield pool, writers
        except BaseException:
            # A file that is under way gets no further content: it fails, and is removed.
            for executor in (pool, writers):
                executor.shutdown(wait=False, cancel_futures=True)
            raise


def _require_space(needed: float, folder: Path) -> None:
    """Raise unless the file system has ``needed`` bytes of free space.

    Raises:
        PreconditionError: there is too little space for them.
    """
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise PreconditionError(
            f"{folder} needs {format_size(int(needed))}, but the file system has only {format_size(free)} left",
            hint=OTHER_ROOT,
        )


def _use_description(config: Config, fmt: Format, folder: Path, comm: Communicator) -> None:
    """Use the parameters of an existing data set, or compute and record them for a new one."""
    recorded: dict[str, Any] | None = None
    if comm.rank == 0:
        before = recorded = description.read_description(folder)
        if recorded is None:
            recorded = description.describe(config, fmt)
            with unwritable(folder):
                is_ours = os.listdir(folder) == [LOCK]  # what lay there before is not ours
        else:
            description.check_description(recorded, config, fmt)
            is_ours = KEY in recorded
        if is_ours:
            recorded = description.with_list(recorded, config, fmt)
        if recorded != before:
            with unwritable(folder):
                text = json.dumps(recorded, indent=1)
                open_storage(folder).put(description.DESCRIPTION, text.encode(), durable=config.generate.fsync)
    recorded = comm.broadcast_object(recorded)
    assert recorded is not None
    description.use_description(recorded, folder, fmt)
    if comm.rank != 0:
        check_seen(folder / description.DESCRIPTION, comm, "dataset.root")


def _write(file: GeneratedFile, fmt: Format, storage: Storage, pool: Executor, needed: float, *, fsync: bool) -> int:
    """Write one file of about ``needed`` bytes and rename it to its final name; returns its bytes."""
    part = part_name(file.path)
    kind = kind_of(file.path)
    if kind is not None and not fmt.is_there(file.path):  # somebody's folder, say, which must not be replaced
        raise PreconditionError(
            f"{file.path} is {kind}, not a file of this data set",
            hint="move the existing file away, or choose another dataset.root",
        )
    try:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(file.path.parent).free < needed:
            # Libraries do not stand a full disk well: HDF5 may crash when it closes such a file.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fmt.write(part, file.first_sample, file.num_samples, pool)
        suffixes = (*fmt.companions(), "")  # the file itself comes last: where it is, all of them are
        parts = [part.with_name(part.name + suffix) for suffix in suffixes]
        size = sum(size_of(written) for written in parts)
        for written, suffix in zip(parts, suffixes, strict=True):
            storage.put_file(file.name + suffix, written, durable=fsync)
    except (OSError, RuntimeError) as error:  # h5py raises the latter where closing fails
        _remove(part, fmt)
        raise refused(
            f"{file.path} could not be written",
            system_error(error, file.path.parent, needed),
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
