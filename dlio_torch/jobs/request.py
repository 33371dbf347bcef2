"""What a job asks of its scheduler: the keys of ``launch`` that are its own."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.compose import split_argument
from dlio_torch.config.fields import lookup, nearest
from dlio_torch.errors import ConfigError
from dlio_torch.jobs.values import choice, grace, job, line, memory, number, time_s, word, wrong
from dlio_torch.sweep import keys

Verb = Literal["run", "generate", "train", "sweep", "tune", "headspace"]
VERBS: tuple[Verb, ...] = ("run", "generate", "train", "sweep", "tune", "headspace")
"""Verbs that a job can be of."""
STUDIES = ("sweep", "tune", "headspace")
"""Those that start the ranks of their runs themselves, and can go on after an end."""
COMMANDS = {"slurm": "sbatch", "pbs": "qsub"}
"""Scheduler -> the program that takes a script."""
LAUNCHERS = {"slurm": ("srun", "torchrun", "horovodrun", "mpiexec"), "pbs": ("mpiexec", "torchrun", "horovodrun")}
"""Scheduler -> what can start ranks in its jobs, the usual one first."""

_ONLY = {"partition": "slurm", "queue": "pbs"}
_OF_RANKS = ("launcher", "nodes", "ranks_per_node", "stage_in", "local")
_OF_STUDIES = ("restarts", "grace")


@dataclass(frozen=True)
class Request:
    """What is asked; ``None``: not given.

    Attributes:
        verb: what the job does.
        arguments: ``key=value`` arguments that are none of ``launch``.
        scheduler: whose script it is.
        launcher: what starts the ranks; a study starts those of its runs itself.
        nodes: of the job.
        ranks_per_node: ranks on each of them; 0: a study, whose runs say how many.
        time_s: seconds that the job may take.
        cpus_per_rank: cores of a rank.
        gpus_per_node: GPUs of a node.
        memory_bytes: memory of a node.
        partition: of Slurm.
        queue: of PBS.
        account: that is charged.
        job: name of the job.
        directives: further options of the scheduler, one line of them.
        setup: shell file that the job reads first.
        python: the interpreter.
        stage_in: whose ranks write the data set.
        local: folder of node-local storage that gets a copy of the data set, variables of the job in it.
        script: where the script goes.
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
        """Whether the verb makes many runs, and can go on after an end."""
        return self.verb in STUDIES

    def value(self, key: str) -> str | None:
        """The value that an argument gives to ``key``; the last one counts."""
        found = [text for name, text in map(split_argument, self.arguments) if name == key]
        return found[-1] if found else None


def parse(words: Sequence[str], settings: Sequence[str]) -> Request:
    """The request of a command line.

    Args:
        words: the verb of the job, or nothing.
        settings: ``key=value`` arguments; those that are no keys of ``launch`` are left for the job.

    Raises:
        ConfigError: anything that is wrong with the keys of ``launch``.
    """
    verb = _verb(words)
    own: dict[str, str] = {}
    left = []
    for argument in settings:
        key, text = split_argument(argument)
        if key not in keys.KEYS["launch"]:
            _refuse_slip(key, text, verb)
            left.append(argument)
        elif key in own and own[key] != text:
            raise wrong(key, text, f"given twice, as {own[key]} before", "keep one")
        else:
            own[key] = text
    scheduler = _scheduler(own)
    study = verb in STUDIES
    _fitting(own, scheduler, verb)
    nodes = number("nodes", own, 1) or 1
    ranks = number("ranks_per_node", own, 1)
    if not study and ranks is None:
        missing = f"nodes={own['nodes']} (command line): without" if "nodes" in own else "launch (command line): no"
        raise ConfigError(f"{missing} ranks_per_node", hint="write ranks_per_node=4")
    limit_s = time_s(own)
    restarts = number("restarts", own, 0)
    return Request(
        verb=verb,
        arguments=tuple(left),
        scheduler=scheduler,
        time_s=limit_s,
        launcher=choice("launcher", own, LAUNCHERS[scheduler], of=f"scheduler={scheduler}"),
        nodes=nodes,
        ranks_per_node=ranks or 0,
        cpus_per_rank=number("cpus_per_rank", own, 1),
        gpus_per_node=number("gpus_per_node", own, 1),
        memory_bytes=memory(own),
        partition=word("partition", own),
        queue=word("queue", own),
        account=word("account", own),
        job=job(own),
        directives=line("directives", own),
        setup=line("setup", own),
        python=line("python", own),
        stage_in="node" if choice("stage_in", own, ("all", "node")) == "node" else "all",
        local=line("local", own),
        script=line("script", own),
        template=line("template", own),
        restarts=int(keys.KEYS["launch"]["restarts"].default) if restarts is None else restarts,
        grace_s=grace(own, limit_s),
    )


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
    """Refuse what looks like a key of ``launch``; all else is judged with the arguments of the job."""
    if lookup(key.split(".")) is not None or key in keys.KEYS.get(verb, {}) or "." in key:
        return
    meant = keys.meant(key, "launch") or "".join(nearest(key, list(keys.KEYS["launch"]), cutoff=keys.ALIKE))
    if meant:
        raise wrong(key, text, "unknown key of launch", f"did you mean {meant}? see explain {meant}")


def _scheduler(own: Mapping[str, str]) -> str:
    if "scheduler" in own:
        return choice("scheduler", own, tuple(COMMANDS))
    here = [name for name, program in COMMANDS.items() if shutil.which(program)]
    if len(here) == 1:
        return here[0]
    found = "both sbatch and qsub are here" if here else "neither sbatch nor qsub is here"
    raise ConfigError(
        f"launch (command line): no scheduler is named, and {found}", hint="write scheduler=slurm or scheduler=pbs"
    )


def _fitting(own: Mapping[str, str], scheduler: str, verb: Verb) -> None:
    """Refuse keys that mean nothing to this scheduler or verb."""
    for key, only in _ONLY.items():
        if key in own and only != scheduler:
            other = next(name for name, one in _ONLY.items() if one == scheduler)
            raise wrong(key, own[key], f"{scheduler} has no {key}", f"write {other}={own[key]}")
    if verb in STUDIES:
        for key in _OF_RANKS:
            if key in own:
                hint = "write ranks= for those of each run" if key == "ranks_per_node" else f"leave {key}= out"
                raise wrong(key, own[key], f"{verb} starts the ranks of its runs itself, on one node", hint)
        return
    for key in _OF_STUDIES:
        if key in own:
            raise wrong(key, own[key], f"{verb} cannot go on after an end, as {', '.join(STUDIES)} can", "leave it out")
    if verb != "run" and "stage_in" in own:
        what = "writes no data" if verb == "train" else "writes the data on all ranks"
        raise wrong("stage_in", own["stage_in"], f"{verb} {what}", "use it with run")
    if verb == "generate" and "local" in own:
        raise wrong("local", own["local"], "generate trains nothing that could read a copy", "use it with run or train")
