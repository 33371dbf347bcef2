"""One rank of many, from the start of its process to its first batch, looked at from inside.

    python -m benchmarks.starting.rank STARTED RANK WORLD_SIZE SENT OUTPUT ARGUMENTS...

STARTED is the clock (ns) at which the parent started this process; SENT is the file of what rank 0 has broadcast.
The calls are those of ``python -m dlio_torch train`` (:mod:`dlio_torch.run`); then it is told how much memory the
index of this rank takes, by making it once more under tracemalloc.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil

Figures = dict[str, Any]


class Marks:
    """When something was done, and how much memory the process had then."""

    def __init__(self, started_ns: int) -> None:
        self._last_ns = started_ns
        self.figures: Figures = {}

    def done(self, what: str) -> None:
        """``what`` was done since the last mark."""
        now = time.perf_counter_ns()
        self.figures[f"{what}_s"] = (now - self._last_ns) * 1e-9
        self.figures[f"{what}_rss"] = _rss()
        self._last_ns = time.perf_counter_ns()


def main(started_ns: int, rank: int, world_size: int, sent: Path, arguments: list[str]) -> Figures:
    """See the module; figures, or ``error`` where the tool refuses so many ranks."""
    from benchmarks.starting.alone import Alone
    from benchmarks.starting.index import index_of
    from dlio_torch.config.compose import compose
    from dlio_torch.config.validate import check_world
    from dlio_torch.data.engines.assemble import assemble
    from dlio_torch.errors import DlioError
    from dlio_torch.run.alike import same_on_all
    from dlio_torch.run.data import use_existing, where_samples_lie
    from dlio_torch.run.ending import Ending
    from dlio_torch.run.setting import Setting
    from dlio_torch.run.training import prepare_cache
    from dlio_torch.trace.spans import NULL

    marks = Marks(started_ns)
    marks.done("import")
    comm = Alone(rank, world_size, sent)
    try:
        with ExitStack() as stack:
            stack.callback(comm.close)
            composed = compose(arguments, environ={})
            same_on_all(composed.config, comm)
            run = Setting(composed, comm, Ending(comm))
            config = run.config
            marks.done("compose")
            manifests = where_samples_lie(run)
            train = manifests["train"]
            check_world(config, world_size, train.num_samples, train.num_files, composed.sources)
            use_existing(run, manifests)
            marks.done("data")
            if run.format.needs_files:
                prepare_cache(run, manifests, None, stack)
            marks.done("cache")
            loaders = assemble(config, run.format, manifests, NULL, rank, world_size)
            stack.callback(loaders.close)
            marks.done("plan")
            batches = loaders.train.epoch(0)
            batch = next(batches)
            marks.done("first")
            found = {
                **marks.figures,
                "total_s": (time.perf_counter_ns() - started_ns) * 1e-9,
                "peak": status("VmHWM"),
                "workers": len(psutil.Process().children()),
                "batch_bytes": sum(tensor.nbytes for tensor in batch.values()),
                "received_bytes": comm.received_bytes,
                "gathered_bytes": comm.gathered_bytes,
                "samples": train.num_samples,
                "files": train.num_files,
                "share": len(loaders.sampler) * loaders.sampler.batch_size,
            }
    except DlioError as error:
        return {"error": str(error)}
    return {**found, **index_of(config, run.format, rank, world_size)}


def _rss() -> int:
    """Resident memory, without what is mapped from files: libraries are shared, and the page cache is no one's."""
    return status("RssAnon")


def status(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(field + ":")).split()[1])


if __name__ == "__main__":
    started, number, ranks, log, out, *words = sys.argv[1:]
    Path(out).write_text(json.dumps(main(int(started), int(number), int(ranks), Path(log), words)), encoding="utf-8")
