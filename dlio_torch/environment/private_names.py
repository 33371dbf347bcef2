"""All uses of names that torch, torchdata and Python keep to themselves, a function for each.

They have no public counterpart, and a new version may rename them without notice.  Tried with torch 2.13.0,
torchdata 0.11.0 and Python 3.11.7; where another version was looked up, the function says so.  What a later version
drops is to be changed here alone: a test keeps such names out of all other modules.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `--help` is to be quick
    from multiprocessing.process import BaseProcess

_NODE_THREADS = ("_thread", "_read_thread", "_sort_thread")  # of a Prefetcher or PinMemory; of a ParallelMapper, two
_NODE_STOPS = ("_stop_event", "_stop")  # likewise
_NODE_QUEUES = ("_in_q", "_intermed_q")

# --- Python -------------------------------------------------------------------------------------------


def run_exit_handlers() -> None:
    """Run what was registered with :mod:`atexit`, now.  In CPython since 2.4."""
    atexit._run_exitfuncs()


def resource_tracker_pid() -> int | None:
    """The process that removes shared memory after the others; ``None``: there is none."""
    from multiprocessing import resource_tracker

    tracker = getattr(resource_tracker, "_resource_tracker", None)
    pid: int | None = getattr(tracker, "_pid", None)
    return pid


def on_error_of_thread(thread: threading.Thread, handler: Callable[[threading.Thread], object]) -> None:
    """Have ``handler`` called in a thread that an exception ends, where Python would print a traceback."""
    thread._invoke_excepthook = handler  # type: ignore[attr-defined]


def on_transfer_error(handler: Callable[[Any, Exception, Any], object]) -> None:
    """Have ``handler`` called where a queue between processes cannot send an item; in all queues of this process.

    Python would print the traceback and drop the item.  Its own executors replace this method for the same purpose.

    Args:
        handler: gets the queue, the error and the item, in the thread that sends.
    """
    from multiprocessing import queues

    queues.Queue._on_queue_feeder_error = handler  # type: ignore[attr-defined]


def close_queue(queue: Any) -> None:
    """Close both ends of a queue between processes.

    Until it is collected, epochs later, it would keep the one that nobody wrote to.
    """
    queue.cancel_join_thread()
    queue.close()
    if getattr(queue, "_thread", None) is None:  # else the thread that writes closes it
        queue._writer.close()


# --- torch --------------------------------------------------------------------------------------------


def gpu_sleep(cuda: Any, cycles: int) -> None:
    """Queue a kernel on the current stream that keeps one multiprocessor busy.

    Args:
        cuda: the module ``torch.cuda``.
        cycles: of the GPU's clock.
    """
    cuda._sleep(cycles)


def is_handler_of_loaders(handler: Any) -> bool:
    """Whether a handler of SIGCHLD is the one that torch's DataLoaders install, a nested function of a module."""
    return getattr(handler, "__module__", "") == "torch.utils.data._utils.signal_handling"


def loader_workers(iterator: Any) -> list[BaseProcess]:
    """The worker processes of an iterator of a DataLoader; there are none where the trainer's process reads."""
    workers: list[BaseProcess] = getattr(iterator, "_workers", [])
    return workers


def forget_loader_workers(iterator: Any) -> None:
    """From here on the end of a worker of this iterator is no failure."""
    from torch.utils.data._utils import signal_handling

    if iterator._worker_pids_set:
        iterator._worker_pids_set = False
        signal_handling._remove_worker_pids(id(iterator))  # type: ignore[attr-defined]


def replace_end_of_workers(iterator: Any) -> None:
    """Give the iterator another event to tell its workers to end by, which nobody else has.

    A worker that was killed may have held the lock of its own event: nobody would ever get it.
    """
    iterator._workers_done_event = threading.Event()


def end_loader_workers(iterator: Any) -> None:
    """End the workers of an iterator of a DataLoader; waits five seconds for each, one after another."""
    iterator._shutdown_workers()


# --- torchdata.nodes ----------------------------------------------------------------------------------


def running_nodes(node: Any) -> Iterator[Any]:
    """What runs the nodes of a chain, from its end: the iterators that own threads and processes."""
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
    """The threads that a node has beside its workers."""
    threads = [getattr(running, name, None) for name in _NODE_THREADS]
    return [thread for thread in threads if thread is not None]


def ask_node_to_stop(running: Any) -> None:
    """Ask the threads of a node to end: who waits for an item is told that there are no more."""
    for name in _NODE_STOPS:
        event = getattr(running, name, None)
        if event is not None:
            event.set()


def ask_node_workers_to_stop(running: Any) -> None:
    """Ask the worker processes of a node to end, where it has any."""
    if hasattr(running, "_mp_stop"):
        running._mp_stop.set()


def end_node(running: Any) -> None:
    """End a node whose workers have ended.

    Collected in a process that is forked later, it would look for its workers there: it forgets them.
    """
    running._shutdown()
    running._workers = []


def node_queues(running: Any) -> list[Any]:
    """The queues between a node and its workers."""
    return [getattr(running, name) for name in _NODE_QUEUES if hasattr(running, name)]
