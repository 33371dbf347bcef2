"""Measures one rank of many from inside, from the start of its process to its first batch.

    python -m benchmarks.starting.rank STARTED RANK WORLD_SIZE SENT OUTPUT ARGUMENTS...

STARTED is the clock (ns) at which the parent started this process; SENT is the file of what rank 0 has broadcast.
The calls are those of ``python -m dlio_torch train`` (:mod:`dlio_torch.execution.pipeline`).  The memory of this rank's
index is measured afterwards: it is made once more under tracemalloc.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import psutil

Figures = dict[str, Any]


class Marks:
    """Times at which phases ended, and the memory of the process then."""

    def __init__(self, started_ns: int) -> None:
        self._last_ns = started_ns
        self.figures: Figures = {}

    def done(self, what: str) -> None:
        """Records that the phase ``what`` has ended."""
        now = time.perf_counter_ns()
        self.figures[f"{what}_s"] = (now - self._last_ns) * 1e-9
        self.figures[f"{what}_rss"] = _rss()
        self._last_ns = time.perf_counter_ns()


def main(started_ns: int, rank: int, world_size: int, sent: Path, arguments: list[str]) -> Figures:
    """Prints the figures, or ``error`` if the tool refuses this number of ranks."""
    from benchmarks.starting.alone import Alone
    from benchmarks.starting.index import index_of
    from dlio_torch.config.compose import compose
    from dlio_torch.config.validate import check_world
    from dlio_torch.data.dataset.data_files import DataFiles
    from dlio_torch.data.dataset.once import OnceFiles
    from dlio_torch.data.engines.assemble import assemble
    from dlio_torch.data.order.planning import plan_order
    from dlio_torch.errors import DlioError
    from dlio_torch.execution.cleanup import Cleanup
    from dlio_torch.execution.context import RunContext
    from dlio_torch.execution.outcome import RunOutcome
    from dlio_torch.execution.preparation import check_generated_data, locate_data_set
    from dlio_torch.execution.training_data import prepare_cache
    from dlio_torch.iotrace.recorder.spans import NULL
    from dlio_torch.preflight.rank_agreement import check_ranks_agree

    marks = Marks(started_ns)
    marks.done("import")
    comm = Alone(rank, world_size, sent)
    try:
        with Cleanup() as cleanup:
            cleanup.callback(comm.close)
            composed = compose(arguments, environ={})
            check_ranks_agree(composed.config, comm)
            context = RunContext.create(composed, comm, RunOutcome(comm))
            config, fmt = composed.config, context.format
            marks.done("compose")
            prepared = locate_data_set(context)
            manifests, train = prepared.manifests, prepared.manifests["train"]
            check_world(config, world_size, train.num_samples, train.num_files, composed.sources)
            size = check_generated_data(context, prepared)
            marks.done("data")
            files = DataFiles(fmt, manifests.values(), size, OnceFiles(config, fmt).paths)
            prepare_cache(context, config, "as_is", files, 1, cleanup)
            marks.done("cache")
            order = plan_order(config, fmt, manifests, rank, world_size)
            loaders = assemble(config, fmt, manifests, order, NULL)
            cleanup.callback(loaders.close)
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
                "share": len(order.train) * order.train.batch_size,
            }
    except DlioError as error:
        return {"error": str(error)}
    return {**found, **index_of(config, fmt, rank, world_size)}


def _rss() -> int:
    """Resident memory without mapped files, which are shared (libraries) or page cache."""
    return status("RssAnon")


def status(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(field + ":")).split()[1])


if __name__ == "__main__":
    started, number, ranks, log, out, *words = sys.argv[1:]
    Path(out).write_text(json.dumps(main(int(started), int(number), int(ranks), Path(log), words)), encoding="utf-8")
