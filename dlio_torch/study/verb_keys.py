"""The keys of verbs that are no option of a run: of the studies' verbs, of ``launch`` and ``predict``.

Plain data: ``--help`` reads it, too.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

ALIKE = 0.75
"""How like a key a word has to be to be taken for a slip, from 0 to 1."""
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


_NAME = Key("names the folder of the results", "that of the recipe or study file", "first_try")
_OUTPUT = Key(
    "folder of the study; where it holds this study already, that goes on",
    "<output.root>/sweeps/<name>/<time>",
    "DIR",
    path=True,
)
_RANKS = Key("processes of a run, which a launcher starts", "1", "2")
_TIMEOUT = Key("longest time of one run; after it the run counts as failed", "60min", "10min")
_START = Key(
    "warm: trials start from a process that has imported torch; fresh: each trial imports it. Trials of several ranks, "
    "with CUDA, MPI, trace.posix or loader.replay=reads always start fresh",
    "warm",
    "fresh",
)
_FAILURES = Key("failed runs after which a point is given up", "1", "2")

# How many nodes, ranks and what else a scheduler is asked for.
_LAUNCH = {
    "scheduler": Key("slurm or pbs", "the one whose sbatch or qsub is here", "slurm"),
    "launcher": Key(
        "what starts the ranks: srun (Slurm only), mpiexec, torchrun or horovodrun",
        "srun; with pbs mpiexec",
        "torchrun",
    ),
    "nodes": Key("nodes of the job", "1", "2"),
    "ranks_per_node": Key("ranks on each node", "none: has to be given, except for a study, which has ranks=", "4"),
    "time": Key("longest time of the job, HH:MM:SS or with a unit", "none: has to be given", "00:30:00"),
    "partition": Key("partition of Slurm", "the site's", "debug"),
    "queue": Key("queue of PBS", "the site's", "debug"),
    "account": Key("account or project that is charged", "the site's", "materials"),
    "cpus_per_rank": Key("cores of a rank", "its compute threads, workers and reader threads", "8"),
    "gpus_per_node": Key("GPUs of a node", "none", "4"),
    "memory": Key("memory of a node", "the site's", "64GiB"),
    "directives": Key("further options of the scheduler, one line", "none", "--constraint=nvme"),
    "job": Key("name of the job", "that of the recipe or study", "first_try"),
    "setup": Key("shell file that the job reads first: modules, variables", "none", "modules.sh", path=True),
    "python": Key("interpreter of the job", "this one", "/opt/env/bin/python", path=True),
    "stage_in": Key(
        "who writes missing data before the training: all ranks, or the first node's (node)", "all", "node"
    ),
    "local": Key(
        "folder of node-local storage that gets a copy of the data, one a node; variables of the job are theirs",
        "none: read where they were written",
        "'$TMPDIR'",
        path=True,
    ),
    "restarts": Key("how often a study that runs out of time is started again", "20", "5"),
    "grace": Key("time before the end of the job at which a study is ended to be started again", "2min", "5min"),
    "script": Key("file of the script", "<result>.sh", "job.sh", path=True),
    "template": Key(
        "template: a path, or a name of conf/launch/ in DLIO_TORCH_PATH",
        "that of the scheduler",
        "./mine.sh",
        path=True,
    ),
}

KEYS: dict[str, dict[str, Key]] = {
    "sweep": {
        "study": Key("a study file: a name of `ls studies`, or a path", "none", "global_shuffle", path=True),
        "repeats": Key("runs of every point", "3, or what the study file says", "5"),
        "ranks": Key(f"{_RANKS.doc}; several values are an axis", "1, or what the study file says", "1,2"),
        "timeout": _TIMEOUT,
        "start": _START,
        "failures": _FAILURES,
        "name": _NAME,
        "output": _OUTPUT,
    },
    "tune": {
        "objective": Key(f"what is sought: {', '.join(OBJECTIVES)}", "throughput", "au"),
        "min_au": Key("accelerator utilisation that objective=resources has to reach, above 0 to 1", "0.9", "0.95"),
        "minutes": Key("longest time of search and confirmation together", "10", "20"),
        "trials": Key("most runs of search and confirmation together", "30", "60"),
        "repeats": Key("most pairs of runs that confirm the gain", "5", "8"),
        "space": Key(
            "options to search beside the given axes: loader (num_workers, prefetch_factor, persistent_workers and "
            "pin_memory of torch's DataLoader, or the options of the recipe's engine), all (also reader threads, and "
            "sizes of reads and caches of the format)",
            "loader where no axis is given",
            "all",
        ),
        "ranks": _RANKS,
        "timeout": _TIMEOUT,
        "start": _START,
        "name": _NAME,
        "output": _OUTPUT,
    },
    "headspace": {
        "repeats": Key("rounds of the ladder; as many again where these cannot tell", "3", "5"),
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
        "files": Key("files of the data set", "as in the run", "1024"),
        "samples": Key("samples of an epoch, of all ranks", "as in the run", "262144"),
    },
}
"""The keys of each verb, in the order of its help."""

EXAMPLES = {
    "sweep": "sweep recipe=minimal loader.num_workers=0..4 train.batch_size=4,8 repeats=5",
    "tune": "tune recipe=minimal objective=au minutes=5",
    "headspace": "headspace recipe=minimal loader.num_workers=2",
    "launch": "launch recipe=minimal nodes=2 ranks_per_node=4 time=00:30:00 --submit",
    "predict": "predict runs/minimal/20261120-180000 system=theta ranks=1..8192:x2",
}

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
}


def verbs_of(key: str) -> list[str]:
    """The verbs that know a key."""
    return [verb for verb, keys in KEYS.items() if key in keys]


def meant(word: str, verb: str) -> str:
    """The key of a verb that is often called otherwise; ``""``: none."""
    return _MEANT[verb].get(word, "")


def key_lines(verb: str, width: int) -> Iterator[str]:
    """The keys of a verb with example, meaning and default, for its help."""
    examples = {name: f"{name}={key.example}" for name, key in KEYS[verb].items()}
    left = max(map(len, examples.values())) + 2
    for name, key in KEYS[verb].items():
        text = f"{key.doc} [{key.default}]"
        yield from textwrap.wrap(
            text, width, initial_indent=f"  {examples[name]:<{left}}", subsequent_indent=" " * (left + 2)
        )


def explained(key: str) -> Iterator[str]:
    """Meaning of a key for each verb that knows it, line by line."""
    alike: dict[Key, list[str]] = {}
    for verb in verbs_of(key):
        alike.setdefault(KEYS[verb][key], []).append(verb)
    for item, verbs in alike.items():
        yield f"{key} (of {', '.join(verbs)}): {item.doc}"
        yield f"  default  {item.default}"
        yield f"  example  {key}={item.example}"
    if key == "objective":
        yield from (f"  {name:<10}  {words}" for name, words in OBJECTIVES.items())
