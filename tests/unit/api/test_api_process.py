"""The Python interface leaves the process of its user as it is, and records blocks of its code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import clean_environ
from strace import need_strace

UNCHANGED = """
import locale, logging, multiprocessing, os, random, resource, signal, sys, threading, time, warnings
import numpy as np
import torch
from torch.utils.data import DataLoader

def state():
    return {
        "handlers": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "folder": os.getcwd(), "variables": dict(os.environ), "warnings": list(warnings.filters),
        "threads of torch": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "default dtype": torch.get_default_dtype(), "sharing": torch.multiprocessing.get_sharing_strategy(),
        "log": (logging.root.level, list(logging.root.handlers)), "hooks": (sys.excepthook, sys.unraisablehook),
        "start method": multiprocessing.get_start_method(allow_none=True), "umask": os.umask(os.umask(0o22)),
        "random": (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()),
        "limits": [resource.getrlimit(number) for number in range(16)], "locale": locale.setlocale(locale.LC_ALL),
        "priority": os.getpriority(os.PRIO_PROCESS, 0), "switch": sys.getswitchinterval(), "path": list(sys.path),
        "threads": [thread.name for thread in threading.enumerate()], "streams": (sys.stdout, sys.stderr),
    }

def main():
    list(DataLoader([1, 2], num_workers=1))  # from now on torch has its handler of SIGCHLD
    while threading.active_count() > 1:  # the thread of its queue ends a little later
        time.sleep(0.01)
    os.umask(0o27)
    seeds = torch.get_rng_state()
    before = state()
    import dlio_torch
    config = dlio_torch.compose("minimal", ["scale=tiny", "storage.limits=off", "loader.num_workers=1"])
    samples = dlio_torch.dataset(config)
    samples[3]
    list(dlio_torch.datapipe(config))
    for mode in ("sleep", "spin"):
        assert dlio_torch.emulated_step(0.002, mode) >= 0.002
    for engine in ("dataloader", "decoupled", "nodes"):
        with dlio_torch.loader(recipe="minimal", overrides=["scale=tiny", f"loader.engine={engine}",
                               "loader.num_workers=1"]) as loader:
            assert sum(len(batch["index"]) for batch in loader) == 32
    result = dlio_torch.run(config)
    result.summary, result.steps, result.events
    try:
        dlio_torch.dataset(recipe="nothing")
    except dlio_torch.errors.DlioError:
        pass
    torch.set_rng_state(seeds)  # any DataLoader draws from it
    after = state()
    for name, value in before.items():
        assert value == after[name], (name, value, after[name])
    print("unchanged")

if __name__ == "__main__":
    main()
"""
RECORDED = """
import os, subprocess, sys, threading
import dlio_torch

open("data.bin", "wb").write(bytes(300_000))
with dlio_torch.iotrace.record("rec") as folder:
    with open("data.bin", "rb", buffering=0) as file:
        while file.read(65536):
            pass
    thread = threading.Thread(target=lambda: open("data.bin", "rb", buffering=0).read(1000))
    thread.start()
    thread.join()
    subprocess.run([sys.executable, "-c", "open('data.bin', 'rb', buffering=0).read(77)"], check=True)
open("data.bin", "rb", buffering=0).read(5)
assert folder.name == "rec"
try:
    with dlio_torch.iotrace.record("failed"):
        open("data.bin", "rb", buffering=0).read(9)
        raise KeyError("of the user")
except KeyError:
    pass
try:
    with dlio_torch.iotrace.record("rec"):
        pass
except dlio_torch.errors.PreconditionError as error:
    assert "holds a recording" in str(error)
for name, sizes in (("rec", [1000, 77, *[65536] * 4, 37856]), ("failed", [9])):
    events = dlio_torch.load_run(name).events
    reads = events[(events["op"] == "read") & (events["file"] == os.path.abspath("data.bin")) & (events["bytes"] > 0)]
    assert sorted(reads["bytes"]) == sorted(sizes), sorted(reads["bytes"])
    figures = dlio_torch.load_run(name).summary["posix"]
    assert figures["io"]["calls"] >= len(sizes)
print("recorded")
"""


def test_nothing_of_the_process_is_changed(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(UNCHANGED)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path, env=clean_environ(), capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "unchanged\n", "")


@pytest.mark.parametrize("prefix", [(), ("-m", "dlio_torch", "trace", "--output", "outer", "--", sys.executable)])
def test_a_block_is_recorded(prefix: tuple[str, ...], tmp_path: Path) -> None:
    need_strace()
    (tmp_path / "program.py").write_text(RECORDED)
    done = subprocess.run(
        [sys.executable, *prefix, "program.py"],
        cwd=tmp_path, env=clean_environ(), capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "recorded\n"
    about = json.loads((tmp_path / "failed" / "command.json").read_text())
    assert about["exit_code"] == 1
    if not prefix:
        assert done.stderr == ""
