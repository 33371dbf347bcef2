"""Keys of the verbs sweep, tune, headspace, launch, predict and checkpoint that are not options of a run.

Plain data: ``--help`` reads it, too.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

ALIKE = 0.75
"""Similarity, from 0 to 1, from which an unknown key is taken for a misspelt one."""
OBJECTIVES = {
    "throughput": "throughput",
    "au": "accelerator utilisation",
    "resources": "fewest workers and reader threads, then least memory of batches read ahead, whose accelerator "
    "utilisation is high enough",
}
"""Objectives of a search, in words."""


@dataclass(frozen=True)
class Key:
    """One key of a verb.

    Attributes:
        doc: one line on what it is.
        default: description of the default value.
        example: a value.
        path: whether the value is a path on this machine.
    """

    doc: str
    default: str
    example: str
    path: bool = False


_NAME = Key("names the folder of the results", "name of the recipe or study file", "first_try")
_OUTPUT = Key(
    "folder of the study; if it already contains this study, the study is continued",
    "<output.root>/sweeps/<name>/<time>",
    "DIR",
    path=True,
)
_RANKS = Key("ranks (processes) of a run, which a launcher starts", "1", "2")
_TIMEOUT = Key("maximum time of one run; a longer run counts as failed", "60min", "10min")
_START = Key(
    "warm: trials start from a process that has imported torch; fresh: each trial imports torch itself. Trials "
    "of several ranks, with CUDA, MPI, trace.posix or loader.replay=reads always start fresh",
    "warm",
    "fresh",
)
_FAILURES = Key("failed runs after which a point is given up", "1", "2")

# How many nodes, ranks and what else a scheduler is asked for.
_LAUNCH = {
    "scheduler": Key("slurm or pbs", "the scheduler whose sbatch or qsub is installed", "slurm"),
    "launcher": Key(
        "launcher of the ranks: srun (Slurm only), mpiexec, torchrun or horovodrun",
        "srun; with scheduler=pbs mpiexec",
        "torchrun",
    ),
    "nodes": Key("nodes of the job", "1; for checkpoint as many as the ranks of parallel need", "2"),
    "ranks_per_node": Key(
        "ranks on each node",
        "required, except for a study, which uses ranks=, and for checkpoint: the ranks of parallel, divided among "
        "nodes=, or gpus_per_node=",
        "4",
    ),
    "time": Key("maximum time of the job, HH:MM:SS or with a unit", "required", "00:30:00"),
    "partition": Key("partition of Slurm", "the default of the site", "debug"),
    "queue": Key("queue of PBS", "the default of the site", "debug"),
    "account": Key("account or project that is charged", "the default of the site", "materials"),
    "cpus_per_rank": Key("cores of a rank", "its compute threads, workers and reader threads", "8"),
    "gpus_per_node": Key("GPUs of a node", "none", "4"),
    "memory": Key("memory of a node", "the default of the site", "64GiB"),
    "directives": Key("further options of the scheduler, one line", "none", "--constraint=nvme"),
    "job": Key("name of the job", "name of the recipe or study", "first_try"),
    "setup": Key("shell file that the job reads first: modules, variables", "none", "modules.sh", path=True),
    "python": Key("interpreter of the job", "the current interpreter", "/opt/env/bin/python", path=True),
    "stage_in": Key(
        "ranks that generate missing data before the training: all, or the ranks of the first node (node)",
        "all",
        "node",
    ),
    "local": Key(
        "folder of node-local storage for a copy of the data on each node; variables are expanded in the job",
        "none: the data are read from where they were written",
        "'$TMPDIR'",
        path=True,
    ),
    "restarts": Key("maximum number of times that a study that runs out of job time is started again", "20", "5"),
    "grace": Key(
        "time before the end of the job at which a study is stopped, to be continued by another job", "2min", "5min"
    ),
    "script": Key("path of the job script", "<result>.sh", "job.sh", path=True),
    "template": Key(
        "template of the job script: a path, or the name of a file in conf/launch/ of DLIO_TORCH_PATH",
        "the template of the scheduler",
        "./mine.sh",
        path=True,
    ),
}

KEYS: dict[str, dict[str, Key]] = {
    "sweep": {
        "verb": Key(
            "verb of each trial: run, or checkpoint, which saves and loads without training (saves=, loads=)",
            "run, or what the study file says",
            "checkpoint",
        ),
        "study": Key("a study file: a name of `ls studies`, or a path", "none", "global_shuffle", path=True),
        "repeats": Key("number of runs of every point", "3, or what the study file says", "5"),
        "ranks": Key(f"{_RANKS.doc}; several values are an axis", "1, or what the study file says", "1,2"),
        "timeout": _TIMEOUT,
        "start": _START,
        "failures": _FAILURES,
        "name": _NAME,
        "output": _OUTPUT,
    },
    "tune": {
        "objective": Key(f"objective of the search: {', '.join(OBJECTIVES)}", "throughput", "au"),
        "min_au": Key(
            "accelerator utilisation that objective=resources must reach, above 0 and at most 1", "0.9", "0.95"
        ),
        "minutes": Key("maximum time of search and confirmation together, in minutes", "10", "20"),
        "trials": Key("maximum number of runs of search and confirmation together", "30", "60"),
        "repeats": Key("maximum number of pairs of runs that confirm the gain", "5", "8"),
        "space": Key(
            "options to search beside the given axes: loader (num_workers, prefetch_factor, persistent_workers and "
            "pin_memory of torch's DataLoader, or the options of the recipe's engine), all (also reader threads, and "
            "sizes of reads and caches of the format)",
            "loader, if no axis is given",
            "all",
        ),
        "ranks": _RANKS,
        "timeout": _TIMEOUT,
        "start": _START,
        "name": _NAME,
        "output": _OUTPUT,
    },
    "headspace": {
        "repeats": Key("rounds of the ladder; if they are inconclusive, the same number of rounds is added", "3", "5"),
        "ranks": _RANKS,
        "timeout": _TIMEOUT,
        "start": _START,
        "failures": Key("failed runs after which a rung is given up", "1", "2"),
        "name": _NAME,
        "output": _OUTPUT,
    },
    "launch": _LAUNCH,
    "predict": {
        "ranks": Key("numbers of ranks to simulate", "1..1024:x2", "1..8192:x2"),
        "cached": Key("share of the bytes that page caches of the nodes deliver, from 0 to 1", "0", "0.5"),
        "files": Key("number of files of the data set", "as in the run", "1024"),
        "samples": Key("number of samples of an epoch, over all ranks", "as in the run", "262144"),
    },
    "checkpoint": {
        "saves": Key(
            "number of checkpoints that are saved, one after the other, each flushed to the device", "10", "3"
        ),
        "loads": Key(
            "number of times that a checkpoint is read back after all saves; the kept checkpoints are read in turn",
            "10",
            "3",
        ),
    },
}
"""The keys of each verb, in the order of its help."""

# Words that are tried for a key.
_MEANT = {
    "sweep": {"runs": "repeats", "trials": "repeats"},
    "tune": {"runs": "trials", "budget": "minutes", "goal": "objective", "metric": "objective"},
    "headspace": {"runs": "repeats", "rounds": "repeats", "trials": "repeats"},
    "launch": {
        "walltime": "time",
        "project": "account",
        "ppn": "ranks_per_node",
        "ntasks_per_node": "ranks_per_node",
        "tasks_per_node": "ranks_per_node",
        "cpus_per_task": "cpus_per_rank",
        "gpus": "gpus_per_node",
        "mem": "memory",
        "qos": "directives",
        "constraint": "directives",
    },
    "predict": {"world_size": "ranks", "nodes": "ranks"},
    "checkpoint": {"writes": "saves", "reads": "loads", "restores": "loads", "checkpoints": "saves"},
}


def verbs_of(key: str) -> list[str]:
    """Returns the verbs that have a key."""
    return [verb for verb, keys in KEYS.items() if key in keys]


def meant(word: str, verb: str) -> str:
    """Returns the key that is meant by a frequent other name; ``""``: none."""
    return _MEANT[verb].get(word, "")


def key_lines(verb: str, width: int) -> Iterator[str]:
    """Returns the keys of a verb with example, meaning and default, for the help."""
    examples = {name: f"{name}={key.example}" for name, key in KEYS[verb].items()}
    left = max(map(len, examples.values())) + 2
    for name, key in KEYS[verb].items():
        text = f"{key.doc} [{key.default}]"
        yield from textwrap.wrap(
            text, width, initial_indent=f"  {examples[name]:<{left}}", subsequent_indent=" " * (left + 2)
        )


def explained(key: str) -> Iterator[str]:
    """Explains a key for each verb that has it, line by line."""
    alike: dict[Key, list[str]] = {}
    for verb in verbs_of(key):
        alike.setdefault(KEYS[verb][key], []).append(verb)
    for item, verbs in alike.items():
        yield f"{key} (of {', '.join(verbs)}): {item.doc}"
        yield f"  default  {item.default}"
        yield f"  example  {key}={item.example}"
    if key == "objective":
        yield from (f"  {name:<10}  {words}" for name, words in OBJECTIVES.items())
