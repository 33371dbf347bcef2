"""Creates one sound run directory and log of each kind, damages it, and reads it."""

# ruff: noqa: E501 - lines of logs are long

from __future__ import annotations

import contextlib
import copy
import gzip
import io
import json
import os
import random
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harm.mutate import BINARY, TEXT, damaged
from dlio_torch import cli
from dlio_torch.analysis.run_recording import open_recording
from dlio_torch.errors import PreconditionError

_RUN = (
    "recipe=minimal", "scale=tiny", "trace.posix=false", "loader.num_workers=1", "dataset.num_files=2",
    "dataset.samples_per_file=8", "train.epochs=1", "train.batch_size=4", "checkpoint.every_epochs=0",
)  # fmt: skip
_OTHERS: tuple[Any, ...] = (
    None, True, 0, -1, 2**63, 2**200, 1e308, -0.5, "", "x", "<script>\x1b[31m", [], {}, [None], [[]], {"a": None},
    {"rank": "x"}, [1, "a", {}],
)  # fmt: skip


def other_value(rng: random.Random, content: bytes) -> bytes:
    """JSON in which one or a few values have another type, are far too large, or are missing."""
    value = json.loads(content)
    for _ in range(rng.choice((1, 1, 2, 4))):
        places: list[tuple[Any, Any]] = []
        _places(value, places)
        if not places or rng.random() < 0.03:
            value = copy.deepcopy(rng.choice(_OTHERS))
            continue
        holder, key = rng.choice(places)
        if isinstance(holder, dict) and rng.random() < 0.3:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(rng.choice(_OTHERS))
    return json.dumps(value).encode()


def _places(value: Any, found: list[tuple[Any, Any]]) -> None:
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        found.append((value, key))
        _places(value[key], found)


@dataclass(frozen=True)
class LogTarget:
    """A target that damages files of one kind and reads them.

    Attributes:
        name: of the kind.
        folder: for the damaged ones.
        seed: of the damage.
        sound: the files of a sound one, by their names.
        read: reads them: a folder, and a random choice of ways.
        victims: what may be damaged; ``None``: any.
    """

    name: str
    folder: Path
    seed: int
    sound: Mapping[str, bytes]
    read: Callable[[Path, random.Random], None]
    victims: Callable[[str], bool] | None = None

    def __call__(self, case: int) -> str:
        """Damages the files and reads them."""
        rng = random.Random(f"{self.name}/{self.seed}/{case}")
        home = self.folder / f"case-{case}"
        home.mkdir(parents=True, exist_ok=True)
        names = [name for name, content in self.sound.items() if content and (not self.victims or self.victims(name))]
        victim = rng.choice(names)
        for name, content in self.sound.items():
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name != victim:
                path.write_bytes(content)
            elif len(self.sound) > 1 and rng.random() < 0.03:
                continue  # it is missing
            else:
                path.write_bytes(_spoiled(rng, name, content))
        self.read(home, rng)
        shutil.rmtree(home, ignore_errors=True)
        return "case-"


def _spoiled(rng: random.Random, name: str, content: bytes) -> bytes:
    if name.endswith(".gz"):
        if rng.random() < 0.4:
            return damaged(rng, content, BINARY)
        return gzip.compress(_spoiled(rng, name.removesuffix(".gz"), gzip.decompress(content)))
    if name.endswith(".json") and rng.random() < 0.6:
        return other_value(rng, content)
    if name.endswith(".jsonl") and rng.random() < 0.6:
        lines = content.splitlines()
        number = rng.randrange(len(lines))
        lines[number] = other_value(rng, lines[number])
        return b"\n".join(lines) + b"\n"
    is_text = b"\0" not in content.rstrip(b"\0")
    return damaged(rng, content, TEXT if is_text else BINARY)


def command(*words: str) -> None:
    """Runs a command of the tool, which must do its work or end with one line of error.

    Raises:
        DlioError: it ended with 2, 3 or 4 and one line.
    """
    said = io.StringIO()
    os.environ["DLIO_TORCH_DEBUG"] = "1"  # a bug is shown with its place
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        code = cli.main(list(words))
    if code:
        lines = [line for line in said.getvalue().splitlines() if "error:" in line]
        if code not in (2, 3, 4) or len(lines) != 1:
            frames = re.findall(r'dlio_torch/(\S+", line \d+)', said.getvalue())
            where = ", ".join(frames[-1:])
            raise RuntimeError(f"exit code {code} {where}: {' '.join(said.getvalue()[-200:].split())}")
        raise PreconditionError(lines[0])


def run_files(folder: Path) -> dict[str, bytes]:
    """The files of a small run."""
    run = folder / "sound"
    data = folder / "data"
    with contextlib.redirect_stdout(io.StringIO()):
        code = cli.main(["run", *_RUN, f"output.dir={run}", f"dataset.root={data}"])
    if code:
        raise RuntimeError(f"the run ended with exit code {code}")
    kept = ("checkpoints", "tensorboard")
    return {
        str(path.relative_to(run)): path.read_bytes()
        for path in sorted(run.rglob("*"))
        if path.is_file() and path.relative_to(run).parts[0] not in kept and path.suffix != ".html"
    }


def read_run(folder: Path, rng: random.Random) -> None:
    """Runs one of the verbs that read a finished run."""
    way = rng.choice(("json", "html", "html", "compare", "predict", "open"))
    if way == "json":
        command("report", str(folder), "--json")
    elif way == "html":
        command("report", str(folder), "--output", str(folder / "out.html"), "--force")
    elif way == "compare":
        command("compare", str(folder), str(folder))
    elif way == "predict":
        command("predict", str(folder), "ranks=1,2", "system=theta")
    else:
        open_recording(folder)


