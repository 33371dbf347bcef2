"""Staging: the files that the ranks of a node read are copied to its own storage, and read from there.

The ranks of a node copy at once, each every k-th file.  A copy gets its name when it is complete, so that whatever
bears a name can be read.  What is not to be kept lies in a folder of this run, whose lock the node's first rank holds:
a later run removes the folders whose run was killed.
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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from dlio_torch.config.schema import Config
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.order.files_read import files_read
from dlio_torch.dist.base import Communicator
from dlio_torch.dist.meet import host_identity
from dlio_torch.errors import DataError, PreconditionError
from dlio_torch.formats.core.format import Format
from dlio_torch.ownership.marker import KEY, listed_files, made_by
from dlio_torch.ownership.names import literal
from dlio_torch.storage.cache_state import DataFiles
from dlio_torch.storage.local import locked_folder
from dlio_torch.storage.local.atomic_file import PART, part_name, renamed, replaced
from dlio_torch.storage.local.locked_folder import PREFIX
from dlio_torch.storage.stage_folder import KEPT, check_place
from dlio_torch.syserrors import refused
from dlio_torch.trace.spans import Recorder
from dlio_torch.units import format_size


@dataclass(frozen=True)
class Staged:
    """What one rank did before an epoch.

    Attributes:
        rank: its number.
        host: its host.
        folder: of the copies that it reads.
        epoch: from 1.
        files: copied now.
        bytes: of these.
        reused: files that were there, complete and unchanged.
        removed: files that the epoch does not read.
        seconds: that it copied.
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


class StagedFiles(DataFiles):
    """The copies that a rank of a node looks after, whose page cache is prepared."""

    def __init__(self, fmt: Format, manifests: list[Manifest], size: int, index: int, count: int) -> None:
        super().__init__(fmt, manifests, size)
        self._index, self._count = index, count

    def share(self, first: int, step: int, most: int | None = None) -> Iterator[str]:
        """Of the copies on this node those of this rank; ranks of other nodes have their own.

        Files that no rank of the node reads have no copy.
        """
        return filter(os.path.isfile, super().share(self._index, self._count, most))


