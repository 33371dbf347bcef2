"""The request of a job to its scheduler: the keys of ``launch``."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.arguments import split_argument
from dlio_torch.config.fields import lookup, nearest
from dlio_torch.errors import ConfigError
from dlio_torch.launch.key_values import choice, grace, job, line, memory, number, time_s, word, wrong
from dlio_torch.study import verb_keys

Verb = Literal["run", "generate", "train", "checkpoint", "sweep", "tune", "headspace"]
VERBS: tuple[Verb, ...] = ("run", "generate", "train", "checkpoint", "sweep", "tune", "headspace")
"""Verbs that a job can run."""
STUDIES = ("sweep", "tune", "headspace")
"""Verbs that start the ranks of their runs themselves, and can be resumed."""
COMMANDS = {"slurm": "sbatch", "pbs": "qsub"}
"""Scheduler -> the program that takes a script."""
LAUNCHERS = {"slurm": ("srun", "torchrun", "horovodrun", "mpiexec"), "pbs": ("mpiexec", "torchrun", "horovodrun")}
"""Scheduler -> programs that start ranks in its jobs, the default first."""

_ONLY = {"partition": "slurm", "queue": "pbs"}
_OF_RANKS = ("launcher", "nodes", "ranks_per_node", "stage_in", "local")
_OF_STUDIES = ("restarts", "grace")
_DESCRIBED = "checkpoint"


@dataclass(frozen=True)
class JobRequest:
    """The keys of ``launch``; ``None``: not given.

    Attributes:
        verb: what the job does.
        arguments: ``key=value`` arguments for the verb of the job.
        scheduler: ``slurm`` or ``pbs``.
        launcher: what starts the ranks; a study starts those of its runs itself.
        nodes: number of nodes; 0: not given, for checkpoints, whose job may describe its ranks.
        ranks_per_node: ranks on each of them; 0: a study, whose runs say how many, or as for ``nodes``.
        time_s: seconds that the job may take.
        cpus_per_rank: cores of a rank.
        gpus_per_node: GPUs of a node.
        memory_bytes: memory of a node.
        partition: partition of Slurm.
        queue: queue of PBS.
        account: account that is charged.
        job: name of the job.
        directives: further options of the scheduler, in one line.
        setup: shell file that the job reads first.
        python: the interpreter.
        stage_in: ranks that write the data set: of all nodes, or of one.
        local: folder of node-local storage that gets a copy of the data set, variables of the job in it.
        script: path of the script.
        template: name or path of the scheduler's template.
        restarts: how often a study that runs out of time is started again.
        grace_s: seconds before the end of the job at which a study is ended.
    """

    verb: Verb
    arguments: tuple[str, ...]
    scheduler: str
    time_s: int
    launcher: str
    nodes: int = 1
    ranks_per_node: int = 0
    cpus_per_rank: int | None = None
    gpus_per_node: int | None = None
    memory_bytes: int | None = None
    partition: str | None = None
    queue: str | None = None
    account: str | None = None
    job: str | None = None
    directives: str | None = None
    setup: str | None = None
    python: str | None = None
    stage_in: Literal["all", "node"] = "all"
    local: str | None = None
    script: str | None = None
    template: str | None = None
    restarts: int = 20
    grace_s: int = 120

    @property
    def is_study(self) -> bool:
        """Whether the verb makes many runs, and can be resumed."""
        return self.verb in STUDIES

    def value(self, key: str) -> str | None:
        """The value that an argument gives to ``key``; the last one counts."""
        texts = [text for name, text in map(split_argument, self.arguments) if name == key]
        return texts[-1] if texts else None


def parse(words: Sequence[str], settings: Sequence[str]) -> JobRequest:
    """The request of a command line.

    Args:
        words: the verb of the job, or nothing.
        settings: ``key=value`` arguments; those that are no keys of ``launch`` are left for the job.

    Raises:
        ConfigError: anything that is wrong with the keys of ``launch``.
    """
    verb = _verb(words)
    given: dict[str, str] = {}
    left = []
    for argument in settings:
        key, text = split_argument(argument)
        if key not in verb_keys.KEYS["launch"]:
            _refuse_slip(key, text, verb)
            left.append(argument)
        elif key in given and given[key] != text:
            raise wrong(key, text, f"given twice, as {given[key]} before", "keep one")
        else:
            given[key] = text
    scheduler = _scheduler(given)
    study = verb in STUDIES
    _fitting(given, scheduler, verb)
    nodes = number("nodes", given, 1) or 0
    ranks = number("ranks_per_node", given, 1)
    if not study and verb != _DESCRIBED and ranks is None:
        raise no_ranks(nodes)
    limit_s = time_s(given)
    restarts = number("restarts", given, 0)
    return JobRequest(
        verb=verb,
        arguments=tuple(left),
        scheduler=scheduler,
        time_s=limit_s,
        launcher=choice("launcher", given, LAUNCHERS[scheduler], of=f"scheduler={scheduler}"),
        nodes=nodes or (0 if verb == _DESCRIBED else 1),
        ranks_per_node=ranks or 0,
        cpus_per_rank=number("cpus_per_rank", given, 1),
        gpus_per_node=number("gpus_per_node", given, 1),
        memory_bytes=memory(given),
        partition=word("partition", given),
        queue=word("queue", given),
        account=word("account", given),
        job=job(given),
        directives=line("directives", given),
        setup=line("setup", given),
        python=line("python", given),
        stage_in="node" if choice("stage_in", given, ("all", "node")) == "node" else "all",
        local=line("local", given),
        script=line("script", given),
        template=line("template", given),
        restarts=int(verb_keys.KEYS["launch"]["restarts"].default) if restarts is None else restarts,
        grace_s=grace(given, limit_s),
    )


def no_ranks(nodes: int) -> ConfigError:
    """The error about ranks that nothing says.

    Args:
        nodes: number of nodes; 0: not given.
    """
    missing = f"nodes={nodes} (command line): without" if nodes else "launch (command line): no"
    return ConfigError(f"{missing} ranks_per_node", hint="write ranks_per_node=4")


def _verb(words: Sequence[str]) -> Verb:
    if not words:
        return "run"
    for verb in VERBS:
        if list(words) == [verb]:
            return verb
    raise ConfigError(
        f"launch {' '.join(words)} (command line): expected one verb of a job", hint=f"verbs are {', '.join(VERBS)}"
    )


def _refuse_slip(key: str, text: str, verb: Verb) -> None:
    """Refuse a misspelt key of ``launch``; other arguments are checked with those of the job."""
    if lookup(key.split(".")) is not None or key in verb_keys.KEYS.get(verb, {}) or "." in key:
        return
    meant = verb_keys.meant(key, "launch") or "".join(
        nearest(key, list(verb_keys.KEYS["launch"]), cutoff=verb_keys.ALIKE)
    )
    if meant:
        raise wrong(key, text, "unknown key of launch", f"did you mean {meant}? see explain {meant}")


def _scheduler(given: Mapping[str, str]) -> str:
    if "scheduler" in given:
        return choice("scheduler", given, tuple(COMMANDS))
    here = [name for name, program in COMMANDS.items() if shutil.which(program)]
    if len(here) == 1:
        return here[0]
    problem = "both sbatch and qsub are installed" if here else "neither sbatch nor qsub is installed"
    raise ConfigError(
        f"launch (command line): no scheduler is given, and {problem}", hint="write scheduler=slurm or scheduler=pbs"
    )


def _fitting(given: Mapping[str, str], scheduler: str, verb: Verb) -> None:
    """Refuse keys that mean nothing to this scheduler or verb."""
    for key, only in _ONLY.items():
        if key in given and only != scheduler:
            other = next(name for name, scheduler_of_key in _ONLY.items() if scheduler_of_key == scheduler)
            raise wrong(key, given[key], f"{scheduler} has no {key}", f"write {other}={given[key]}")
    if verb in STUDIES:
        for key in _OF_RANKS:
            if key in given:
                hint = "write ranks= for those of each run" if key == "ranks_per_node" else f"leave {key}= out"
                raise wrong(key, given[key], f"{verb} starts the ranks of its runs itself, on one node", hint)
        return
    for key in _OF_STUDIES:
        if key in given:
            raise wrong(key, given[key], f"{verb} cannot be resumed, as {', '.join(STUDIES)} can", "leave it out")
    if verb != "run" and "stage_in" in given:
        reason = "writes the data on all ranks" if verb == "generate" else "writes no data"
        raise wrong("stage_in", given["stage_in"], f"{verb} {reason}", "use it with run")
    if verb in ("generate", "checkpoint") and "local" in given:
        raise wrong(
            "local", given["local"], f"{verb} does not train, so nothing would read a copy", "use it with run or train"
        )
