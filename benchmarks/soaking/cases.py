"""The variants of runs that a soak test keeps running, on small data, with every long-lived component."""

from __future__ import annotations

from collections.abc import Sequence

_WORKERS = ["loader.num_workers=2", "loader.prefetch_factor=2", "loader.read_threads=0"]
_MAP = ["recipe=minimal", "dataset.num_files=8"]
_STREAM = ["recipe=minimal", "dataset=tfrecord", "access=stream", "access.shuffle_pool=8"]
_LANES = ["recipe=frnn"]

CASES: dict[str, Sequence[str]] = {
    "main process": [*_MAP, "loader=main_process"],
    "workers that persist": [*_MAP, *_WORKERS, "loader.persistent_workers=true"],
    "workers of an epoch": [*_MAP, *_WORKERS, "loader.persistent_workers=false"],
    "stateful": [*_MAP, *_WORKERS, "loader.engine=stateful", "loader.persistent_workers=false"],
    "nodes": [*_MAP, *_WORKERS, "loader.engine=nodes", "loader.persistent_workers=false"],
    "threads": [*_MAP, "loader=threads", "loader.read_threads=2"],
    "decoupled, threads": [*_MAP, "loader=decoupled"],
    "decoupled, workers": [*_MAP, "loader=decoupled", "loader.num_workers=2"],
    "stream": [*_STREAM, "loader=main_process"],
    "lanes": [*_LANES, "loader=main_process"],
    "in memory": [*_MAP, "loader=in_memory"],
    "checkpoints": [
        *_MAP, "loader=main_process", "checkpoint=torch_save", "checkpoint.state_bytes=1MiB",
        "checkpoint.every_steps=5", "checkpoint.keep=2",
    ],
    "every call": [*_MAP, "loader=workers", "trace.posix=true"],
    "evaluation": [
        *_MAP, *_WORKERS, "loader.persistent_workers=false", "dataset.num_files_eval=2",
        "dataset.samples_per_file_eval=8", "train.eval_every_epochs=2",
    ],
    "staging": [*_MAP, "loader=main_process", "stage.every_epoch=true", "stage.dir={stage}"],
    "verify": [*_MAP, "loader=threads", "verify=true"],
}  # fmt: skip
"""Arguments of the tool by the name of the way; ``{stage}`` is a folder of its own."""


def arguments(name: str, folder: str, epochs: int, step_s: float, limit: str) -> list[str]:
    """The command line of a variant whose files lie below ``folder``."""
    return [
        *(word.replace("{stage}", f"{folder}/stage") for word in CASES[name]),
        "scale=tiny",
        f"train.epochs={epochs}",
        f"compute.step_s={step_s}",
        f"dataset.root={folder}/data",
        f"output.dir={folder}/run",
        *([f"trace.limit_bytes={limit}"] if limit else []),
    ]