class Stager:
    """Copies the data of one rank's node; all ranks make the same calls.

    Args:
        config: the experiment, with ``stage.dir``.
        fmt: its format.
        manifests: where the data lie.
        comm: the ranks.
        recorder: for spans named ``stage``.

    Attributes:
        manifests: where the copies lie.
        done: what this rank did, epoch by epoch.

    Raises:
        ConfigError: see :func:`~dlio_torch.storage.stage_folder.check_place`.
        PreconditionError: the folder cannot be written.
    """

    def __init__(
        self, config: Config, fmt: Format, manifests: dict[str, Manifest], comm: Communicator, recorder: Recorder
    ) -> None:
        stage = config.stage
        assert stage.dir is not None
        self._config, self._format, self._sources, self._comm = config, fmt, manifests, comm
        self._recorder = recorder
        identity = host_identity()
        # A name that no other run has, wherever it runs: process numbers are those of a container.
        everyone = comm.broadcast_object(comm.gather_objects((identity, secrets.token_hex(8))))
        assert everyone is not None
        self._host = identity[0]
        self._nodes, self._bytes = len({node for node, _ in everyone}), 0
        self._node = [rank for rank, (node, _) in enumerate(everyone) if node == identity]
        self._index = self._node.index(comm.rank)
        root = check_place(config, fmt, [one.folder for one in manifests.values()])
        source = manifests["train"].folder.absolute()
        name = f"{PREFIX}{source.name}-{hashlib.sha256(os.fsencode(source)).hexdigest()[:8]}"
        if not stage.keep:
            name += f".{everyone[self._node[0]][1]}"  # a folder of this run
        self._folder = root / name
        self._kept = self._folder.with_name(self._folder.name + KEPT)
        self._own = self._folder if stage.per == "node" else self._folder / f"rank-{comm.rank}"
        moved = {id(one): one.moved(self._own) for one in manifests.values()}  # one may stand for two splits
        self.manifests = {split: moved[id(one)] for split, one in manifests.items()}
        self.done: list[Staged] = []
        if self._index == 0:
            with self._writing(root):
                root.mkdir(parents=True, exist_ok=True)
                locked_folder.remove_orphans(root)
                self._lock = None if stage.keep else locked_folder.lock(self._folder)
                self._lists = stage.keep and (self._kept.is_file() or not self._folder.exists())  # else it is not ours
                if self._lists:
                    self._list({})
                self._folder.mkdir(exist_ok=stage.keep)
        comm.on_failure.append(lambda line, code: self.remove())
        comm.barrier()

    @property
    def files(self) -> DataFiles:
        """The copies, for the preparation of the page cache."""
        alone = self._config.stage.per == "rank"
        share = (0, 1) if alone else (self._index, len(self._node))
        return StagedFiles(self._format, list(self.manifests.values()), self._bytes, *share)

    @property
    def folder(self) -> Path:
        """The folder of this node's copies."""
        return self._folder

    def copy(self, epoch: int) -> Staged:
        """Before an epoch (from 1): have everything there that it reads; returns on every rank when all have.

        Raises:
            PreconditionError: too little space.
            DataError: a file cannot be read.
            DlioError: a copy cannot be written (see :mod:`dlio_torch.syserrors`).
        """
        every = self._config.stage.every_epoch
        epochs = range(epoch - 1, epoch) if every else range(self._config.train.epochs)
        per_node = self._config.stage.per == "node"
        readers = self._node if per_node else [self._comm.rank]
        wanted = dict(self._pairs(readers, epochs, self._own))
        share = (self._index, len(self._node)) if per_node else (0, 1)
        self._comm.barrier()  # nobody reads what is removed
        began = time.perf_counter()
        removed = self._remove_others(wanted, *share)
        self._comm.barrier()  # nobody takes what another one writes for left over, and all room is there
        if self._index == 0:
            of_node = wanted if per_node else self._of_all_ranks(epochs)
            self._require_room(of_node)
            if self._lists:
                with self._writing(self._kept):
                    self._list(of_node)
        self._comm.barrier()
        mine = sorted(wanted.items())[share[0] :: share[1]]
        with ThreadPoolExecutor(self._config.stage.num_workers) as pool:
            copies = list(pool.map(lambda pair: self._copy(pair[1], pair[0]), mine))
        copied = [size for size, is_new in copies if is_new]
        seconds = time.perf_counter() - began
        made = Staged(
            *(self._comm.rank, self._host, str(self._own), epoch, len(copied), sum(copied)),
            *(len(copies) - len(copied), removed, seconds),
        )
        self.done.append(made)
        everyone = self._comm.gather_objects(sum(size for size, _ in copies)) or []
        self._bytes = self._comm.broadcast_object(sum(everyone)) // self._nodes
        return made

    def close(self) -> None:
        """Remove the copies, unless they are kept, when every rank has come here."""
        self._comm.barrier()
        self.remove()

    def remove(self) -> None:
        """Remove them at once; another rank has failed, or this one, or all are done."""
        if not self._config.stage.keep:
            locked_folder.remove(self._folder)

    def _pairs(self, ranks: list[int], epochs: range, below: Path) -> Iterator[tuple[Path, Path]]:
        """Copy and source of every file that these ranks read."""
        found = files_read(self._config, self._format, self._sources, ranks, self._comm.world_size, epochs)
        for manifest, mask in found:
            for file in mask.nonzero()[0].tolist():
                for source in self._format.files(manifest.path(file)):
                    yield below / source.relative_to(manifest.folder), source

    def _of_all_ranks(self, epochs: range) -> dict[Path, Path]:
        every = (self._pairs([rank], epochs, self._folder / f"rank-{rank}") for rank in self._node)
        return {copy: source for pairs in every for copy, source in pairs}

    def _list(self, wanted: dict[Path, Path]) -> None:
        """Note, for ``clean``, which files are going to be copies, beside those that are."""
        listed = listed_files(self._kept, self._folder.name)
        files = {literal(copy.relative_to(self._folder).as_posix()) for copy in wanted}
        if listed is not None and files <= listed:
            return
        files |= listed or set()
        about: dict[str, Any] = {"recipe": self._config.recipe, "source": str(self._sources["train"].folder.absolute())}
        about |= {KEY: made_by("copies", self._folder, self._config.recipe, sorted(files))}
        with replaced(self._kept) as file:
            file.write(json.dumps(about).encode("utf-8"))

    def _require_room(self, wanted: dict[Path, Path]) -> None:
        needed = 0
        for copy, source in wanted.items():
            with contextlib.suppress(OSError):  # one that is not there is named where it is copied
                needed += 0 if _is_copy(copy, source) else source.stat().st_size
        free = shutil.disk_usage(self._folder).free
        if needed > free:
            raise PreconditionError(
                f"stage.dir={self._config.stage.dir} on host {self._host} needs {format_size(needed)}, and "
                f"{format_size(free)} are free",
                hint="name another folder, or let ranks have files of their own (access.partition=files)",
            )

    def _remove_others(self, wanted: dict[Path, Path], index: int, count: int) -> int:
        """Remove what this epoch does not read; of a copy that is kept only what a killed run had begun."""
        there = [path for path in self._own.rglob("*") if path.is_file() and path not in wanted]
        # By their names, not by their place among what is there, which ranks that are earlier or later see otherwise.
        others = [path for path in there if zlib.crc32(os.fsencode(path)) % count == index]
        if self._config.stage.keep:  # another run may read the rest
            others = [path for path in others if _is_left(path)]
        with self._writing(self._own):
            for path in others:
                path.unlink(missing_ok=True)
        return len(others)

    def _copy(self, source: Path, copy: Path) -> tuple[int, bool]:
        """Copy a file; returns its size, and whether the copy was not there yet."""
        try:
            about = source.stat()
            source.open("rb").close()
        except OSError as error:
            hint = "generate the data" if isinstance(error, FileNotFoundError) else "let the ranks read it"
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
                f"{source} could not be copied to stage.dir={self._config.stage.dir} on host {self._host}",
                error,
                elsewhere="choose another folder",
            ) from error
        self._recorder.add("stage", began, time.perf_counter_ns(), file=str(source), bytes=about.st_size)
        return about.st_size, True

    @contextlib.contextmanager
    def _writing(self, folder: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise refused(
                f"stage.dir={self._config.stage.dir} on host {self._host}: {folder} cannot be written",
                error,
                elsewhere="choose another folder",
            ) from error


def _is_left(path: Path) -> bool:
    """Whether it is a copy that a process began which has ended."""
    found = re.fullmatch(rf"\..*\.(\d+){re.escape(PART)}", path.name)
    return found is not None and not psutil.pid_exists(int(found.group(1)))


def _is_copy(copy: Path, source: Path) -> bool:
    """Whether the copy is there, complete and of what the source is now."""
    about = source.stat()
    try:
        found = copy.stat()
    except FileNotFoundError:
        return False
    return (found.st_size, found.st_mtime_ns) == (about.st_size, about.st_mtime_ns)
