"""Checkpoints: sizes, names and renames as configured, fsync(2) exactly where it is asked for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dlio_torch.checkpoint.adam_state import layer_shapes
from dlio_torch.checkpoint.checkpointer import Checkpointer
from dlio_torch.config.schema import CheckpointConfig, CheckpointFileConfig
from dlio_torch.errors import ConfigError, DataError, DlioError, PreconditionError
from dlio_torch.iotrace.recorder.spans import Recorder

# The five files of the DLIO paper.
FIVE = CheckpointConfig(
    layout="files",
    every_steps=50,
    files=[
        CheckpointFileConfig(name="model.ckpt-{step}.data-00000-of-00001", bytes=4 << 20, write_bytes=1 << 20),
        CheckpointFileConfig(name="model.ckpt-{step}.meta", bytes=64 << 10),
        CheckpointFileConfig(name="model.ckpt-{step}.index", bytes=4 << 10, write_bytes=3000),
        CheckpointFileConfig(name="graph-{step}.pbtxt", bytes=1 << 10),
        CheckpointFileConfig(name="checkpoint", bytes=1 << 10),
    ],
)
FIVE_BYTES = (4 << 20) + (64 << 10) + (4 << 10) + 2 * (1 << 10)
TORCH = CheckpointConfig(layout="torch_save", every_epochs=1, state_bytes=1_000_000)

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_due_by_step_and_by_epoch() -> None:
    by_step = Checkpointer(FIVE, "unused", rank=0)
    assert [step for step in range(1, 151) if by_step.due(1, step, False)] == [50, 100, 150]
    by_epoch = Checkpointer(replace(FIVE, every_steps=0, every_epochs=2), "unused", rank=0)
    assert [(e, last) for e in (1, 2, 3, 4) for last in (False, True) if by_epoch.due(e, 7 * e, last)] == [
        (2, True),
        (4, True),
    ]
    both = Checkpointer(replace(FIVE, every_epochs=1), "unused", rank=0)
    assert both.due(1, 50, False)
    assert both.due(1, 51, True)
    assert not both.due(1, 51, False)


def test_nothing_to_save_touches_nothing(tmp_path: Path) -> None:
    checkpointer = Checkpointer(CheckpointConfig(every_steps=1), tmp_path / "c", rank=0)
    assert not checkpointer.due(1, 1, True)
    checkpointer.prepare_restore()
    assert checkpointer.save(1) == checkpointer.restore() == 0
    assert not (tmp_path / "c").exists()


def test_the_five_files(tmp_path: Path) -> None:
    checkpointer = Checkpointer(FIVE, tmp_path, rank=0)
    assert checkpointer.save(50) == FIVE_BYTES
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes == {
        "model.ckpt-50.data-00000-of-00001": 4 << 20,
        "model.ckpt-50.meta": 64 << 10,
        "model.ckpt-50.index": 4 << 10,
        "graph-50.pbtxt": 1 << 10,
        "checkpoint": 1 << 10,
    }
    content = (tmp_path / "model.ckpt-50.data-00000-of-00001").read_bytes()
    assert 0 not in content
    pages = {content[i : i + 4096] for i in range(0, len(content), 4096)}
    assert len(pages) == 1024  # equal blocks could be stored once
    assert abs(sum(content) / len(content) - 128) < 1  # as random bytes of 1 to 255 are


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    checkpointer = Checkpointer(replace(FIVE, keep=2), tmp_path, rank=0)
    for step in (50, 100, 150):
        checkpointer.save(step)
    assert {name.split("-")[1].split(".")[0] for name in names(tmp_path) if "-" in name} == {"100", "150"}
    assert len(names(tmp_path)) == 4 * 2 + 1
    everything = Checkpointer(replace(FIVE, keep=0), tmp_path / "all", rank=0)
    for step in (50, 100, 150):
        everything.save(step)
    assert len(names(tmp_path / "all")) == 4 * 3 + 1


def test_old_checkpoints_stay_until_the_new_one_is_complete(tmp_path: Path) -> None:
    checkpointer = Checkpointer(FIVE, tmp_path, rank=0)
    checkpointer.save(50)
    before = names(tmp_path)
    # The last file of the next checkpoint lands on a device that is always full.
    (tmp_path / ".graph-100.pbtxt.tmp").symlink_to("/dev/full")
    with pytest.raises(PreconditionError, match=r"graph-100\.pbtxt cannot be written \(.*: No space left") as caught:
        checkpointer.save(100)
    assert re.search(r"it needs 1 KiB, [\d.]+ [KMGTP]iB are free", str(caught.value))
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == before  # neither a temporary file nor a part of checkpoint 100


def test_every_rank_saves_in_its_own_folder(tmp_path: Path) -> None:
    for rank in range(3):
        Checkpointer(replace(FIVE, ranks="all"), tmp_path, rank=rank).save(50)
    assert len(names(tmp_path)) == 15
    assert {name.split("/")[0] for name in names(tmp_path)} == {"rank-0", "rank-1", "rank-2"}
    other = Checkpointer(FIVE, tmp_path / "first", rank=1)
    assert not other.due(1, 50, False)
    assert other.save(50) == 0
    assert not (tmp_path / "first").exists()


@pytest.mark.parametrize("config", [FIVE, TORCH], ids=["files", "torch_save"])
def test_restore_reads_what_was_prepared(config: CheckpointConfig, tmp_path: Path) -> None:
    checkpointer = Checkpointer(replace(config, restore=True, restore_read_bytes=1000), tmp_path, rank=0)
    with pytest.raises(DataError, match=f"no checkpoint in {tmp_path}"):
        checkpointer.restore()
    checkpointer.prepare_restore()
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert checkpointer.restore() == size
    victim = max(tmp_path.iterdir(), key=lambda path: path.stat().st_size)
    os.truncate(victim, 100)
    with pytest.raises(DataError, match=re.escape(victim.name)) as caught:
        checkpointer.restore()
    assert "\n" not in str(caught.value)
    victim.unlink()
    with pytest.raises(DataError, match=f"{re.escape(victim.name)} cannot be read: No such file"):
        checkpointer.restore()


def test_the_first_save_replaces_what_was_prepared(tmp_path: Path) -> None:
    checkpointer = Checkpointer(TORCH, tmp_path, rank=0)
    checkpointer.prepare_restore()
    checkpointer.save(5)
    assert names(tmp_path) == ["checkpoint-5.pt"]


@pytest.mark.parametrize("size", [65_536, 200_000, 3_333_333, 20_000_000])
def test_torch_save_of_a_state_of_the_wanted_size(size: int, tmp_path: Path) -> None:
    checkpointer = Checkpointer(replace(TORCH, state_bytes=size), tmp_path, rank=0)
    saved = checkpointer.save(12)
    assert saved == (tmp_path / "checkpoint-12.pt").stat().st_size
    assert saved == pytest.approx(size, rel=0.01)
    state = torch.load(tmp_path / "checkpoint-12.pt", weights_only=True)
    assert state["step"] == 12
    moments = state["optimizer"]["state"]
    for i, (name, parameter) in enumerate(state["model"].items()):
        assert parameter.dtype == torch.float32, name
        assert parameter.shape == moments[i]["exp_avg"].shape == moments[i]["exp_avg_sq"].shape
        assert parameter.numel() == 1 or parameter.std() > 0


@pytest.mark.parametrize("elements", [0, 1, 17, 5000, 123_457, 10**8])
def test_layers_add_up(elements: int) -> None:
    shapes = layer_shapes(elements)
    assert sum(torch.Size(shape).numel() for shape in shapes) == max(elements, 1)
    assert all(min(shape) > 0 for shape in shapes)
    if elements > 10**5:
        assert 10 < len(shapes) < 500


def test_a_state_that_does_not_fit_on_the_device(tmp_path: Path) -> None:
    checkpointer = Checkpointer(TORCH, tmp_path, rank=0)
    (tmp_path / ".checkpoint-9.pt.tmp").symlink_to("/dev/full")
    with pytest.raises(DlioError, match=r"checkpoint-9\.pt cannot be written \(it needs 977 KiB") as caught:
        checkpointer.save(9)
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == []


def test_two_files_of_one_name_are_refused() -> None:
    twice = [CheckpointFileConfig(name="a"), CheckpointFileConfig(name="b"), CheckpointFileConfig(name="a")]
    with pytest.raises(ConfigError, match=r"checkpoint\.files\[2\]\.name='a' occurs twice"):
        Checkpointer(replace(FIVE, files=twice), "unused", rank=0)


def test_an_empty_file_is_made(tmp_path: Path) -> None:
    assert Checkpointer(replace(FIVE, files=[CheckpointFileConfig(name="marker")]), tmp_path, rank=0).save(1) == 0
    assert names(tmp_path) == ["marker"]


def test_spans_of_each_file(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "events", rank=0)
    Checkpointer(replace(FIVE, fsync=True), tmp_path / "c", rank=0, recorder=recorder).save(50)
    recorder.close()
    [table] = (tmp_path / "events").glob("*.names")
    text = table.read_text()
    assert '"write"' in text
    assert '"fsync"' in text
    assert "model.ckpt-50.meta" in text


# --- system calls -----------------------------------------------------------------------------------

PROGRAM = """
import sys
from pathlib import Path
from dlio_torch.config.schema import CheckpointConfig, CheckpointFileConfig
from dlio_torch.checkpoint.checkpointer import Checkpointer

