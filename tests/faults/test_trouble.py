"""One rank of a run gets into trouble: all end, say which rank and why, and what was recorded can be read."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ranks import SUPPORT, Ended, Kind, run_ranks

from dlio_torch.cli import main
from dlio_torch.config.compose import compose
from dlio_torch.data.dataset import visibility
from dlio_torch.errors import DataError, PreconditionError
from dlio_torch.iotrace.events.event_table import read_events
from dlio_torch.preflight.rank_agreement import check_ranks_agree
from dlio_torch.run_directory import run_state
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.train.steps import read_steps

PROGRAM = SUPPORT / "trouble.py"
HOROVOD = pytest.mark.horovod
# Files of 4 KiB a rank, written one after the other; steps with a reduction, a checkpoint of two write calls.
OPTIONS = (
    *("recipe=minimal", "scale=paper", "dataset.num_files=4", "dataset.samples_per_file=8", "train.epochs=2"),
    "dataset.fields.0.shape=[8,8]",
    *("train.allreduce_bytes=1KiB", "compute.step_s=2ms", "output.dir=run", "output.progress=false"),
    *("checkpoint.layout=files", "checkpoint.ranks=all", "checkpoint.every_steps=5", "loader.read_threads=1"),
    "checkpoint.files=[{name: model, bytes: 4000, write_bytes: 2000}]",
)
KILLED = r"rank 1 \(pid \d+, host [^)]*\) died"
ABSENT = r"rank {} \(pid \d+, host [^)]*\) did not enter {} \(collective \d+\) within 3 s: the rank does not answer.*"
FULL = r"(.*\.h5 could not be written|spans cannot be recorded in .*): File too large.*"  # whichever is first
GRADIENT = "allreduce of the gradient"


def run(kind: Kind, trouble: str, folder: Path) -> list[Ended]:
    world_size, stops = 1 if kind == "single" else 2, int(trouble[0]) if trouble.endswith(":stop") else None
    before = shared_memory()
    ended = run_ranks(
        kind, world_size, [PROGRAM, *OPTIONS], cwd=folder, env={"TROUBLE": trouble}, timeout_s=90, stops=stops
    )
    assert all(rank.running == () for rank in ended)
    assert shared_memory() <= before
    return ended


def shared_memory() -> set[str]:
    """What this package may leave in shared memory; other programs of this machine use it, too."""
    return {name for name in os.listdir("/dev/shm") if name.startswith(("psm_", "torch_", "dlio"))}


def said(ended: Sequence[Ended]) -> list[str]:
    """The lines that say why the run ended, without the rank that may stand before them."""
    found = re.findall(
        r"^dlio_torch: (?:rank \d+: )?error: .*", "\n".join(rank.stderr for rank in ended), flags=re.MULTILINE
    )
    return sorted({re.sub(r"^dlio_torch: (rank \d+: )?error: (rank \d+ failed: )?", "", line) for line in found})


def reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What ``report`` says first of the run."""
    assert main(["report", str(folder / "run")]) == 0
    return capsys.readouterr().out.splitlines()[0]


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("kind", "trouble", "codes", "why"),
    [
        pytest.param("horovod", "1:checkpoint:kill", [1, -9], KILLED, id="killed-in-checkpoint", marks=HOROVOD),
        pytest.param("torch", "1:generate:stop", [1, 1], ABSENT.format(1, "barrier"), id="stopped-in-generation"),
        pytest.param("torch", "0:step:stop", [1, 1], ABSENT.format(0, GRADIENT), id="rank-0-stopped"),
        pytest.param("torch", "1:generate:full", [3, 3], FULL, id="full"),
        pytest.param("single", "0:results:full=5000", [3], ".*summary.json cannot be written: File.*", id="results"),
    ],
)
def test_a_rank_in_trouble_ends_the_run_which_can_be_read(
    kind: Kind, trouble: str, codes: list[int], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = run(kind, trouble, tmp_path)
    assert [rank.exit_code for rank in ended] == codes, [rank.stderr for rank in ended]
    assert "Traceback" not in "".join(rank.stderr for rank in ended)
    (line,) = said(ended)
    assert re.fullmatch(why, line)
    directory = RunDir(tmp_path / "run")
    state = run_state.read(directory.state)
    assert state is not None
    assert (state.state, state.world_size, state.exit_code) == ("failed", len(codes), max(codes))
    assert state.line.endswith(line)
    first = reported(tmp_path, capsys)
    assert first == f"ended early: {state.line} (exit code {max(codes)})"
    assert f"rank {trouble[0]}" in first or kind == "single"
    assert "The run ended early: " in directory.report.read_text()
    # What was written until then is there.
    if why != FULL:
        assert "generate" in set(read_events(directory.events).frame["op"])
    if "generate" not in trouble:
        # Those of all ranks are small enough for what is full.
        paths = [directory.steps()] if "results" in trouble else map(directory.steps, range(len(codes)))
        every = [read_steps(path) for path in paths]
        assert [list(one) for one in every] == [[rank] for rank in range(len(codes))]


class First:
    """Rank 1 beside a rank 0 that says ``value``."""

    rank = 1

    def __init__(self, value: Any) -> None:
        self.value = value

    def broadcast_object(self, value: Any) -> Any:
        return self.value


def test_another_version_is_found_at_the_start() -> None:
    config = compose(["recipe=minimal"]).config
    theirs = {"dlio_torch": "0.0.1"}
    with pytest.raises(PreconditionError, match=r"rank 1 runs dlio_torch [\d.]+, rank 0 0\.0\.1"):
        check_ranks_agree(config, First((theirs, {})))  # type: ignore[arg-type]


def test_a_folder_that_is_not_shared_is_found_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visibility, "_PATIENCE_S", 0.0)
    visibility.check_seen(tmp_path, First(None), "dataset.root")  # type: ignore[arg-type]
    host = socket.gethostname()
    line = f"{tmp_path / 'x'} does not exist for rank 1 on host {host}, but rank 0 sees it; set dataset.root"
    with pytest.raises(DataError, match=re.escape(line)):
        visibility.check_seen(tmp_path / "x", First(None), "dataset.root")  # type: ignore[arg-type]


def test_a_run_that_was_killed_or_goes_on_is_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    run_state.begin(path, 1)
    state = run_state.read(path)
    assert state is not None
    assert state.why_early() is None  # this process runs
    assert "was killed before it could write a reason" in str(replace(state, pid=2**22 + 1).why_early())
    assert "or is still running on that host" in str(replace(state, host="elsewhere").why_early())
    size = path.stat().st_size
    run_state.end(path, "x" * 10_000, 3)
    run_state.end(path, "the first reason counts", 1)
    ended = run_state.read(path)
    assert ended is not None
    assert ended.exit_code == 3
    assert path.stat().st_size == size
    assert run_state.read(tmp_path / "none") is None
