"""The import hook: records what a recorded program, and its workers, ask torch for.

The preloaded library (``native/posix_trace_hook.h``) lets the interpreter run :mod:`.enter` when the program begins to
import torch.  From then on an import watcher patches a few functions of torch and torchdata when they have been
imported.  The patched functions call the original ones, and record:

* spans of layer ``app`` (:class:`dlio_torch.iotrace.recorder.spans.Recorder`)::

    fetch     main process: one ``next()`` of a loader's iterator; step: batch, file: loader, offset: epoch
    sample    one item of a data set in the process that reads it; offset: index, -1 if it is no integer
    batch     all samples of a batch, and collating, in the process that reads it
    collate   within ``batch``
    compute   main thread: from the end of a fetch, checkpoint or load to the begin of the next one
    checkpoint, load   ``torch.save`` and ``torch.load``, and their like of ``torch.distributed.checkpoint``

* facts in ``rank<r>-<pid>.torch`` (:mod:`dlio_torch.iotrace.events.torch_calls`).

The hook uses the standard library only, because the recorded program may run in an environment of its own.  It needs
Python 3.10.  A failure of the hook ends its recording, with a note; the program goes on.
"""
