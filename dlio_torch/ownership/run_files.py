"""The list of a run directory's files, for its marker; :mod:`dlio_torch.run_directory.run_dir` describes them."""

from __future__ import annotations

from dlio_torch.ownership.names import numbers

_ANY = numbers()
_PROCESS = f"rank{_ANY}-{_ANY}"
_EVENTS = (
    # If a process id is used again, the names of its files have a further number.
    *(
        f"{name}.{end}"
        for name in (_PROCESS, f"{_PROCESS}-{_ANY}")
        for end in ("spans", "names", "posix", "posix.names")
    ),
    *(f"rank{_ANY}.budget", f"strace.{_ANY}", f".*-{_ANY}", ".writable"),
)
RUN_FILES = (
    *("config.yaml", "sources.yaml", "environment.json", "state.json", "summary.json", "elastic.json", "command.json"),
    "checkpoints.json",
    *("steps.csv", f"steps.rank{_ANY}.csv", f"steps.rank{_ANY}.csv.journal", f"position.rank{_ANY}.json"),
    *("trace.json.gz", "horovod.json", "report.html"),
    *(f"events/{name}" for name in _EVENTS),
    *(f"tensorboard/rank{_ANY}.{_ANY}.pt.trace.json.gz", "tensorboard/.torch.*.tmp"),
    f"tensorboard/rank{_ANY}/events.out.tfevents.*",
    f"turn-{_ANY}/",
)
