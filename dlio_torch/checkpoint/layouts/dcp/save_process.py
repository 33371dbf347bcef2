"""PyTorch's process for saves in the background: its start, its times and its end.

PyTorch starts the process with the first save and keeps it.  It prints each of its steps, tells no times, and goes on
with a save whose trainer was killed.  So its entry is replaced by :func:`_run`, which calls PyTorch's own.  Where a
version of PyTorch has no such entry, the process runs as PyTorch starts it, and its times are not known.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import multiprocessing
import os
import threading
import warnings
from dataclasses import dataclass
from multiprocessing import resource_sharer
from multiprocessing.connection import Connection

from dlio_torch.checkpoint.layouts.dcp.part_times import PartTimes
from dlio_torch.environment.private_names import (
    checkpoint_process_entry,
    end_checkpoint_process,
    replace_checkpoint_process_entry,
)
from dlio_torch.supervision.parent_exit import on_parent_exit

_STOP_S = 2.0  # longest wait for that thread

_trainers: list[Connection[object, object]] = []
"""In the process of the saves, its trainer; empty elsewhere."""


@dataclass(frozen=True)
class WrittenParts:
    """Times and bytes of a save; their message is short, so that the process need not wait until it is read.

    Attributes:
        plan_ns: nanoseconds of planning.
        data_ns: nanoseconds of writing and flushing.
        flush_ns: nanoseconds of flushing, of the thread that flushes longest.
        bytes: bytes written.
    """

    plan_ns: int | None
    data_ns: int | None
    flush_ns: int
    bytes: int

    def put_into(self, times: PartTimes) -> None:
        """Add what is told to the times that the trainer itself has taken."""
        times.plan_ns, times.data_ns = self.plan_ns, self.data_ns
        times.flush_ns[0], times.file_bytes = self.flush_ns, [self.bytes]


class SaveProcess:
    """The process as the trainer sees it; made before the first save."""

    def __init__(self) -> None:
        self._pipe, child = multiprocessing.Pipe()
        self._entry = checkpoint_process_entry()
        if self._entry is not None:
            replace_checkpoint_process_entry(functools.partial(_run, child))

    def take_times(self, times: PartTimes) -> None:
        """Take what the process has told of the save that has ended."""
        with contextlib.suppress(EOFError, OSError):  # the process has ended, and tells nothing more
            while self._pipe.poll():
                self._pipe.recv().put_into(times)

    def end(self, *, in_save: bool) -> None:
        """End the process.

        Args:
            in_save: whether a save still runs, or has failed; it is broken off.
        """
        if in_save:
            # It may be fetching tensors from a thread of this process, which would print that the connection broke.
            resource_sharer.stop(_STOP_S)
            with contextlib.suppress(OSError):
                self._pipe.send(None)
        end_checkpoint_process()
        if self._entry is not None:
            replace_checkpoint_process_entry(self._entry)


def tell_trainer(times: PartTimes) -> None:
    """Tell the trainer what is known of a save; does nothing in the trainer itself."""
    for trainer in _trainers:
        size = sum(times.file_bytes)
        trainer.send(WrittenParts(times.plan_ns, times.data_ns, times.slowest_flush_ns, size))


def ignore_existing_checkpoints() -> None:
    """Have PyTorch not warn of files that it replaces: a checkpoint of the same step may be there, of a restore."""
    warnings.filterwarnings("ignore", message="Detected an existing checkpoint")


def _run(trainer: Connection[object, object], *arguments: object) -> None:
    """Entry of the process: PyTorch's own, which neither prints its steps nor outlives the trainer."""
    _trainers.append(trainer)
    _be_quiet()
    threading.Thread(target=_end_on_request, args=[trainer], name="dlio_torch-trainer", daemon=True).start()
    entry, parent = checkpoint_process_entry(), multiprocessing.parent_process()
    assert entry is not None  # they were there in the trainer
    assert parent is not None
    # An error of the connection: the trainer has ended, or ends the process.
    with on_parent_exit(parent.pid or 0, _end), contextlib.suppress(EOFError, OSError):
        entry(*arguments)


def _be_quiet() -> None:
    """Print no steps, and no errors: the trainer gets and prints them."""
    logging.disable(logging.INFO)
    logging.getLogger().addFilter(lambda record: record.module != "_async_process_executor")
    ignore_existing_checkpoints()


def _end_on_request(trainer: Connection[object, object]) -> None:
    with contextlib.suppress(EOFError, OSError):
        trainer.recv()
    _end()


def _end() -> None:
    os._exit(1)  # a save may run, which cannot be interrupted otherwise
