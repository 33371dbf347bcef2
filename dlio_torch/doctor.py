"""The verb ``doctor``: checks the machine, and measures the overhead of this tool on the machine.

Each check has a verdict: ``ok``, ``note`` (worth knowing), ``bad`` (a run would fail; exit code 3).
The self-test runs the recipe ``self_test`` (no I/O at all) in processes of its own, on one rank and on two,
and compares the accelerator utilisation with its expected value.  A lower value is a ``note``: the machine may be busy.
"""

from __future__ import annotations

import json as jsonlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from dlio_torch.checkpoint.incomplete import incomplete_checkpoints
from dlio_torch.compute.calibrate import load_or_measure
from dlio_torch.config.compose import Composed
from dlio_torch.config.schema import Config, StorageConfig
from dlio_torch.dist.launcher import without_launcher
from dlio_torch.dist.registry import check_horovod
from dlio_torch.environment.machine import describe
from dlio_torch.errors import MissingPackageError, PreconditionError
from dlio_torch.files.locked_folder import SHARED_MEMORY, temporary_folder
from dlio_torch.report.status_line import StatusLine
from dlio_torch.report.terminal import write
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.storage.local import stored_limits
from dlio_torch.storage.local.device_limits import LEAST_REQUEST, ReadWorkload
from dlio_torch.supervision import orphan_files
from dlio_torch.supervision.process_exit import kill_descendants
from dlio_torch.units import format_duration, format_rate, format_size, percent

# Requested compute time of a step, steps, and the utilisation that one and two ranks should reach.
_SELF_TESTS = ((0.0005, 2000, 0.99, 0.97), (0.005, 300, 0.99, 0.97), (0.05, 40, 0.99, 0.97))
_PATIENCE_S = 120
_FEW_FILES = 1024
_LITTLE_SPACE = 1 << 30
_SMALL_SHM = 64 << 20


@dataclass(frozen=True)
class MachineCheck:
    """The result of one check.

    Attributes:
        name: subject of the check.
        verdict: ``ok``, ``note`` or ``bad``.
        text: the finding, and the remedy.
    """

    name: str
    verdict: str
    text: str


def doctor(composed: Composed | None, *, json: bool = False, quiet: bool = False) -> int:
    """Check the machine and print the findings; returns the exit code, 3 if a run would fail.

    Args:
        composed: a configuration whose folders are checked; ``None``: the default folders.
        json: print JSON instead of a table.
        quiet: do not show on stderr which check runs.
    """
    data = Path(composed.config.dataset.root if composed is not None else "data")
    runs = Path(composed.config.output.root if composed is not None else "runs")
    storage = composed.config.storage if composed is not None else StorageConfig()
    with StatusLine(sys.stderr, enabled=not quiet) as status:
        status.show("checking versions and limits")
        environment = describe({"data": data, "runs": runs})
        status.show("measuring the timers")
        calibration = load_or_measure(force=True)
        checks = list(_machine(environment))
        status.show("checking the folders of data and runs")
        checks += _folders(data, runs)
        status.show("looking for orphaned files")
        checks += orphans(composed.config if composed is not None else Config())
        if storage.limits != "off":
            status.show(f"measuring the storage of {data.absolute()}")
            checks += _storage(data, storage)
        checks += _timer(calibration.to_dict())
        status.show("checking Horovod")
        checks.append(_horovod())
        checks += _self_test(status)
    bad = any(check.verdict == "bad" for check in checks)
    if json:
        record = {"checks": [asdict(check) for check in checks], "environment": environment}
        print(jsonlib.dumps({**record, "calibration": calibration.to_dict()}, indent=2))
    else:
        _print(checks)
    return 3 if bad else 0


def _print(checks: list[MachineCheck]) -> None:
    table = Table("check", "", "finding", box=None, pad_edge=False)
    for check in checks:
        table.add_row(check.name, check.verdict, check.text)
    write(sys.stdout, lambda console: console.print(table), columns=140)


def _machine(environment: dict[str, Any]) -> Iterator[MachineCheck]:
    versions = environment["versions"]
    shown = ", ".join(f"{name} {versions.get(name)}" for name in ("python", "torch", "torchdata", "h5py", "numpy"))
    yield MachineCheck("versions", "ok", shown)
    yield MachineCheck("cores", "ok", f"{environment['cpu']['cores_usable']} usable")
    files = environment["limits"]["open_files"]
    if files is not None:
        few = files < _FEW_FILES
        yield MachineCheck(
            "open files",
            "note" if few else "ok",
            f"limit {files}" + ("; raise the limit: ulimit -n 4096" if few else ""),
        )
    shm = shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else 0
    small = shm < _SMALL_SHM
    text = f"{format_size(shm)} free in {SHARED_MEMORY}"
    yield MachineCheck(
        "shared memory", "note" if small else "ok", text + ("; loader workers need more" if small else "")
    )


def _folders(data: Path, runs: Path) -> Iterator[MachineCheck]:
    for name, folder in (("data folder", data), ("run folder", runs)):
        place = folder.absolute()
        while not place.exists():
            place = place.parent
        if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
            why = "is not writable" if place.is_dir() else "is not a folder"
            yield MachineCheck(name, "bad", f"{place} {why}; choose another folder")
            continue
        free = shutil.disk_usage(place).free
        little = free < _LITTLE_SPACE
        yield MachineCheck(name, "note" if little else "ok", f"{folder.absolute()}: {format_size(free)} free")


