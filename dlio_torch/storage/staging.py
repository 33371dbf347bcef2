"""Staging: the files that the ranks of a node read are copied to the node's own storage and read from there.

The ranks of a node copy at once, each every k-th file.  A copy gets its name when it is complete, so that every named
file can be read.  Copies that are not kept lie in a folder of this run, which the node's first rank locks: a later run
removes the folders of killed runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from dlio_torch.config.schema import StageConfig
from dlio_torch.environment.host import host_identity
from dlio_torch.errors import DataError, PreconditionError
from dlio_torch.files import locked_folder
from dlio_torch.files.atomic_file import PART, part_name, renamed, replaced
from dlio_torch.files.locked_folder import PREFIX
from dlio_torch.ownership.marker import KEY, listed_files, made_by
from dlio_torch.ownership.names import literal
from dlio_torch.storage.rank_group import RankGroup
from dlio_torch.storage.stage_folder import KEPT, check_node_folder
from dlio_torch.syserrors import refused
from dlio_torch.units import format_size

Record = Callable[[Path, int, int, int], None]
"""Callback with source, begin and end (ns, monotonic) and bytes of a copied file."""


@dataclass(frozen=True)
class Staged:
    """Work of one rank before an epoch.

    Attributes:
        rank: number of the rank.
        host: name of its host.
        folder: folder of the copies that it reads.
        epoch: number of the epoch, from 1.
        files: number of files copied now.
        bytes: bytes of these files.
        reused: number of copies that were there, complete and unchanged.
        removed: number of copies removed, as the epoch does not read them.
        seconds: duration.
    """

    rank: int
    host: str
    folder: str
    epoch: int
    files: int
    bytes: int
    reused: int
    removed: int
    seconds: float


@dataclass(frozen=True)
class Sources:
    """Files that are staged.

    Attributes:
        recipe: recipe of the run, for the list of the copies.
        folder: folder of the data.
        folders: folders of all splits, which copies must not lie in.
        epochs: epochs of the run.
        files_read: yields the files that some ranks read in some epochs (from 0): the path below the folder of the
            data, and the file itself.
    """

    recipe: str
    folder: Path
    folders: Sequence[Path]
    epochs: int
    files_read: Callable[[Sequence[int], range], Iterator[tuple[Path, Path]]]


class Stager:
    """Copies the files that the ranks of a node read to the node's own storage; all ranks make the same calls.

    Args:
        config: the options of ``stage``, with a folder.
        sources: the files to copy.
        ranks: the ranks of the run.
        record: called with source, begin and end (ns, monotonic) and bytes of each file that was copied.

    Attributes:
        folder: the folder of this node's copies.
        rank_folder: the folder of the copies that this rank reads.
        share: number of this rank among those that share its copies, and their number.
        bytes: bytes of the copies of the last epoch, the mean over nodes.
        done: work of this rank, epoch by epoch.

    Raises:
        ConfigError: see :func:`~dlio_torch.storage.stage_folder.check_node_folder`.
        PreconditionError: the folder cannot be written.
    """

    def __init__(self, config: StageConfig, sources: Sources, ranks: RankGroup, record: Record) -> None:
        assert config.dir is not None
        self._config, self._sources, self._ranks, self._record = config, sources, ranks, record
        identity = host_identity()
        # A name that no other run has, wherever it runs: process numbers are those of a container.
        everyone = ranks.broadcast_object(ranks.gather_objects((identity, secrets.token_hex(8))))
        assert everyone is not None
        self._host = identity[0]
        self._nodes = len({node for node, _ in everyone})
        self._node = [rank for rank, (node, _) in enumerate(everyone) if node == identity]
        index = self._node.index(ranks.rank)
        self._is_first = index == 0
        root = check_node_folder(config.dir, sources.folders)
        source = sources.folder.absolute()
        name = f"{PREFIX}{source.name}-{hashlib.sha256(os.fsencode(source)).hexdigest()[:8]}"
        if not config.keep:
            name += f".{everyone[self._node[0]][1]}"  # a folder of this run
        self.folder = root / name
        self._kept = self.folder.with_name(self.folder.name + KEPT)
        per_node = config.per == "node"
        self.rank_folder = self.folder if per_node else self.folder / f"rank-{ranks.rank}"
        self.share = (index, len(self._node)) if per_node else (0, 1)
        self.bytes = 0
        self.done: list[Staged] = []
        if self._is_first:
            with self._writing(root):
                root.mkdir(parents=True, exist_ok=True)
                locked_folder.remove_orphans(root)
                self._lock = None if config.keep else locked_folder.lock(self.folder)
                # A folder without a list is not ours.
                self._lists = config.keep and (self._kept.is_file() or not self.folder.exists())
                if self._lists:
                    self._list({})
                self.folder.mkdir(exist_ok=config.keep)
        ranks.on_failure.append(lambda line, code: self.remove())
        ranks.barrier()

    def copy(self, epoch: int) -> Staged:
        """Copy the files that an epoch (from 1) reads; returns on every rank when all ranks have.

        Raises:
            PreconditionError: too little space.
            DataError: a file cannot be read.
            DlioError: a copy cannot be written (see :mod:`dlio_torch.syserrors`).
        """
        epochs = range(epoch - 1, epoch) if self._config.every_epoch else range(self._sources.epochs)
        per_node = self._config.per == "node"
        readers = self._node if per_node else [self._ranks.rank]
        wanted = dict(self._pairs(readers, epochs, self.rank_folder))
        self._ranks.barrier()  # no rank reads a file that is removed
        began = time.perf_counter()
        removed = self._remove_others(wanted, *self.share)
        self._ranks.barrier()  # no rank takes a file that another one writes for an orphan, and all space is free
        if self._is_first:
            of_node = wanted if per_node else self._of_all_ranks(epochs)
            self._require_room(of_node)
            if self._lists:
                with self._writing(self._kept):
                    self._list(of_node)
        self._ranks.barrier()
        mine = sorted(wanted.items())[self.share[0] :: self.share[1]]
        with ThreadPoolExecutor(self._config.num_workers) as pool:
            copies = list(pool.map(lambda pair: self._copy(pair[1], pair[0]), mine))
        copied = [size for size, is_new in copies if is_new]
        seconds = time.perf_counter() - began
        staged = Staged(
            *(self._ranks.rank, self._host, str(self.rank_folder), epoch, len(copied), sum(copied)),
            *(len(copies) - len(copied), removed, seconds),
        )
        self.done.append(staged)
        everyone = self._ranks.gather_objects(sum(size for size, _ in copies)) or []
        self.bytes = self._ranks.broadcast_object(sum(everyone)) // self._nodes
        return staged

    def close(self) -> None:
        """Remove the copies, unless they are kept, when every rank has called this."""
        self._ranks.barrier()
        self.remove()

    def remove(self) -> None:
        """Remove the copies at once, unless they are kept."""
        if not self._config.keep:
            locked_folder.remove(self.folder)

    def _pairs(self, ranks: list[int], epochs: range, below: Path) -> Iterator[tuple[Path, Path]]:
        """Copy and source of every file that these ranks read."""
        for name, source in self._sources.files_read(ranks, epochs):
            yield below / name, source

    def _of_all_ranks(self, epochs: range) -> dict[Path, Path]:
        every = (self._pairs([rank], epochs, self.folder / f"rank-{rank}") for rank in self._node)
        return {copy: source for pairs in every for copy, source in pairs}

    def _list(self, wanted: dict[Path, Path]) -> None:
        """Add files to the list of the copies, for ``clean``, before they are written."""
        listed = listed_files(self._kept, self.folder.name)
        files = {literal(copy.relative_to(self.folder).as_posix()) for copy in wanted}
        if listed is not None and files <= listed:
            return
        files |= listed or set()
        about: dict[str, Any] = {"recipe": self._sources.recipe, "source": str(self._sources.folder.absolute())}
        about |= {KEY: made_by("copies", self.folder, self._sources.recipe, sorted(files))}
        with replaced(self._kept) as file:
            file.write(json.dumps(about).encode("utf-8"))

    def _require_room(self, wanted: dict[Path, Path]) -> None:
        needed = 0
        for copy, source in wanted.items():
            with contextlib.suppress(OSError):  # one that is not there is named where it is copied
                needed += 0 if _is_copy(copy, source) else source.stat().st_size
        free = shutil.disk_usage(self.folder).free
        if needed > free:
            raise PreconditionError(
                f"stage.dir={self._config.dir} on host {self._host} needs {format_size(needed)}, but only "
                f"{format_size(free)} are free",
                hint="choose another stage.dir, or set access.partition=files to give each rank its own files",
            )

    def _remove_others(self, wanted: dict[Path, Path], index: int, count: int) -> int:
        """Remove copies that this epoch does not read; with kept copies, remove only orphans of a killed run."""
        there = [path for path in self.rank_folder.rglob("*") if path.is_file() and path not in wanted]
        # By their names, not by their order: ranks that look earlier or later see other files.
        others = [path for path in there if zlib.crc32(os.fsencode(path)) % count == index]
        if self._config.keep:  # another run may read the rest
            others = [path for path in others if _is_orphan(path)]
        with self._writing(self.rank_folder):
            for path in others:
                path.unlink(missing_ok=True)
        return len(others)

    def _copy(self, source: Path, copy: Path) -> tuple[int, bool]:
        """Copy a file unless the copy exists; returns its bytes, and whether it was copied now."""
        try:
            about = source.stat()
            source.open("rb").close()
        except OSError as error:
            hint = (
                "generate the data" if isinstance(error, FileNotFoundError) else "make the file readable for the ranks"
            )
            raise DataError(f"{source} cannot be staged: {error.strerror}", hint=hint) from error
        with self._writing(copy):
            if _is_copy(copy, source):
                return about.st_size, False
        began = time.perf_counter_ns()
        try:
            copy.parent.mkdir(parents=True, exist_ok=True)
            with renamed(part_name(copy), copy) as part:
                shutil.copyfile(source, part)  # by sendfile(2)
                os.utime(part, ns=(about.st_atime_ns, about.st_mtime_ns))
        except OSError as error:
            raise refused(
                f"{source} could not be copied to stage.dir={self._config.dir} on host {self._host}",
                error,
                elsewhere="choose another stage.dir",
            ) from error
        self._record(source, began, time.perf_counter_ns(), about.st_size)
        return about.st_size, True

    @contextlib.contextmanager
    def _writing(self, folder: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise refused(
                f"stage.dir={self._config.dir} on host {self._host}: {folder} cannot be written",
                error,
                elsewhere="choose another stage.dir",
            ) from error


def _is_orphan(path: Path) -> bool:
    """Whether a file is an unfinished copy of a process that has ended."""
    match = re.fullmatch(rf"\..*\.(\d+){re.escape(PART)}", path.name)
    return match is not None and not psutil.pid_exists(int(match.group(1)))


def _is_copy(copy: Path, source: Path) -> bool:
    """Whether a copy is there and has the size and modification time of its source."""
    about = source.stat()
    try:
        status = copy.stat()
    except FileNotFoundError:
        return False
    return (status.st_size, status.st_mtime_ns) == (about.st_size, about.st_mtime_ns)
