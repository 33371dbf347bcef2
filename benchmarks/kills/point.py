"""Runs one kill point: kills a command at a drawn call, checks what it leaves, and repeats the command."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from benchmarks.kills.cases import RECIPE, RECORDED, STUDY, Case
from benchmarks.kills.counting import Counting, Victim
from benchmarks.kills.nursery import Nursery
from benchmarks.kills.readable import broken
from dlio_torch import cli, native
from dlio_torch.config.compose import compose
from dlio_torch.supervision import orphan_files
from dlio_torch.supervision.run_process import environment as package

PATIENCE_S = 900.0
# A cache of torch, what torchrun always leaves, what a C compiler had begun, our own second cache.
_OTHERS = ("torchinductor_", "torchelastic_", "cc", f"dlio_torch-{os.getuid()}")
_TOLD = 40  # lines of a traceback
SETTLE_S = 60.0  # for workers and ranks that end by themselves when their parent has gone


@dataclass(frozen=True)
class Draw:
    """A drawn kill point.

    Attributes:
        case: what is struck.
        call: before which call, from 1.
        changes: whether only calls that change files were counted.
        number: the signal.
        victim: who gets it.
    """

    case: Case
    call: int
    changes: bool
    number: signal.Signals
    victim: Victim


@dataclass
class Outcome:
    """Outcome of a kill point.

    Attributes:
        struck: the call before which the signal was sent; empty: the command was done before.
        exit_code: of the command.
        problems: each in a line; none: as it must be.
    """

    struck: str
    exit_code: int
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Folder:
    """The folder of a kill point, which contains all files of the command except those in /dev/shm.

    Args:
        path: the folder.
    """

    path: Path

    @property
    def home(self) -> Path:
        """The working folder of the commands."""
        return self.path / "home"

    @property
    def temporary(self) -> Path:
        """The folder for temporary files."""
        return self.path / "tmp"

    def make(self, template: Folder | None = None) -> None:
        """Creates the folder, with a copy of the content of another one."""
        if template is not None:
            shutil.copytree(template.path, self.path, symlinks=True)
        for folder in (self.home, self.temporary, self.path / "cache"):
            folder.mkdir(parents=True, exist_ok=True)
        compiled = native.cache_dir() / "native"
        if template is None and compiled.is_dir():  # compiling them anew takes longer than what is struck
            libraries = self.path / "cache" / compiled.parent.name / compiled.name
            shutil.copytree(compiled, libraries, ignore=shutil.ignore_patterns(".*"))
            libraries.parent.chmod(0o700)

    def variables(self) -> dict[str, str]:
        """Environment variables of the commands in the folder."""
        return {
            **package(),
            "TMPDIR": str(self.temporary),
            "XDG_CACHE_HOME": str(self.path / "cache"),
            "OMP_NUM_THREADS": "1",
        }

    def run(
        self, case: Case, arguments: Sequence[str], start: Start, more: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end; its output is in ``stdout``, its exit code is -1000 if it does not end."""
        said = self.path / "said"  # a file: processes that are left would keep a pipe open
        variables = self.variables() | dict(more or {})
        ranks = case.ranks if arguments is case.command else 1
        code = start(arguments, ranks, self.home, said, variables)
        text = said.read_text(encoding="utf-8", errors="replace")
        return subprocess.CompletedProcess(list(arguments), -1000 if code is None else code, text)


class Start(Protocol):
    """Runs a command: arguments, ranks, working folder, file for what it prints, environment; returns its code."""

    def __call__(
        self, arguments: Sequence[str], ranks: int, home: Path, said: Path, variables: Mapping[str, str]
    ) -> int | None: ...


