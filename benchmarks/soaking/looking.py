"""Measures a run once: memory, descriptors, threads, shared memory and files of all its processes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import psutil

FIGURES = {
    "rss_bytes": "RSS",
    "pss_bytes": "PSS",
    "trainer_pss_bytes": "PSS of the trainer",
    "shm_bytes": "shared memory",
    "descriptors": "file descriptors",
    "trainer_descriptors": "descriptors of the trainer",
    "threads": "threads",
    "processes": "processes",
    "shm_files": "files in /dev/shm that are open",
    "event_files": "event files",
    "event_bytes": "bytes of events",
    "run_files": "files of the run, without events",
    "run_bytes": "bytes of the run, without events",
}


@dataclass(frozen=True)
class Look:
    """Figures at one moment; those of processes are sums over the run and its descendants.

    A page that processes share counts in the RSS of each of them, and once in all in the PSS.
    """

    rss_bytes: int
    pss_bytes: int
    trainer_pss_bytes: int
    shm_bytes: int
    descriptors: int
    trainer_descriptors: int
    threads: int
    processes: int
    shm_files: int
    event_files: int
    event_bytes: int
    run_files: int
    run_bytes: int


def look(process: psutil.Process, run: Path) -> Look | None:
    """Measures a run that is in progress; ``None`` once it has ended."""
    try:
        everyone = [process, *process.children(recursive=True)]
    except psutil.Error:
        return None
    sums = dict.fromkeys(("rss", "pss", "shm", "fds", "threads", "shm_files", "processes"), 0)
    trainer: dict[str, int] | None = None
    for one in everyone:
        found = _process(one.pid)
        if found is None:  # it has just ended
            if one is process:
                return None
            continue
        trainer = trainer or found
        for key, value in found.items():
            sums[key] += value
    assert trainer is not None
    events, rest = _files(run / "events"), _files(run, without="events")
    return Look(
        sums["rss"], sums["pss"], trainer["pss"], sums["shm"], sums["fds"], trainer["fds"], sums["threads"],
        sums["processes"], sums["shm_files"], *events, *rest,
    )  # fmt: skip


def _process(pid: int) -> dict[str, int] | None:
    proc = f"/proc/{pid}"
    try:
        with open(f"{proc}/smaps_rollup", encoding="ascii") as file:
            lines = (line.split() for line in file)
            memory = {words[0]: int(words[1]) * 1024 for words in lines if words[-1] == "kB"}
        names = []
        for number in os.listdir(f"{proc}/fd"):
            try:
                names.append(os.readlink(f"{proc}/fd/{number}"))
            except FileNotFoundError:  # closed meanwhile
                continue
        threads = len(os.listdir(f"{proc}/task"))
    except OSError:
        return None
    if not memory:
        return None
    return {
        "rss": memory["Rss:"],
        "pss": memory["Pss:"],
        "shm": memory.get("Pss_Shmem:", 0),
        "fds": len(names),
        "threads": threads,
        "shm_files": sum(name.startswith("/dev/shm/") for name in names),
        "processes": 1,
    }


def _files(folder: Path, without: str = "") -> tuple[int, int]:
    """Number of files below a folder, and the bytes that they occupy on the disk."""
    count = size = 0
    for path, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != without]
        for name in names:
            try:
                size += os.stat(f"{path}/{name}").st_blocks * 512
            except FileNotFoundError:
                continue
            count += 1
    return count, size
