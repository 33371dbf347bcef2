"""Recording of the read core's work: the spans of its threads, and the provenance of batches."""

from __future__ import annotations

import numpy as np

from dlio_torch.data.dataset.provenance import batch_number
from dlio_torch.data.engines.decoupled.group_plan import ReadPlan
from dlio_torch.formats.core.layout import Ints
from dlio_torch.iotrace.recorder.spans import Recorder
from dlio_torch.native.read_core import Report

_BYTES, _THREAD, _BEGIN, _END, _PROCESSOR, _KERNEL, _DELAY, _DEVICE = range(2, 10)
"""Fields of ``struct use`` in ``core_use.h``."""


def record_uses(recorder: Recorder, plan: ReadPlan, report: Report) -> list[int]:
    """Records the parts of a job as spans ``read`` of their threads; returns the numbers of its batches.

    The batches are those of the thread that ended last.  The first one has all of its work, from the begin of its first
    part to the end of its last: the others cost nothing more.
    """
    paths = {str(path) for path in plan.paths.values()} | {str(records.layout.path) for records in plan.records}
    path = paths.pop() if len(paths) == 1 else None
    uses = report.uses
    for use in uses.tolist():
        with recorder.as_thread(use[_THREAD], "reader"):
            recorder.add("read", use[_BEGIN], use[_END], file=path, bytes=use[_BYTES])
    last = uses[uses[:, _END].argmax(), _THREAD]
    return _record_batches(recorder, uses[uses[:, _THREAD] == last], len(plan.counts))


def _record_batches(recorder: Recorder, uses: Ints, count: int) -> list[int]:
    """Records batches, and what they took of the only thread of these parts."""
    thread, begin, end = int(uses[0, _THREAD]), int(uses[:, _BEGIN].min()), int(uses[:, _END].max())
    processor, kernel, delay, device = uses[:, _PROCESSOR:].sum(axis=0).tolist()
    spans = [(begin, end), *((end + later, end + later) for later in range(1, count))]
    with recorder.as_thread(thread, "reader"):
        for start, stop in spans:
            recorder.add("batch", start, stop, offset=batch_number(start, thread))
        recorder.add("kernel", begin, begin + kernel)
        if bool(np.all(uses[:, _DELAY] >= 0)):
            busy = int((uses[:, _END] - uses[:, _BEGIN]).sum())
            recorder.add("run_delay", begin, begin + delay)
            recorder.add("asleep", begin, begin + max(0, busy - delay - processor), bytes=device)
    return [batch_number(start, thread) for start, _ in spans]
