"""What a format reads of a file after it was opened, as strace sees it."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path

from strace import OPENS, READS, Call, need_strace, trace

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.testing.contract import write

PROGRAM = """
import os, pickle, sys
from pathlib import Path
from dlio_torch.formats.core.batch import BatchBuffer
for folder in map(Path, sys.argv[1:]):
    fmt = pickle.loads((folder / "format").read_bytes())
    reader = fmt.open(folder / f"a{fmt.suffix}")
    os.truncate(folder / "mark", 0)  # opened
    for first, count in ((50, 1), (10, 20)):
        reader.read(first, count, BatchBuffer(fmt.specs(), range(count)), 0)
    reader.close()
"""

Reads = Mapping[str, tuple[Path, list[Call]]]


def reads_after_open(cases: Mapping[str, DatasetConfig], folder: Path) -> Reads:
    """Read sample 50 and then samples 10 to 29 of a file of 100 samples, for each case.

    Returns:
        By case: the file, and the read calls on it, or on what is in it, after it was opened.
    """
    need_strace()
    suffixes = {}
    for name, config in cases.items():
        (folder / name).mkdir()
        fmt = create(config, 5)
        suffixes[name] = fmt.suffix
        write(fmt, folder / name / f"a{fmt.suffix}", 0, 100)
        (folder / name / "format").write_bytes(pickle.dumps(fmt))
        (folder / name / "mark").touch()
    command = [sys.executable, "-c", PROGRAM, *(folder / name for name in cases)]
    calls = trace(command, folder / "log", cwd=folder, env=os.environ, traced=(*OPENS, *READS, "truncate"))
    found = {}
    for name in cases:
        path = folder / name / f"a{suffixes[name]}"
        opened = next(i for i, c in enumerate(calls) if c.name == "truncate" and f"/{name}/mark" in c.arguments)
        mine = [call for call in calls[opened:] if call.path.startswith(str(path)) and call.name in READS]
        found[name] = path, mine
    return found
