"""Saves that become complete after the training goes on: positions, deletion, failures, and what a run says."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from background_saver import PATH, BackgroundSaver
from checkpointers import checkpointer
from figure_checks import check_figures

from dlio_torch import cli
from dlio_torch.checkpoint.checkpointer import Checkpointer
from dlio_torch.checkpoint.position import RunIdentity, SavedPositions, TrainingPosition, read
from dlio_torch.checkpoint.registry import BUILTIN
from dlio_torch.config.schema import CheckpointConfig
from dlio_torch.errors import PreconditionError

OPTIONS = CheckpointConfig(layout="torch_save", every_steps=2, state_bytes=64 << 10, fsync=True)
PLACE = TrainingPosition(epoch=1, step=2)


class Gate:
    """Lets saves write only when the test opens the gate; may make the save of a step fail."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.fails: int | None = None
        self.leaves: str | None = None

    def __call__(self, folder: Path, step: int) -> None:
        self.open.wait(60)
        if step == self.fails:
            if self.leaves is not None:
                (folder / self.leaves.format(step=step)).write_bytes(b"half a checkpoint")
            raise PreconditionError("checkpoint cannot be written (No space left on device)", hint="free space")


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate()
    monkeypatch.setitem(BUILTIN, "torch_save", replace(BUILTIN["torch_save"], target=PATH))
    monkeypatch.setattr(BackgroundSaver, "gate", staticmethod(gate))
    return gate


def positions_of(folder: Path) -> SavedPositions:
    return SavedPositions(folder / "position.rank0.json", RunIdentity(2, 1, "order", 4, "data"))


def written_steps(folder: Path) -> set[int]:
    positions = read(folder / "position.rank0.json")
    return set() if positions is None else set(positions.places)


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.pt")}


def finish(saves: Checkpointer) -> None:
    assert saves._saver is not None
    saves._saver.wait()
    saves.due(1, 3, False)


def test_a_save_counts_when_its_files_are_complete(gate: Gate, tmp_path: Path) -> None:
    saves = checkpointer(OPTIONS, tmp_path, positions=positions_of(tmp_path))
    saves.save(2, PLACE)
    assert not saves.due(1, 3, False)
    assert (saves.times, saves.written_bytes, written_steps(tmp_path), files(tmp_path)) == ([], 0, set(), set())
    gate.open.set()
    finish(saves)
    assert [times.step for times in saves.times] == [2]
    assert saves.times[0].durable_s > saves.times[0].stall_s
    assert saves.written_bytes == (tmp_path / "checkpoint-2.pt").stat().st_size
    assert written_steps(tmp_path) == {2}


def test_the_checkpoint_before_stays_until_the_new_one_is_complete(gate: Gate, tmp_path: Path) -> None:
    saves = checkpointer(OPTIONS, tmp_path, positions=positions_of(tmp_path))
    gate.open.set()
    saves.save(2, PLACE)
    finish(saves)
    gate.open.clear()
    saves.save(4, TrainingPosition(1, 4))
    saves.due(1, 5, False)
    assert (files(tmp_path), written_steps(tmp_path)) == ({"checkpoint-2.pt"}, {2})
    gate.open.set()
    finish(saves)
    assert (files(tmp_path), written_steps(tmp_path)) == ({"checkpoint-4.pt"}, {4})


def test_the_end_waits(gate: Gate, tmp_path: Path) -> None:
    saves = checkpointer(OPTIONS, tmp_path, positions=positions_of(tmp_path))
    saves.save(2, PLACE)
    threading.Timer(0.05, gate.open.set).start()
    saves.end(3)
    assert [times.step for times in saves.times] == [2]
    assert written_steps(tmp_path) == {2}
    saves.close()


def test_a_failure_in_the_background_is_raised_and_deletes_nothing(gate: Gate, tmp_path: Path) -> None:
    saves = checkpointer(OPTIONS, tmp_path, positions=positions_of(tmp_path))
    gate.open.set()
    saves.save(2, PLACE)
    finish(saves)
    gate.open.clear()
    gate.fails = 4
    saves.save(4, TrainingPosition(1, 4))
    gate.open.set()
    with pytest.raises(PreconditionError, match="No space left"):
        saves.end(5)
    assert (files(tmp_path), written_steps(tmp_path)) == ({"checkpoint-2.pt"}, {2})


def run(folder: Path, *more: str) -> int:
    return cli.main(
        [
            *("recipe=minimal", "scale=tiny", "train.epochs=3", "train.batch_size=4", "train.warmup_steps=1"),
            *("compute.step_s=1ms", "checkpoint=torch_save", "checkpoint.state_bytes=64KiB", "checkpoint.fsync=true"),
            *("checkpoint.every_epochs=0", "checkpoint.every_steps=4", "loader=main_process", "output.progress=false"),
            *(f"dataset.root={folder}/data", "dataset.fields.0.shape=[8]", *more),
        ]
    )


def test_a_run_says_when_its_saves_were_durable(gate: Gate, tmp_path: Path) -> None:
    gate.open.set()
    assert run(tmp_path, f"output.dir={tmp_path}/run") == 0
    summary: dict[str, Any] = json.loads((tmp_path / "run" / "summary.json").read_text())
    check_figures(summary)
    saved = summary["checkpoints"]
    assert saved["save"]["count"] == saved["measured"] == summary["saved"]["checkpoints"] == 6
    assert saved["save"]["durable_s"]["mean"] > saved["save"]["stall_s"]["mean"]
    assert saved["save"]["bytes"]["mean"] * 6 == summary["saved"]["bytes"]
    # 23 measured steps; the last one of each of the three epochs is not followed by another one.
    assert saved["during_saves"]["steps"] + saved["undisturbed"]["steps"] == 20
    assert saved["restore"]["why"] == "no checkpoint was read"


def test_a_failure_ends_the_run_and_a_resumed_run_takes_the_complete_checkpoint(
    gate: Gate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gate.open.set()
    gate.fails, gate.leaves = 12, "checkpoint-{step}.pt"
    assert run(tmp_path, f"output.dir={tmp_path}/first") == 3
    lines = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert lines == ["dlio_torch: error: checkpoint cannot be written (No space left on device); free space"]
    # The newest file is no complete checkpoint, so no position stands for it.
    assert files(tmp_path / "first" / "checkpoints") == {"checkpoint-8.pt", "checkpoint-12.pt"}
    gate.fails = None
    assert run(tmp_path, f"output.dir={tmp_path}/second", f"train.resume={tmp_path}/first") == 0
    summary = json.loads((tmp_path / "second" / "summary.json").read_text())
    assert summary["resumed"]["checkpoint_step"] == 8
    assert summary["checkpoints"]["restore"]["duration_s"]["mean"] == summary["restore"]["seconds"][0]
