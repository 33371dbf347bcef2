"""Wrappers of all private names of torch, torchdata and Python that the package uses; a test forbids other uses.

They have no public counterpart, and a new version may rename them without notice.  Tried with torch 2.13.0,
torchdata 0.11.0 and Python 3.11.7; if another version was checked, the function says so.
"""

from __future__ import annotations

import atexit
import io
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `--help` is to be quick
    from multiprocessing.process import BaseProcess
    from pathlib import Path

    import torch
    from torch.distributed.device_mesh import DeviceMesh

_NODE_THREADS = ("_thread", "_read_thread", "_sort_thread")  # of a Prefetcher or PinMemory; of a ParallelMapper, two
_NODE_STOPS = ("_stop_event", "_stop")  # likewise
_NODE_QUEUES = ("_in_q", "_intermed_q")

# --- Python -------------------------------------------------------------------------------------------


def file_block_size(raw: io.FileIO) -> int:
    """Preferred block size of an open file, which Python asked for when it opened it; 0: not known.

    In CPython since 3.4, tried up to 3.14; ``open()`` takes its buffer from it.
    """
    return int(getattr(raw, "_blksize", 0))


def run_exit_handlers() -> None:
    """Run the handlers registered with :mod:`atexit` now.  In CPython since 2.4."""
    atexit._run_exitfuncs()


def join_threads() -> None:
    """Wait for all non-daemon threads, as Python does at the end of a process.  In CPython since 3.7."""
    threading._shutdown()  # type: ignore[attr-defined]


def resource_tracker_pid() -> int | None:
    """Process id of Python's resource tracker, which removes leaked shared memory; ``None`` if it does not run."""
    from multiprocessing import resource_tracker

    tracker = getattr(resource_tracker, "_resource_tracker", None)
    pid: int | None = getattr(tracker, "_pid", None)
    return pid


def on_error_of_thread(thread: threading.Thread, handler: Callable[[threading.Thread], object]) -> None:
    """Install ``handler`` to be called in a thread that an exception ends, instead of printing a traceback."""
    thread._invoke_excepthook = handler  # type: ignore[attr-defined]


def on_transfer_error(handler: Callable[[Any, Exception, Any], object]) -> None:
    """Install ``handler`` to be called when any queue of this process cannot send an item to another process.

    Python would print the traceback and drop the item.  Its own executors replace this method for the same purpose.

    Args:
        handler: gets the queue, the error and the item, in the thread that sends.
    """
    from multiprocessing import queues

    queues.Queue._on_queue_feeder_error = handler  # type: ignore[attr-defined]


def close_queue(queue: Any) -> None:
    """Close both ends of a queue between processes.

    Otherwise an end that was never written to would stay open until it is collected, epochs later.
    """
    queue.cancel_join_thread()
    queue.close()
    if getattr(queue, "_thread", None) is None:  # else the thread that writes closes it
        queue._writer.close()


# --- torch --------------------------------------------------------------------------------------------


def gpu_sleep(cuda: Any, cycles: int) -> None:
    """Launch a kernel on the current stream that keeps one multiprocessor busy.

    Args:
        cuda: the module ``torch.cuda``.
        cycles: of the GPU's clock.
    """
    cuda._sleep(cycles)


def is_handler_of_loaders(handler: Any) -> bool:
    """Whether a SIGCHLD handler is the handler that torch's DataLoader installs."""
    return getattr(handler, "__module__", "") == "torch.utils.data._utils.signal_handling"


def loader_workers(iterator: Any) -> list[BaseProcess]:
    """The worker processes of a DataLoader's iterator; empty if the trainer's process reads."""
    workers: list[BaseProcess] = getattr(iterator, "_workers", [])
    return workers


def forget_loader_workers(iterator: Any) -> None:
    """Make torch ignore the exit of this iterator's workers from now on."""
    from torch.utils.data._utils import signal_handling

    if iterator._worker_pids_set:
        iterator._worker_pids_set = False
        signal_handling._remove_worker_pids(id(iterator))  # type: ignore[attr-defined]


def replace_end_of_workers(iterator: Any) -> None:
    """Replace the event by which a DataLoader's iterator asks its workers to end.

    A worker that was killed may hold the lock of the first event, which nobody could take then.
    """
    iterator._workers_done_event = threading.Event()


def end_loader_workers(iterator: Any) -> None:
    """End the workers of a DataLoader's iterator; waits up to five seconds for each worker in turn."""
    iterator._shutdown_workers()


def shared_storage(nbytes: int) -> torch.UntypedStorage:
    """Memory that other processes can map, as torch's collate function takes it in a loader worker.

    Raises:
        RuntimeError: there is no room in ``/dev/shm``, or no descriptor.
    """
    import torch

    storage: torch.UntypedStorage = torch.UntypedStorage._new_shared(nbytes)  # type: ignore[no-untyped-call]
    return storage