kind, fsync, folder = sys.argv[1], sys.argv[2] == "fsync", Path(sys.argv[3])
files = [
    CheckpointFileConfig(name="model-{step}.data", bytes=100_000, write_bytes=30_000),
    CheckpointFileConfig(name="checkpoint", bytes=700),
]
config = CheckpointConfig(
    layout=kind, every_steps=1, files=files, state_bytes=200_000, fsync=fsync, restore_read_bytes=45_000
)
checkpointer = Checkpointer(config, folder, rank=0)
checkpointer.save(1)
checkpointer.save(2)
if sys.argv[4:] == ["restore"]:
    checkpointer.restore()
"""


def calls(folder: Path, *arguments: str) -> list[tuple[str, str]]:
    """System calls (name, rest of the line) of the program that concern ``folder``, in order."""
    log = folder.parent / "strace"
    command = ["strace", "-f", "--seccomp-bpf", "-y", "-s", "0", "-o", str(log)]
    command += ["-e", "trace=openat,write,writev,pwrite64,read,fsync,fdatasync,rename,renameat,renameat2,unlink"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([*command, sys.executable, "-c", PROGRAM, *arguments], check=True, env=environment)
    found = []
    for line in log.read_text(errors="replace").splitlines():
        match = re.match(r"\d+\s+(\w+)\((.*)", line)
        if match and str(folder) in line:
            found.append((match[1], match[2]))
    return found


@needs_strace
@pytest.mark.parametrize("kind", ["files", "torch_save"])
def test_fsync_is_called_when_asked_and_not_otherwise(kind: str, tmp_path: Path) -> None:
    """The peer stores the option under one name and reads another: it never flushes."""
    folder = tmp_path / "out"
    folder.mkdir()
    without = [name for name, _ in calls(folder, kind, "nofsync", str(folder))]
    assert "fsync" not in without
    assert "fdatasync" not in without
    assert "write" in without or "writev" in without

    found = calls(folder, kind, "fsync", str(folder))
    flushed = [re.match(r"\d+<(.*?)>", rest)[1] for name, rest in found if name == "fsync"]  # type: ignore[index]
    per_checkpoint = 3 if kind == "files" else 2  # each file, and the folder that names them
    assert len(flushed) == 2 * per_checkpoint
    assert flushed.count(str(folder)) == 2
    # Each file is flushed after its last write and before it gets its name.
    state = "new"
    for name, rest in found:
        if name.startswith(("write", "pwrite")):
            state = "written"
        elif name == "fsync" and ".tmp>" in rest:
            assert state == "written"
            state = "flushed"
        elif name.startswith("rename"):
            assert state == "flushed"
            state = "named"
        elif name == "fsync":
            assert state == "named"


@needs_strace
def test_write_and_read_calls_have_the_configured_sizes(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    found = calls(folder, "files", "nofsync", str(folder), "restore")
    sizes = [int(rest.rsplit("=", 1)[1]) for name, rest in found if name == "write"]
    assert sizes == [30_000, 30_000, 30_000, 10_000, 700] * 2
    reads = [int(rest.rsplit("=", 1)[1]) for name, rest in found if name == "read"]
    assert reads == [45_000, 45_000, 10_000, 700]


@needs_strace
@pytest.mark.parametrize("kind", ["files", "torch_save"])
def test_the_final_name_appears_only_by_rename(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    found = calls(folder, kind, "nofsync", str(folder))
    renamed = [re.findall(r'"([^"]+)"', rest) for name, rest in found if name.startswith("rename")]
    finals = ["model-1.data", "checkpoint", "model-2.data", "checkpoint"]
    if kind == "torch_save":
        finals = ["checkpoint-1.pt", "checkpoint-2.pt"]
    assert [Path(new).name for _, new in renamed] == finals
    assert all(Path(old).name == f".{Path(new).name}.tmp" for old, new in renamed)
    created = [rest for name, rest in found if name == "openat" and "O_CREAT" in rest]
    assert created
    assert all('.tmp"' in rest for rest in created)
    # The old checkpoint goes after the new one has its names.
    order = [name for name, _ in found if name.startswith(("rename", "unlink"))]
    assert order.index("unlink") == len(finals)
