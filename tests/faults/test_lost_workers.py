"""Loader workers that the system takes away: what is said, what ends, and that nothing of them stays."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import BASE, Ended, FaultServer, check, rule
from overrides import overridden

from dlio_torch.environment.cgroups import own_groups
from dlio_torch.files.locked_folder import SHARED_MEMORY
from dlio_torch.run_directory import run_state

MIB = 1 << 20
WORKERS = ("loader.num_workers=2", "output.patience_s=0.5", "loader.timeout_s=60")
SAMPLES_OF_100_MIB = (
    *("dataset=synthetic", "dataset.fields.0.shape=[100,1024,1024]", "dataset.fields.0.dtype=uint8"),
    "train.batch_size=1",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultServer]:
    with FaultServer(tmp_path_factory.mktemp("lost")) as made:
        yield made


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group for memory below that of the tests."""
    for one in own_groups("memory", Path("/")):
        made = one.folder / f"dlio_torch-{secrets.token_hex(4)}"
        limit = made / ("memory.max" if one.version == 2 else "memory.limit_in_bytes")
        try:
            made.mkdir()
        except OSError as error:
            pytest.skip(f"this user cannot make a control group: {error}")
        try:
            if not limit.exists():
                pytest.skip("a control group of its own would not limit memory")
            limit.write_text(str(160 * MIB))
            for name, text in (("memory.swap.max", "0"), ("memory.memsw.limit_in_bytes", str(160 * MIB))):
                if (made / name).exists():
                    (made / name).write_text(text)
            yield made
        finally:
            made.rmdir()
        return
    pytest.skip("there are no control groups for memory")


def segments(ended: Ended) -> list[str]:
    """What the worker of the message has left in shared memory."""
    pid = re.search(r"died: .*?(?:pid|process) (\d+)", ended.err)
    assert pid is not None, ended.err
    return [name for name in os.listdir(SHARED_MEMORY) if name.startswith(f"torch_{pid[1]}_")]


def test_the_kernel_kills_a_worker_for_its_memory(server: FaultServer, group: Path, tmp_path: Path) -> None:
    enter = f"import os; open({str(group / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))"
    # What is foreseen is refused: here the memory goes to what no plan knows of.
    unforeseen = "from dlio_torch.preflight import feasibility; feasibility.memory_in_all = lambda: 1 << 40"
    (ended,) = server.run(tmp_path, *BASE, *SAMPLES_OF_100_MIB, *WORKERS, patch=[enter, unforeseen])
    killer = r"the kernel's out-of-memory killer has killed \d process(es)? of this control group during the run"
    check(
        ended,
        1,
        rf"a loader worker died: .*\(pid \d+\) is killed by signal: Killed \({killer}: the group's "
        rf"memory limit was",
    )
    assert segments(ended) == []
    state = run_state.read(tmp_path / "run/state.json")
    assert state is not None
    assert (state.state, state.exit_code) == ("failed", 1)


@pytest.mark.parametrize("engine", ["dataloader", "nodes"])  # the decoupled one shares memory without a name
def test_memory_that_a_killed_worker_was_about_to_share_goes_with_it(
    engine: str, server: FaultServer, tmp_path: Path
) -> None:
    """Between the making of a segment and the removal of its name."""
    kill = rule("ftruncate", f"{SHARED_MEMORY}/torch_", "kill", first=3, times=1)
    (ended,) = server.run(tmp_path, *BASE, f"loader.engine={engine}", *WORKERS, faults=[kill])
    check(ended, 1, "a loader worker died")
    assert segments(ended) == []


@pytest.mark.parametrize("engine", ["dataloader", "stateful", "nodes"])
def test_a_batch_that_shared_memory_has_no_room_for(engine: str, server: FaultServer, tmp_path: Path) -> None:
    """As in a container with little of it."""
    small = {"at": str(SHARED_MEMORY), "options": "size=1m"}
    options = (f"loader.engine={engine}", "dataset.fields.0.shape=[512,512]", *WORKERS)
    (ended,) = server.run(tmp_path, *BASE, *options, mounts=[small])
    line = r"a batch of a loader worker \(pid \d+\) could not be transferred through /dev/shm: No space left on device"
    check(
        ended, 3, f"{line}; free space on the file system, or raise the size of /dev/shm, or lower loader.num_workers"
    )


@pytest.mark.parametrize(
    ("engine", "room", "line"),
    [
        ("dataloader", True, "the loader's workers cannot be started"),
        ("nodes", True, "the loader's workers cannot be started"),
        (
            "dataloader",
            False,
            "shared memory for the loader workers cannot be created",
        ),  # for the step that they begin with
    ],
)
def test_workers_that_cannot_be_started(
    engine: str, room: bool, line: str, server: FaultServer, tmp_path: Path
) -> None:
    """A page of shared memory, or none: not enough for semaphores."""
    small = {"at": str(SHARED_MEMORY), "options": "size=4k"}
    before = [] if room else [f"echo full > {SHARED_MEMORY}/full"]
    (ended,) = server.run(tmp_path, *BASE, f"loader.engine={engine}", *WORKERS, mounts=[small], before=before)
    check(ended, 3, f"{line}: No space left on device; .*raise the size of /dev/shm")


