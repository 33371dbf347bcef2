"""Writes the files of TensorFlow's ``Saver`` and ``CheckpointSaverHook`` with the same write calls.

Sources, all of tensorflow/tensorflow: python/training/saver.py (``Saver.save``, ``_AddShardedSaveOpsForV2``),
core/util/tensor_bundle/tensor_bundle.cc (``BundleWriter``, ``FileOutputBuffer``, ``MergeBundles``),
core/lib/io/table_builder.cc, core/platform/default/posix_file_system.cc (``PosixWritableFile``: C's fwrite),
python/checkpoint/checkpoint_management.py (``update_checkpoint_state_internal``), python/lib/io/file_io.py
(``atomic_write_string_to_file``), python/training/basic_session_run_hooks.py (``CheckpointSaverHook``).
Traced with TensorFlow 2.21; version 1 ends a piece of the variables where a tensor does not fit.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlio_torch.config.checkpoint_amount import TENSORFLOW_BUFFER
from dlio_torch.config.schema_training import TensorFlowConfig
from dlio_torch.storage.local.stdio import StdioFile

_BLOCK = 256 << 10  # of the index; core/lib/io/table_options.h
_TRAILER, _META, _FOOTER = 5, 8, 48  # core/lib/io/format.h
_SHIFTS = 64 * 1024

Octets = npt.NDArray[np.uint8]


class TensorFlowSaver:
    """Writes checkpoints as a training of TensorFlow does, into one folder.

    Args:
        options: of the saver.
        data_bytes: of the variables.
        folder: of the checkpoints.
        content: random bytes, more than any fwrite takes.
    """

    def __init__(self, options: TensorFlowConfig, data_bytes: int, folder: Path, content: Octets) -> None:
        self._options = options
        self._data_bytes = data_bytes
        self._folder = folder
        self._state = folder / "checkpoint"  # names the checkpoints that there are
        self._content = content
        self._calls = 0
        self._events: StdioFile | None = None

    def names(self, step: int) -> list[Path]:
        """Names of the three files of a checkpoint: variables, index and graph."""
        prefix = self._prefix(step)
        return [Path(f"{prefix}{suffix}") for suffix in (".data-00000-of-00001", ".index", ".meta")]

    def begin(self) -> int:
        """Write the files before the first checkpoint: the graph as text, and the graph twice as events.

        ``FileWriter`` adds graph and meta graph when it is made, the hook once more when the session is there.

        Returns:
            Bytes written.
        """
        options = self._options
        written = 0
        if options.graph_bytes:
            name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}"
            self._events = StdioFile(self._folder / name)
            written += self._event(24)  # the version
            written += sum(self._event(size) for size in (options.graph_bytes, options.meta_bytes))
        if options.graph_text_bytes:
            written += self._replace(self._folder / "graph.pbtxt", options.graph_text_bytes)
        if options.graph_bytes:
            written += sum(self._event(size) for size in (options.graph_bytes, options.meta_bytes))
        return written

    def save(self, step: int, others: list[int], surplus: list[int]) -> int:
        """Write the checkpoint of ``step``; surplus checkpoints are deleted before its graph is written.

        Args:
            step: of the training.
            others: steps of the older checkpoints that stay.
            surplus: steps of those that go.

        Returns:
            Bytes written.
        """
        written = self._sharded(step) if self._options.sharded else self._variables(self._prefix(step))
        written += self._replace(self._state, self._state_text([*others, step]))
        for old in surplus:
            self.remove(old)
        written += self._replace(self.names(step)[2], self._options.meta_bytes)
        if self._events is not None:
            written += self._event(len(os.fspath(self._prefix(step).absolute())) + 17)
        return written

    def remove(self, step: int) -> None:
        """Delete the files of a checkpoint, in the order of the saver."""
        data, index, meta = self.names(step)
        for path in (meta, index, data):
            with contextlib.suppress(OSError):
                path.unlink()

    def discard(self, step: int) -> None:
        """Delete the files of a save that failed, temporary files included."""
        self.remove(step)
        temporary = self._temporary(step)
        begun = self._folder.glob(f"{self._state.name}.tmp*")
        for path in (*self._folder.glob(f"{self._prefix(step).name}.*"), *temporary.glob("*"), *begun):
            with contextlib.suppress(OSError):
                path.unlink()
        with contextlib.suppress(OSError):
            temporary.rmdir()

    def close(self) -> None:
        """Close the file of events."""
        if self._events is not None:
            self._events.close()

    # --- variables and their index ---

    def _prefix(self, step: int) -> Path:
        return self._folder / self._options.name.replace("{step}", str(step))

    def _temporary(self, step: int) -> Path:
        return Path(f"{self._prefix(step)}_temp")

    def _sharded(self, step: int) -> int:
        """Write a shard in a folder of its own, then merge: rename its variables, write its index once more."""
        folder = self._temporary(step)
        folder.mkdir(0o755, exist_ok=True)
        shard = folder / "part-00000-of-00001"
        written = self._variables(shard)
        index = Path(f"{shard}.index")
        self._read_index(index)
        data, final, _ = self.names(step)
        os.rename(f"{shard}.data-00000-of-00001", data)
        with StdioFile(final) as file:
            written += self._index(file)
        index.unlink()
        folder.rmdir()
        return written

    def _variables(self, prefix: Path) -> int:
        """Write variables and index under temporary names, and rename each."""
        written = 0
        for suffix, table in ((".data-00000-of-00001", False), (".index", True)):
            path = Path(f"{prefix}{suffix}")
            temporary = Path(f"{path}.tempstate{uuid.uuid4().int >> 64}")
            with StdioFile(temporary) as file:
                written += self._index(file) if table else self._data(file)
            os.rename(temporary, path)
        return written

    def _data(self, file: StdioFile) -> int:
        size, most = self._data_bytes, TENSORFLOW_BUFFER
        return sum(file.write(self._piece(min(most, size - start))) for start in range(0, size, most))

    def _index(self, file: StdioFile) -> int:
        return sum(file.write(self._piece(size)) for size in _table_pieces(self._options.index_bytes))

    def _read_index(self, path: Path) -> None:
        """Read the index as the merge does: footer, index of blocks, blocks of entries."""
        size = self._options.index_bytes
        blocks, listing = _table(size)
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.pread(file, _FOOTER, size - _FOOTER)
            os.pread(file, listing + _TRAILER, size - _FOOTER - listing - _TRAILER)
            offset = 0
            for block in blocks:
                os.pread(file, block + _TRAILER, offset)
                offset += block + _TRAILER
        finally:
            os.close(file)

    # --- small files ---

    def _state_text(self, steps: list[int]) -> Octets:
        """Returns the text of the file ``checkpoint``, which lists the kept checkpoints."""
        paths = [os.fspath(self._prefix(step).absolute()) for step in steps]
        lines = [f'model_checkpoint_path: "{paths[-1]}"', *(f'all_model_checkpoint_paths: "{path}"' for path in paths)]
        return np.frombuffer("".join(line + "\n" for line in lines).encode(), np.uint8)

    def _replace(self, path: Path, content: Octets | int) -> int:
        """Write a whole file by one fwrite under a temporary name, and rename it."""
        octets = self._piece(content) if isinstance(content, int) else content
        temporary = Path(f"{path}.tmp{uuid.uuid4().hex}")
        try:
            with StdioFile(temporary) as file:
                file.write(octets)
            os.rename(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        return len(octets)

    def _event(self, size: int) -> int:
        """Write an event record: length, content, checksum, and flush it to the system."""
        assert self._events is not None
        written = sum(self._events.write(self._piece(part)) for part in (12, size, 4))
        self._events.flush()
        return written

    def _piece(self, size: int) -> Octets:
        """Bytes for one fwrite, each from a new offset of the content: storage may deduplicate equal blocks."""
        shift = self._calls * 997 % _SHIFTS
        self._calls += 1
        return self._content[shift : shift + size]


def _table(size: int) -> tuple[list[int], int]:
    """An index of ``size`` bytes: bytes of its blocks of entries, and of the block that lists them; no trailers."""
    count = -(-size // _BLOCK)
    listing = 15 * count
    entries = size - listing - _META - _FOOTER - (count + 2) * _TRAILER
    blocks = [entries // count] * count
    blocks[-1] += entries % count
    return blocks, listing


def _table_pieces(size: int) -> Iterator[int]:
    """Bytes of each fwrite of an index of ``size`` bytes: blocks, each with its trailer, then the footer."""
    blocks, listing = _table(size)
    for block in (*blocks, _META, listing):
        yield from (block, _TRAILER)
    yield _FOOTER