def anew(arguments: Sequence[str], ranks: int, home: Path, said: Path, variables: Mapping[str, str]) -> int | None:
    """Starts a command as a user does."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    with said.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            [sys.executable, *launcher, "-m", "dlio_torch", *arguments],
            cwd=home,
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_deaf_to_nothing,  # noqa: PLW1509 - this process has one thread
        )
        try:
            return process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None


def forked(nursery: Nursery) -> Start:
    """Starts a command as a fork of a process that has imported everything; ranks are started as new processes."""

    def start(arguments: Sequence[str], ranks: int, home: Path, said: Path, variables: Mapping[str, str]) -> int | None:
        if ranks > 1:
            return anew(arguments, ranks, home, said, variables)
        return nursery.run(arguments, home, said, variables, PATIENCE_S)

    return start


def _deaf_to_nothing() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a shell's background jobs ignore SIGINT
        signal.signal(number, signal.SIG_DFL)


def prepare(case: Case, folder: Folder, start: Start) -> None:
    """Runs the commands that prepare the case.

    Raises:
        RuntimeError: it cannot be done.
    """
    folder.make()
    for arguments in case.before:
        done = folder.run(case, arguments, start)
        if done.returncode:
            raise RuntimeError(f"{case.name}: {' '.join(arguments)} ended with {done.returncode}: {done.stdout}")


def count(case: Case, template: Folder, folder: Folder, library: Path, start: Start) -> tuple[int, int]:
    """Counts the calls of the case without a signal: all, and those that change files.

    Raises:
        RuntimeError: it fails.
    """
    folder.make(template)
    counting = _counting(folder, library)
    done = folder.run(case, case.command, start, counting.variables)
    if done.returncode:
        raise RuntimeError(f"{case.name}: ended with {done.returncode}: {done.stdout}")
    shutil.rmtree(folder.path)
    return counting.calls


def strike(draw: Draw, template: Folder, folder: Folder, library: Path, start: Start = anew) -> Outcome:
    """Runs a kill point and checks all that it left; removes the folder if everything is correct."""
    case = draw.case
    folder.make(template)
    counting = _counting(folder, library)
    counting.strike(draw.call, draw.number, draw.victim, changes=draw.changes)
    done = folder.run(case, case.command, start, counting.variables)
    outcome = Outcome(counting.struck, done.returncode)
    problems = outcome.problems
    problems += [f"orphaned process: {line}" for line in _orphans(counting)]
    problems += _said(draw, outcome, done.stdout)
    problems += [f"half-written: {one}" for one in broken(folder.home)]
    problems += _looked_at(folder, counting.shared_memory(), killed=draw.number == signal.SIGKILL)
    again = list(case.after)
    again.insert(0, case.command)
    if (folder.home / STUDY / "study.yaml").exists():
        again.append((case.command[0], "--resume", STUDY))
    for arguments in again:
        repeated = folder.run(case, arguments, start)
        if repeated.returncode:
            last = repeated.stdout.strip().splitlines()[-1:] or ["no message was printed"]
            problems.append(f"repeated command: {' '.join(arguments[:1])} ended with {repeated.returncode}: {last[0]}")
    problems += [f"half-written after the repeated command: {one}" for one in broken(folder.home)]
    problems += _left(folder)
    problems += [f"left in shared memory: {path}" for path in counting.shared_memory()]
    if not problems:
        shutil.rmtree(folder.path)
    else:
        (folder.path / "said.struck").write_text(done.stdout, encoding="utf-8")
    return outcome


def _counting(folder: Folder, library: Path) -> Counting:
    return Counting(library, folder.path / "page", [folder.home, folder.temporary])


def _orphans(counting: Counting) -> list[str]:
    """Finds processes that do not end, and kills them."""
    end = time.monotonic() + SETTLE_S
    while (left := counting.processes()) and time.monotonic() < end:
        time.sleep(0.05)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return [f"{pid} {line}" for pid, line in left.items()]


def _said(draw: Draw, outcome: Outcome, text: str) -> Iterator[str]:
    """Checks the exit code and the messages of the killed command."""
    if outcome.exit_code == -1000:
        yield f"hang: no end after {PATIENCE_S:.0f} s"
    others = draw.case.ranks > 1 or draw.case.name == "trace"  # a launcher, and the program that is recorded, may
    if not others and ("Traceback" in text or "Exception ignored" in text):
        yield f"traceback: {' | '.join(line.strip() for line in text.strip().splitlines()[-_TOLD:])}"
    if not outcome.struck or draw.number == signal.SIGKILL or draw.victim == "other":
        return
    due = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGHUP: 129}[draw.number]
    # A launcher has an exit code of its own; a signal that comes when all is done changes nothing.
    if draw.case.ranks == 1 and outcome.exit_code not in (due, 0):
        yield f"exit code {outcome.exit_code} after {draw.number.name}, {due} is due"
    lines = [line for line in text.splitlines() if line.startswith("dlio_torch: ")]
    if not others and outcome.exit_code and len(lines) != 1:
        yield f"{len(lines)} lines after {draw.number.name}: {lines}"


def _looked_at(folder: Folder, shared: Sequence[Path], *, killed: bool) -> Iterator[str]:
    """Checks that ``report`` and ``compare`` read the run or give a reason, and that ``doctor`` names what is left."""
    runs = sorted({path.parent for path in folder.home.rglob("config.yaml")} | set(folder.home.glob("runs/*/*")))
    for run in runs:
        if run.is_dir():
            yield from _verb(folder, "report", str(run), "--output", str(folder.path / "report.html"), "--force")
            yield from _verb(folder, "compare", str(run), str(run))
    for path in (*folder.path.rglob("*"), *shared):
        with contextlib.suppress(OSError):
            os.utime(path, (0, 0), follow_symlinks=False)  # long ago, as far as doctor can tell
    with _user(folder):
        config = compose([RECIPE, "stage.dir=local"]).config
        named = [path.resolve() for orphans in orphan_files.find(config) for path in orphans.paths]
    for found in map(Path.resolve, _temporary(folder)):
        path = found.with_name(found.name.removesuffix(".lock"))  # named by what it is of
        if not any(path == one or path in one.parents or one in path.parents for one in named):
            yield f"doctor does not name {path.relative_to(folder.path.resolve())}"
    for path in shared:  # torch makes a name for a moment, which only SIGKILL can leave
        if path in named and killed:
            path.unlink()


def _verb(folder: Folder, *words: str) -> Iterator[str]:
    out, err = io.StringIO(), io.StringIO()
    with _user(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(words)
    if code not in (0, 3) or "Traceback" in err.getvalue():
        yield f"{' '.join(words)} ended with {code}: {err.getvalue().strip()}"


@contextlib.contextmanager
def _user(folder: Folder) -> Iterator[None]:
    """Context in which this process uses the working, temporary and cache folders of the kill point."""
    before, home = {name: os.environ.get(name) for name in ("TMPDIR", "XDG_CACHE_HOME")}, Path.cwd()
    os.environ.update({name: folder.variables()[name] for name in before})
    tempfile.tempdir = None
    os.chdir(folder.home)
    try:
        yield
    finally:
        os.chdir(home)
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
        tempfile.tempdir = None


def _temporary(folder: Folder) -> Iterator[Path]:
    """Files without a final name, or in a folder of one process."""
    yield from sorted(path for path in folder.temporary.iterdir() if not _made_by_others(path))
    yield from sorted(path for path in (folder.path / "cache").rglob(".*.tmp"))
    for path in sorted(folder.home.rglob(".*")):
        if path.name != ".lock" and not {STUDY, RECORDED, "runs"} & set(path.relative_to(folder.home).parts[:1]):
            yield path
    for path in sorted((folder.home / "local").glob("*")):
        if "." in path.name and path.suffix != ".kept":
            yield path


def _made_by_others(path: Path) -> bool:
    """Whether another program made the file.

    torch's DataLoader opens some empty temporary files when no batch comes, to see whether descriptors are left, and a
    worker's death interrupts it between the name of a file and its removal.
    """
    probe = re.fullmatch(r"tmp[a-z0-9_]{8}", path.name) is not None and path.is_file() and path.stat().st_size == 0
    return probe or path.name.startswith(_OTHERS)


def _left(folder: Folder) -> Iterator[str]:
    """Temporary files that were not removed, except those of a broken run; then the files that ``clean`` leaves."""
    runs = folder.home / "runs"
    for path in (*_temporary(folder), *(folder.home / RECORDED).glob(".*"), *(folder.home / STUDY).glob(".*.tmp")):
        if runs not in path.parents and folder.path / "cache" not in path.parents:
            yield f"left: {path.relative_to(folder.path)}"
    yield from _verb(folder, "clean", RECIPE, "--yes")
    for name in ("data", "runs/minimal", "runs/sweeps", "local"):
        for path in sorted((folder.home / name).glob("*")):
            yield f"left by clean: {path.relative_to(folder.path)}"
    for path in _temporary(folder):
        if not path.is_relative_to(runs):
            yield f"left by clean: {path.relative_to(folder.path)}"