def test_a_worker_that_somebody_has_stopped_is_named(server: FaultServer, tmp_path: Path) -> None:
    stop = rule("read", "/train_0000002", "stop", times=1)
    options = overridden("dataset=npz", *WORKERS, "loader.timeout_s=10")
    (ended,) = server.run(tmp_path, *BASE, *options, faults=[stop])
    worker = r"worker \d \(pid \d+\) is stopped by a signal \(SIGSTOP\); SIGCONT continues the process"
    check(ended, 1, f"no batch came from the loader workers for 10 s: {worker}")
    assert re.search(f"dlio_torch: waiting for the batch of step \\d of epoch 1 for \\d+ s: {worker}", ended.err)


# What is raised once is lost once, as in a destructor.
DEAF = """
from dlio_torch.data.workers.exits import WorkerSignals
call, deaf = WorkerSignals.__call__, iter([True])
def swallow(self, number, frame):
    try:
        call(self, number, frame)
    except Exception:
        if not next(deaf, False):
            raise
WorkerSignals.__call__ = swallow
"""
# The first worker is dead before torch listens to signals of its workers, and Python has asked how it ended.
LATE = """
import os, time
from multiprocessing import Process
from dlio_torch.data.engines.torch_loader import engine
start, begin = Process.start, engine.begin_worker
def late(self):
    start(self)
    time.sleep(1)
def die(worker, folder, tied, placement):
    if worker == 0:
        os.kill(os.getpid(), 9)
    begin(worker, folder, tied)
Process.start, engine.begin_worker = late, die
"""


@pytest.mark.parametrize(("patch", "engine"), [(DEAF, "dataloader"), (LATE, "dataloader"), (LATE, "decoupled")])
def test_a_death_that_nobody_heard_of_is_told_again(
    patch: str, engine: str, server: FaultServer, tmp_path: Path
) -> None:
    """The trainer would wait for ``loader.timeout_s``."""
    options = ("dataset=npz", f"loader.engine={engine}", "loader.num_workers=2", "loader.timeout_s=100")
    faults = [rule("read", "/train_0000002", "kill", times=1)] if patch is DEAF else []
    (ended,) = server.run(tmp_path, *BASE, *options, faults=faults, patch=[patch], timeout_s=90)
    check(ended, 1, "a loader worker died: .* is killed by signal: Killed")


def test_a_worker_that_dies_before_it_has_begun_is_named(server: FaultServer, tmp_path: Path) -> None:
    """Torchdata waits for each worker to say that it has begun, for ``loader.timeout_s`` at the most."""
    options = ("loader.engine=stateful", "loader.num_workers=2", "loader.timeout_s=5")
    (ended,) = server.run(tmp_path, *BASE, *options, patch=[LATE])
    check(ended, 1, "a loader worker died: DataLoader worker .* exited unexpectedly")


CRASH = """
import ctypes
from dlio_torch.data.dataset.map_dataset import SampleDataset
read, left = SampleDataset.__getitems__, iter([True, True])
def crash(self, indices):
    batch = read(self, indices)
    if not next(left, False):
        ctypes.string_at(0)
    return batch
SampleDataset.__getitems__ = crash
"""


@pytest.mark.parametrize(
    ("loader", "code", "lines"),
    [
        ("main_process", -11, [r"error: a library ended this process \(SIGSEGV\), open for reading: {}"]),
        (
            "workers",
            1,
            [
                r"loader worker \(pid \d+\): error: a library ended this process \(SIGSEGV\), open for reading: {}",
                r"error: a loader worker died: .* is killed by signal: Segmentation fault",
            ],
        ),
    ],
)
def test_a_library_that_crashes_leaves_the_names_of_what_it_read(
    loader: str, code: int, lines: list[str], server: FaultServer, tmp_path: Path
) -> None:
    (ended,) = server.run(
        tmp_path,
        *BASE,
        "dataset=hdf5",
        f"loader={loader}",
        *(["loader.num_workers=1"] * (loader == "workers")),
        patch=[CRASH],
    )
    assert (ended.code, ended.left) == (code, []), ended.err
    said = [line for line in ended.err.splitlines() if "error" in line.lower()]
    assert len(said) == len(lines), ended.err
    for line, pattern in zip(said, lines, strict=True):
        assert re.match("dlio_torch: " + pattern.format(r"/.*/train_\d+\.h5"), line), ended.err
    assert said[0].endswith("; perhaps one of them is damaged; set DLIO_TORCH_DEBUG=1 to print the stack")