def mesh_of_rank(ranks: Any, names: tuple[str, ...], rank: int, device: str) -> DeviceMesh:
    """A ``DeviceMesh`` as one of its ranks sees it, without process groups: nothing can be sent over it.

    Args:
        ranks: numbers of the ranks, a tensor with the shape of the mesh.
        names: of the dimensions.
        rank: the rank that looks.
        device: type of the devices.
    """
    from torch.distributed.device_mesh import DeviceMesh

    return DeviceMesh(device, ranks, mesh_dim_names=names, _init_backend=False, _rank=rank)


def forget_save_plans(planner: Any) -> None:
    """Empty the cache of plans, which all objects of a class of ``SavePlanner`` share.

    Args:
        planner: a planner of ``torch.distributed.checkpoint``.
    """
    for name in ("save_plan", "all_plans", "global_plan", "metadata", "final_save_plan"):
        getattr(planner, f"_cached_{name}", {}).clear()


def end_checkpoint_process() -> None:
    """End the process that writes checkpoints for ``async_save`` of ``torch.distributed.checkpoint``, if it runs."""
    from torch.distributed.checkpoint import _async_process_executor as executor

    executor._CHECKPOINT_PROCESS = None  # its destructor ends the process


def checkpoint_process_id() -> int | None:
    """Process id of this process; ``None``: it does not run, or the installed PyTorch does not tell."""
    from torch.distributed.checkpoint import _async_process_executor as executor

    running = getattr(executor, "_CHECKPOINT_PROCESS", None)
    return getattr(getattr(running, "_save_process", None), "pid", None)


def checkpoint_process_entry() -> Callable[..., object] | None:
    """The function that this process runs; ``None``: the installed PyTorch has none of this name."""
    from torch.distributed.checkpoint import _async_process_executor as executor

    return getattr(getattr(executor, "_AsyncCheckpointProcess", None), "_checkpointing_subprocess", None)


def replace_checkpoint_process_entry(entry: Callable[..., object]) -> None:
    """Have the process, when it is started, run another function, which can be pickled."""
    from torch.distributed.checkpoint import _async_process_executor as executor

    executor._AsyncCheckpointProcess._checkpointing_subprocess = staticmethod(entry)  # type: ignore[assignment]


def consolidate_on_every_rank(parts: Path, target: Path, numbers: dict[str, int], threads: int, group: Any) -> None:
    """Make whole safetensors files of the parts of all ranks; each rank makes some of the files, as in torchtitan.

    Args:
        parts: folder of the parts.
        target: folder for the whole files and their index.
        numbers: number of the file of each tensor, from 1.
        threads: threads of each rank.
        group: process group of the ranks; None: the default one.
    """
    from torch.distributed.checkpoint import _consolidate_hf_safetensors as library  # torch 2.9

    library.consolidate_safetensors_files_on_every_rank(str(parts), str(target), numbers, threads, group)


def place_in_checkpoint(path: str, offset: int, length: int) -> Any:
    """Entry of ``.metadata`` that says which bytes of which file hold a tensor.

    Args:
        path: name of the file in the folder of the checkpoint.
        offset: first byte.
        length: number of bytes.
    """
    from torch.distributed.checkpoint.filesystem import _StorageInfo

    return _StorageInfo(path, offset, length)


# --- torchdata.nodes ----------------------------------------------------------------------------------


def running_nodes(node: Any) -> Iterator[Any]:
    """The iterators that run the nodes of a chain, last node first; these own the threads and processes."""
    import torchdata.nodes

    while node is not None:
        running = getattr(node, "_it", None)
        while isinstance(running, torchdata.nodes.BaseNode):
            running = running._it
        if running is not None:
            yield running
        node = getattr(node, "source", None)


def node_workers(running: Any) -> list[Any]:
    """The processes or threads that call the function of a ``ParallelMapper``."""
    workers: list[Any] = getattr(running, "_workers", [])
    return workers


def node_threads(running: Any) -> list[threading.Thread]:
    """The threads of a node other than its workers."""
    threads = [getattr(running, name, None) for name in _NODE_THREADS]
    return [thread for thread in threads if thread is not None]


def ask_node_to_stop(running: Any) -> None:
    """Ask the threads of a node to end; a thread that waits for an item gets the end of the data."""
    for name in _NODE_STOPS:
        event = getattr(running, name, None)
        if event is not None:
            event.set()


def ask_node_workers_to_stop(running: Any) -> None:
    """Ask the worker processes of a node to end, if it has any."""
    if hasattr(running, "_mp_stop"):
        running._mp_stop.set()


def end_node(running: Any) -> None:
    """End a node whose workers have ended, and drop its list of workers.

    If a process is forked later and collects the node, the node would look for its workers there.
    """
    running._shutdown()
    running._workers = []


def node_queues(running: Any) -> list[Any]:
    """The queues between a node and its workers."""
    return [getattr(running, name) for name in _NODE_QUEUES if hasattr(running, name)]