def orphans(config: Config) -> Iterator[MachineCheck]:
    """Yields the orphaned files of killed commands, which do not disturb a run."""
    for orphans in (*orphan_files.find(config), *_incomplete(Path.cwd() / config.output.root)):
        yield MachineCheck(orphan_files.KIND, "note", str(orphans))


def _incomplete(runs: Path) -> Iterator[orphan_files.OrphanFiles]:
    """Yields the checkpoints that killed runs did not complete, of all of them together."""
    killed = [run for run in orphan_files.run_folders(runs) if orphan_files.was_killed(run)]
    paths = tuple(path for run in killed for path in incomplete_checkpoints(RunDir(run)))
    if paths:
        yield orphan_files.OrphanFiles(
            "incomplete checkpoints of runs that were killed",
            paths,
            "train.resume takes the newest complete one; `clean` removes them with their run",
        )


def _storage(data: Path, options: StorageConfig) -> Iterator[MachineCheck]:
    """Measures the highest rate of the storage of the data; the result is stored for the runs of one day."""
    place = data.absolute()
    while not place.exists():
        place = place.parent
    requests = [ReadWorkload.most("cold"), ReadWorkload("random", "cold", LEAST_REQUEST, 1)]
    try:
        limits = stored_limits.load_or_measure(
            place, requests, seconds=options.limits_s, size_bytes=options.limits_bytes, force=True
        )
    except PreconditionError as error:
        yield MachineCheck("storage", "note", str(error))
        return
    for limit in limits:
        yield MachineCheck(f"storage, {limit.request.pattern}", "ok", f"{format_rate(limit.bytes_per_s)} ({limit})")


def _timer(calibration: dict[str, Any]) -> Iterator[MachineCheck]:
    error = calibration["sleep"]
    text = (
        f"{calibration['how']}; a sleep of 1 ms is late by {format_duration(error['median_ns'] * 1e-9)} (median), "
        f"{format_duration(error['p95_ns'] * 1e-9)} (95 %)"
    )
    yield MachineCheck("timer", "ok" if calibration["exact"] else "note", text)
    share = calibration["spin_cpu_share"]
    text = f"a spinning thread gets {percent(share, 0)} of a core" + ("" if share > 0.95 else "; the machine is busy")
    yield MachineCheck("processor", "ok" if share > 0.95 else "note", text)


def _horovod() -> MachineCheck:
    try:
        check_horovod()
    except MissingPackageError as error:
        return MachineCheck("horovod", "note", str(error))
    return MachineCheck("horovod", "ok", "installed for this torch")


def _self_test(status: StatusLine) -> Iterator[MachineCheck]:
    tests = [(ranks, test) for ranks in (1, 2) for test in _SELF_TESTS]
    with temporary_folder() as folder:
        for number, (ranks, (step_s, steps, *wanted)) in enumerate(tests, 1):
            name = f"self-test, {format_duration(step_s)}, {ranks} rank{'s' if ranks > 1 else ''}"
            status.show(f"running {name} ({number} of {len(tests)})")
            directory = folder / f"{ranks}-{steps}"
            yield _judge(name, _measure(directory, ranks, step_s, steps), wanted[ranks - 1])


def _judge(name: str, result: dict[str, Any] | str, wanted: float) -> MachineCheck:
    if isinstance(result, str):
        return MachineCheck(name, "bad", result)
    au = result["au"]["mean"]
    step = result["step"]
    text = (
        f"utilisation {percent(au)} (expected {percent(wanted, 0)}); median of a step: fetch "
        f"{format_duration(step['fetch_s']['median'])}, other {format_duration(step['other_s']['median'])}"
    )
    return MachineCheck(
        name, "ok" if au >= wanted else "note", text if au >= wanted else text + "; is the machine busy?"
    )


def _measure(directory: Path, ranks: int, step_s: float, steps: int) -> dict[str, Any] | str:
    """The summary of one self-test, or the reason for its failure."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    command = [
        sys.executable,
        *launcher,
        "-m",
        "dlio_torch",
        "recipe=self_test",
        "scale=paper",
        f"compute.step_s={step_s}",
        f"train.steps={steps}",
        f"output.dir={directory}",
        "output.progress=false",
    ]
    outside = without_launcher(os.environ)  # a launcher's variables would reach the ranks of the self-test
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**outside, "OMP_NUM_THREADS": "1"},
    )
    try:
        errors = process.communicate(timeout=_PATIENCE_S)[1]
    except subprocess.TimeoutExpired:
        return f"the self-test gave no result within {_PATIENCE_S} s"
    finally:
        _end(process)
    if process.returncode != 0:
        lines = errors.strip().splitlines() or ["the self-test printed no message"]
        return next((line for line in lines if line.startswith("dlio_torch:")), lines[-1])
    summary: dict[str, Any] = jsonlib.loads((directory / "summary.json").read_text(encoding="utf-8"))
    return summary


def _end(process: subprocess.Popen[str]) -> None:
    """Kill a self-test and its ranks, which a launcher starts in other sessions."""
    kill_descendants(process.pid)
    process.kill()
    process.wait()
    if process.stderr is not None:
        process.stderr.close()
