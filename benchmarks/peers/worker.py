"""Runs one other loader, ``python -m benchmarks.peers.worker``, by JSON lines from standard input.

``{"do": "open", "module", "folder", "raw", "work", "variant"}``  writes the data where they are not there; a first
epoch is read and compared with the raw file
``{"do": "epoch"}``  reads one and answers its ``seconds``

Each line is answered by one line of JSON on what was standard output; what libraries print goes to standard error.
An answer with ``error`` says why it could not be done.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from benchmarks.peers.work import PeerWork, Start, checksum, content, each_sample


class Worker:
    """The loader that is open."""

    def __init__(self) -> None:
        self._start: Start | None = None
        self._size = 0

    def open(self, module: str, folder: str, raw: str, work: dict[str, Any], variant: dict[str, Any]) -> Any:
        """Writes and prepares the data, and checks that the loader reads them correctly."""
        self._start = None
        peer = importlib.import_module(f"benchmarks.peers.{module}")
        wanted, place, source = PeerWork(**work), Path(folder), Path(raw)
        if not place.exists():
            part = place.with_name(f"{place.name}.part")
            part.mkdir()
            peer.write(part, source, wanted)
            part.rename(place)
        self._size = wanted.size * wanted.samples
        self._start = peer.start(place, source, wanted, variant)
        self._check(source, wanted)
        return {"files": [str(path) for path in (source, *sorted(place.rglob("*"))) if path.is_file()]}

    def _check(self, raw: Path, work: PeerWork) -> None:
        import torch

        expected = sum(checksum(torch.from_numpy(sample.copy())) for sample in each_sample(raw, work))
        assert self._start is not None
        found = size = 0
        for batch in self._start():
            data = content(batch)
            found, size = found + checksum(data), size + data.nbytes
        if size != self._size or (found - expected) % (1 << 64):
            raise ValueError(f"it gave {size} bytes of {self._size}, or others than were written")

    def epoch(self) -> Any:
        """Takes all batches; drops each when the next one is requested."""
        assert self._start is not None
        began, size = time.perf_counter(), 0
        for batch in self._start():
            size += content(batch).nbytes
            del batch
        seconds = time.perf_counter() - began
        if size != self._size:
            raise ValueError(f"it gave {size} bytes of {self._size}")
        return {"seconds": seconds, "bytes": size}


def main() -> None:
    """Serves requests until standard input ends."""
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker = Worker()
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = worker.open(**asked["options"]) if asked["do"] == "open" else worker.epoch()
        except Exception as error:  # of whatever library
            answer = {"error": " ".join(f"{type(error).__name__}: {error}".split())[:300]}
        print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)  # threads of libraries may never end


if __name__ == "__main__":
    main()
