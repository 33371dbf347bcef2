"""Starts processes that run other loaders, and sends them requests; see :mod:`benchmarks.peers.worker`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.harness.rounds import Figures, Unavailable, processor_s
from benchmarks.harness.tables import Missing
from benchmarks.loading.work import Way, Work, figures
from benchmarks.peers.names import PEERS, Peer
from benchmarks.peers.work import PeerWork

Wanted = Callable[[str], bool]
ROOT = Path(__file__).resolve().parents[2]
_LOOK = """
import importlib.util, sys
for name in sys.argv[1:]:
    try:
        print(int(importlib.util.find_spec(name) is not None))
    except ImportError:
        print(0)
"""


class Process:
    """A process that runs one variant of another loader.

    Args:
        python: its interpreter.
    """

    def __init__(self, python: str) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed by close()
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.peers.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._errors, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        self.pid = self._process.pid

    def ask(self, do: str, options: dict[str, Any] | None = None) -> dict[str, Any]:
        """Sends one line and returns the answer.

        Raises:
            Unavailable: it failed, or the process has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = ""
        try:
            self._process.stdin.write(json.dumps({"do": do, "options": options}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            pass
        if not line:
            raise Unavailable(f"the process of the loader ended: {self._last_line()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Unavailable(f"the loader failed: {answer['error']}")
        return answer

    def _last_line(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self._process.poll()}"

    def close(self) -> None:
        """Ends the process."""
        self._process.stdin and self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout and self._process.stdout.close()
        self._errors.close()


class Peers:
    """The installed loaders of other projects, in this or other environments.

    Args:
        pythons: interpreters; each peer runs by the first one that can import it.

    Attributes:
        missing: the others, and what would install them.
    """

    def __init__(self, pythons: Sequence[str]) -> None:
        self.missing: list[Missing] = []
        self._pythons: dict[str, str] = {}
        found_by = {python: _importable(python) for python in pythons}
        for peer in PEERS:
            found = next((python for python in pythons if set(peer.imports) <= found_by[python]), None)
            if found is None:
                self.missing.append(Missing(peer.name, f"pip install {peer.packages}"))
            else:
                self._pythons[peer.name] = found
        self._processes: dict[str, Process] = {}

    def ways(self, folder: Path, raw: Path, work: Work, wanted: Wanted) -> Iterator[Way | Missing]:
        """Each loader in each wanted variant, or the reason why it cannot run."""
        for peer in PEERS:
            if peer.name in self._pythons:
                for more, variant in peer.variants.items():
                    if not wanted(peer.name + more):
                        continue
                    try:
                        yield self._way(peer, peer.name + more, variant, folder / peer.module, raw, work)
                    except Unavailable as error:
                        self._end(peer.name + more)
                        yield Missing(peer.name + more, str(error))

    def _way(self, peer: Peer, name: str, variant: dict[str, Any], folder: Path, raw: Path, work: Work) -> Way:
        if name not in self._processes:
            self._processes[name] = Process(self._pythons[peer.name])
        process = self._processes[name]
        told = PeerWork(work.size, work.batch, work.samples, work.order == "shuffled", work.cold)
        options = {
            "module": peer.module, "folder": str(folder), "raw": str(raw), "work": asdict(told), "variant": variant,
        }  # fmt: skip
        files = [Path(path) for path in process.ask("open", options)["files"]]

        def measure() -> Figures:
            used = processor_s(process.pid)
            seconds = process.ask("epoch")["seconds"]
            return figures(work.bytes, seconds, processor_s(process.pid) - used)

        return Way(name, measure, files)

    def _end(self, name: str) -> None:
        if name in self._processes:
            self._processes.pop(name).close()

    def close(self) -> None:
        """Ends all processes."""
        for name in list(self._processes):
            self._end(name)


def interpreters(given: str | None) -> list[str]:
    """The given interpreters, separated by commas, and this one."""
    return [*(given.split(",") if given else []), sys.executable]


def _importable(python: str) -> set[str]:
    """Modules of other loaders that this interpreter can import."""
    names = [name for peer in PEERS for name in peer.imports]
    done = subprocess.run([python, "-c", _LOOK, *names], capture_output=True, text=True, check=True)
    return {name for name, found in zip(names, done.stdout.split(), strict=True) if int(found)}