def read_log(folder: Path, rng: random.Random) -> None:
    """Reads a log as the verbs report and compare, or the reader alone, do."""
    path = next(path for path in sorted(folder.iterdir()))
    if rng.random() < 0.2:
        command("report", str(path), "--json")
    else:
        open_recording(path)


def recorded_files(folder: Path) -> dict[str, bytes]:
    """The files that the verb ``trace`` writes about a program that reads a file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data.bin").write_bytes(bytes(5000))
    out = folder / "sound"
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        cli.main(["trace", "--output", str(out), "--", "cp", str(folder / "data.bin"), str(folder / "copy.bin")])
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


def strace_log() -> bytes:
    """A short log of ``strace -f -y -ttt -T``."""
    lines = [
        '100 1700000000.000001 execve("/usr/bin/x", ["x"], 0x7ffd /* 9 vars */) = 0 <0.000300>',
        '100 1700000000.100001 openat(AT_FDCWD</home/me>, "data/a.h5", O_RDONLY|O_CLOEXEC) = 3</home/me/data/a.h5> <0.000021>',
        '100 1700000000.100101 pread64(3</home/me/data/a.h5>, "\\211HDF"..., 4096, 512) = 4096 <0.000051>',
        '100 1700000000.100201 read(3</home/me/data/a.h5>, "abc"..., 100) = 100 <0.000011>',
        "100 1700000000.100301 lseek(3</home/me/data/a.h5>, 1000, SEEK_SET) = 1000 <0.000001>",
        "100 1700000000.100401 clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD) = 101 <0.000100>",
        "101 1700000000.100501 read(3</home/me/data/a.h5>,  <unfinished ...>",
        '100 1700000000.100601 write(1</dev/pts/0<char 136:0>>, "x"..., 1) = 1 <0.000005>',
        '101 1700000000.100701 <... read resumed>"def"..., 200) = 200 <0.000200>',
        "101 1700000000.100801 mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, 3</home/me/data/a.h5>, 0x1000) = 0x7f <0.000009>",
        '101 1700000000.100901 openat(AT_FDCWD</home/me>, "none", O_RDONLY) = -1 ENOENT (No such file or directory) <0.000003>',
        "101 1700000000.101001 sendfile(4</home/me/b>, 3</home/me/data/a.h5>, [0] => [100], 100) = 100 <0.000010>",
        "101 1700000000.101101 dup(3</home/me/data/a.h5>) = 5</home/me/data/a.h5> <0.000001>",
        "101 1700000000.101201 close(3</home/me/data/a.h5>) = 0 <0.000002>",
        "101 1700000000.101301 +++ exited with 0 +++",
        "100 1700000000.101401 --- SIGCHLD {si_signo=SIGCHLD} ---",
    ]
    return "\n".join(lines).encode() + b"\n"


def dftracer_log() -> bytes:
    """A short trace as DFTracer writes it."""
    common = {"pid": 7, "tid": 7, "ph": "X"}
    start = 1_700_000_000_000_000
    events: list[dict[str, Any]] = [
        {"id": 0, "name": "FH", "cat": "dftracer", "pid": 7, "tid": 7, "ph": "M", "args": {"name": "/d/a.npz", "value": "f1"}},
        {"id": 1, "name": "HH", "cat": "dftracer", "pid": 7, "tid": 7, "ph": "M", "args": {"name": "node1", "value": "h1"}},
        {"id": 2, "name": "start", "cat": "dftracer", **common, "ts": start, "dur": 0, "args": {"hhash": "h1", "ppid": 1}},
        {"id": 3, "name": "open64", "cat": "POSIX", **common, "ts": start + 10, "dur": 5,
         "args": {"hhash": "h1", "fhash": "f1", "ret": 3}},
        {"id": 4, "name": "pread", "cat": "POSIX", **common, "ts": start + 20, "dur": 50,
         "args": {"hhash": "h1", "fhash": "f1", "ret": 4096, "offset": 512}},
        {"id": 5, "name": "fread", "cat": "STDIO", **common, "ts": start + 80, "dur": 50,
         "args": {"hhash": "h1", "fname": "/d/b", "ret": 10, "size": 8}},
        {"id": 6, "name": "data_loader.fetch", "cat": "data_loader", **common, "ts": start + 90, "dur": 5,
         "args": {"hhash": "h1", "step": 3}},
        {"id": 7, "name": "close", "cat": "POSIX", **common, "ts": start + 200, "dur": 1, "args": {"hhash": "h1", "fhash": "f1"}},
    ]  # fmt: skip
    return b"[\n" + b"\n".join(json.dumps(event).encode() for event in events) + b"\n]\n"


QUICK = ("strace log", "DFTracer log", "DFTracer log, gzip")
"""Kinds that are read without a whole command."""


def targets(folder: Path, seed: int) -> dict[str, LogTarget]:
    """The targets that need only the package itself."""
    found = {}

    def add(name: str, sound: Mapping[str, bytes], read: Callable[[Path, random.Random], None], **more: Any) -> None:
        home = folder / name.replace(", ", "-").replace(" ", "_")
        found[name] = LogTarget(name, home, seed, sound, read, **more)

    add("strace log", {"x.strace": strace_log()}, read_log)
    add("DFTracer log", {"x.pfw": dftracer_log()}, read_log)
    add("DFTracer log, gzip", {"x.pfw.gz": gzip.compress(dftracer_log())}, read_log)
    add("recorded calls", recorded_files(folder / "recorded"), read_run)
    run = run_files(folder / "run")
    add("run, events", run, read_run, victims=lambda name: name.startswith("events/"))
    add("run, JSON", run, read_run, victims=lambda name: name.endswith(".json"))
    add("run, text", run, read_run, victims=lambda name: name.endswith((".yaml", ".csv")))
    return found
