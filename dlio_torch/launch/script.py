"""The script of a job, made from its templates."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from dlio_torch.config.resources import Resources
from dlio_torch.errors import PreconditionError
from dlio_torch.files.output_file import refuse_existing
from dlio_torch.launch.job_content import JobContent
from dlio_torch.launch.job_request import JobRequest
from dlio_torch.launch.template import Shell, Value, fill, find, with_variables
from dlio_torch.ownership.job import last_line
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.study.store import STUDY, TRIALS
from dlio_torch.supervision.run_process import environment

_NAME_CHARACTERS = 15  # that every PBS takes


@dataclass(frozen=True)
class JobPaths:
    """Absolute paths of the files that a job writes.

    Attributes:
        result: folder of its results.
        script: its script.
        log: its output.
    """

    result: Path
    script: Path
    log: Path


def paths_of(request: JobRequest, content: JobContent, now: datetime | None = None) -> JobPaths:
    """Chooses the paths of a job; nothing is written.

    A restarted job needs the same folder, so the script names it and the run does not choose it.

    Args:
        request: the keys of ``launch``.
        content: the command of the job.
        now: local time in the folder's name; the current time by default.
    """
    result = content.result
    if result is None:
        stamp = (now or datetime.now()).strftime("%Y%m%d-%H%M%S")
        result = _free(content.parent, stamp, ("", ".sh", ".log"))
    result = result.expanduser().absolute()
    if request.script is None:
        chosen = _free(result.parent, result.name, (".sh",))
        path = chosen.with_name(f"{chosen.name}.sh")
    else:
        path = Path(request.script).expanduser().absolute()
    return JobPaths(result, path, result.with_name(f"{result.name}.log"))


def render(
    request: JobRequest, content: JobContent, paths: JobPaths, places: Resources, flags: tuple[str, ...] = ()
) -> str:
    """The text of the script.

    Args:
        request: the keys of ``launch``.
        content: the command of the job.
        paths: files that the job writes.
        places: where templates are found.
        flags: of the verb of a study.

    Raises:
        ConfigError: a template is missing or malformed, or a value does not fit into it.
    """
    values = _values(request, content, paths, places.cwd, flags)

    def part(name: str) -> Shell:
        path, text = find(name, places, f"{name} of a job script")
        return Shell(fill(text, values, str(path)).rstrip("\n"))

    values["common"] = part("steps/common")
    values["start"] = None if request.is_study else part(f"start/{request.launcher}")
    values["generate"] = part("steps/generate") if content.generates else None
    values["copy"] = None if request.local is None else part("steps/copy")
    if request.is_study:
        values["steps"] = part("steps/study")
    else:
        values["steps"] = values["generate"] if request.verb == "generate" else part("steps/run")
    name = request.template or request.scheduler
    path, text = find(name, places, f"template={name}")
    return fill(text, values, str(path)).rstrip("\n") + "\n" + last_line(paths.script, paths.log)


def write(text: str, path: Path, *, force: bool = False) -> None:
    """Write a script that can be executed.

    Raises:
        ConfigError: the file exists, and ``force`` (``--force``) is false.
        PreconditionError: it cannot be written.
    """
    refuse_existing(path, f"script={path}", force=force)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o755)
    except OSError as error:
        raise PreconditionError(f"script={path}: cannot be written: {error.strerror}", hint="choose another") from None


def _values(
    request: JobRequest, content: JobContent, paths: JobPaths, cwd: Path, flags: tuple[str, ...]
) -> dict[str, Value]:
    ranks = request.ranks_per_node or content.ranks
    cpus = request.cpus_per_rank or content.cores
    gpus, memory = request.gpus_per_node, request.memory_bytes
    mib = None if memory is None else memory >> 20
    setup = None if request.setup is None else str((cwd / Path(request.setup).expanduser()).absolute())
    run = RunDir(paths.result)
    return {
        "script": str(paths.script),
        "result": str(paths.result),
        "log": str(paths.log),
        "cwd": str(cwd),
        "job": request.job or _job_name(content.name),
        "nodes": request.nodes,
        "ranks_per_node": ranks,
        "cpus_per_rank": cpus,
        "cpus_per_node": ranks * cpus,
        "gpus_per_node": gpus,
        "memory_mib": mib,
        "chunk": (f":ngpus={gpus}" if gpus else "") + (f":mem={mib}mb" if mib else ""),
        "time": _clock(request.time_s),
        "watch_s": request.time_s - request.grace_s,
        "grace_s": request.grace_s if request.is_study else None,
        "restarts": request.restarts,
        "partition": request.partition,
        "queue": request.queue,
        "account": request.account,
        "directives": request.directives,
        "setup": setup,
        "python": request.python or sys.executable,
        "pythonpath": environment().get("PYTHONPATH") or None,
        "variables": _variables(),
        "verb": request.verb,
        "ranks_verb": "train" if request.verb == "run" else request.verb,
        "arguments": content.arguments,
        "flags": flags,
        "generate_nodes": 1 if request.stage_in == "node" else request.nodes,
        "local": None if request.local is None else with_variables(request.local.rstrip("/")),
        "finished": str(run.summary),
        "study": str(paths.result / STUDY),
        "trials": str(paths.result / TRIALS),
    }


def _variables() -> tuple[str, ...]:
    """``NAME=value`` of the environment variables that this package reads."""
    environ = os.environ
    kept = [name for name in environ if name.startswith("DLIO_TORCH_") and name != "DLIO_TORCH_RESTARTED"]
    return tuple(f"{name}={environ[name]}" for name in sorted(kept))


def _clock(seconds: int) -> str:
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours:02}:{minute:02}:{second:02}"


def _job_name(name: str) -> str:
    """``name`` as every scheduler takes it."""
    plain = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "_" for letter in name)
    return (plain if plain[0].isalpha() else f"run_{plain}")[:_NAME_CHARACTERS]


def _free(parent: Path, name: str, endings: tuple[str, ...]) -> Path:
    """``name`` in ``parent``, with a number where something has it with one of these endings."""
    number = 1
    while True:
        candidate = parent / (name if number == 1 else f"{name}-{number}")
        if not any(candidate.with_name(f"{candidate.name}{ending}").exists() for ending in endings):
            return candidate
        number += 1
