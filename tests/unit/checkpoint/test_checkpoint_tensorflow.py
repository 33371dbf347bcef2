"""Checkpoints of TensorFlow's Saver: the system calls that TensorFlow 2.21 makes, and what is there afterwards."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from straced import needs_strace

from dlio_torch import cli
from dlio_torch.checkpoint.checkpointer import Checkpointer
from dlio_torch.config.checkpoint_amount import checkpoint_bytes, saves, start_bytes
from dlio_torch.config.schema import CheckpointConfig, TensorFlowConfig
from dlio_torch.errors import DlioError

SMALL = CheckpointConfig(
    layout="tensorflow",
    every_steps=3,
    before_first=True,
    after_last=True,
    keep=2,
    state_bytes=100_000,
    tensorflow=TensorFlowConfig(index_bytes=690, meta_bytes=63_623, graph_text_bytes=162_816, graph_bytes=58_000),
)
SHARD, DATA = "model.ckpt-{step}_temp/part-00000-of-00001", ".data-00000-of-00001"

# strace of MonitoredTrainingSession(checkpoint_dir, save_checkpoint_steps=3) on ext4, blocks of 4,096 bytes: 41,943,848
# bytes of variables, an index of 690, a .meta of 63,623 and a graph.pbtxt of 162,816.
GRAPH = """
write graph.pbtxt.tmp 159744 3072
rename graph.pbtxt.tmp graph.pbtxt
"""
SHARDED = f"""
mkdir model.ckpt-{{step}}_temp
write {SHARD}{DATA}.tempstate 8388608 4096 8384512 4096 8384512 4096 8384512 4096 8384512 808
rename {SHARD}{DATA}.tempstate {SHARD}{DATA}
write {SHARD}.index.tempstate 690
rename {SHARD}.index.tempstate {SHARD}.index
pread64 {SHARD}.index 48 20 609
rename {SHARD}{DATA} model.ckpt-{{step}}{DATA}
write model.ckpt-{{step}}.index 690
unlink {SHARD}.index
rmdir model.ckpt-{{step}}_temp
write checkpoint.tmp {{state}}
rename checkpoint.tmp checkpoint
write model.ckpt-{{step}}.meta.tmp 61440 2183
rename model.ckpt-{{step}}.meta.tmp model.ckpt-{{step}}.meta
"""
# strace of Saver(max_to_keep=2).save(session, "model.ckpt", global_step): 10,484,800, 13,994 and 747,387 bytes.
AT_ONCE = f"""
write model.ckpt-{{step}}{DATA}.tempstate 8388608 4096 2088960 3136
rename model.ckpt-{{step}}{DATA}.tempstate model.ckpt-{{step}}{DATA}
write model.ckpt-{{step}}.index.tempstate 12288 1706
rename model.ckpt-{{step}}.index.tempstate model.ckpt-{{step}}.index
write checkpoint.tmp {{state}}
rename checkpoint.tmp checkpoint
"""
REMOVED = f"""
unlink model.ckpt-{{step}}.meta
unlink model.ckpt-{{step}}.index
unlink model.ckpt-{{step}}{DATA}
"""
META = """
write model.ckpt-{step}.meta.tmp 745472 1915
rename model.ckpt-{step}.meta.tmp model.ckpt-{step}.meta
"""

PROGRAM = """
import sys
from pathlib import Path
from dlio_torch.config.schema import CheckpointConfig, TensorFlowConfig
from dlio_torch.checkpoint.checkpointer import Checkpointer
options = dict(layout="tensorflow", every_steps=3)
if sys.argv[2] == "sharded":
    files = TensorFlowConfig(index_bytes=690, meta_bytes=63623, graph_text_bytes=162816)
    more = dict(before_first=True, after_last=True, keep=5, state_bytes=41943848)
else:
    files = TensorFlowConfig(sharded=False, index_bytes=13994, meta_bytes=747387)
    more = dict(keep=2, state_bytes=10484800)
checkpointer = Checkpointer(CheckpointConfig(tensorflow=files, **options, **more), Path(sys.argv[1]), rank=0)
checkpointer.begin(0)
for step in (3, 6) if sys.argv[2] == "sharded" else (0, 1, 2):
    checkpointer.save(step)
checkpointer.end(8)
checkpointer.close()
"""


def calls(folder: Path, kind: str) -> list[str]:
    """The calls of the program on files of ``folder``, as the lists above have them."""
    log = folder.parent / "strace"
    trace = "trace=read,pread64,write,%file"
    command = ["strace", "-f", "-y", "-s", "0", "-e", trace, "-o", str(log), sys.executable, "-c", PROGRAM]
    subprocess.run([*command, str(folder), kind], check=True)
    found: list[str] = []
    for line in log.read_text().splitlines():
        names = re.findall(re.escape(f"{folder}/") + r'([^">]+)', line)
        name = line.split()[1].split("(")[0]
        if not names or name not in ("write", "read", "pread64", "rename", "unlink", "mkdir", "rmdir"):
            continue
        names = [re.sub(r"(\.tempstate|\.tmp)\w+$", r"\1", other) for other in names]
        if name in ("write", "read", "pread64"):
            begun = f"{name} {names[0]}"
            result = line.rsplit("= ", 1)[1]
            if found and found[-1].startswith(f"{begun} "):
                found[-1] += f" {result}"
            else:
                found.append(f"{begun} {result}")
        else:
            found.append(" ".join([name, *names]))
    return found


def state_bytes(folder: Path, steps: list[int]) -> int:
    """Bytes of the file ``checkpoint`` with these steps."""
    paths = [str(folder / f"model.ckpt-{step}") for step in steps]
    return len(f'model_checkpoint_path: "{paths[-1]}"\n') + sum(
        len(f'all_model_checkpoint_paths: "{path}"\n') for path in paths
    )


@needs_strace
def test_a_monitored_session_s_calls_are_tensorflow_s(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    if os.stat(folder).st_blksize != 4096:
        pytest.skip("TensorFlow was traced on a file system with blocks of 4,096 bytes")
    text, steps = GRAPH, [0, 3, 6, 8]
    for number, step in enumerate(steps, 1):
        text += SHARDED.format(step=step, state=state_bytes(folder, steps[:number]))
    assert calls(folder, "sharded") == text.replace("\n\n", "\n").strip().splitlines()


@needs_strace
def test_a_plain_saver_s_calls_are_tensorflow_s(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    if os.stat(folder).st_blksize != 4096:
        pytest.skip("TensorFlow was traced on a file system with blocks of 4,096 bytes")
    text = ""
    for step, kept in ((0, [0]), (1, [0, 1]), (2, [1, 2])):
        text += AT_ONCE.format(step=step, state=state_bytes(folder, kept))
        text += (REMOVED.format(step=0) if step == 2 else "") + META.format(step=step)
    assert calls(folder, "plain") == text.replace("\n\n", "\n").strip().splitlines()


def names(folder: Path) -> set[str]:
    return {re.sub(r"tfevents\..*", "tfevents", path.name) for path in folder.iterdir()}


def test_what_is_saved_before_the_first_and_after_the_last_step(tmp_path: Path) -> None:
    checkpointer = Checkpointer(SMALL, tmp_path, rank=0)
    each = checkpoint_bytes(SMALL)
    saved, written = checkpointer.begin(0)
    assert saved == 1
    first = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert first == pytest.approx(each + start_bytes(SMALL), abs=400)  # the file checkpoint, an event
    assert written == first + 690  # the index is written twice
    assert checkpointer.save(3) > each
    assert checkpointer.end(4)[0] == 1
    assert checkpointer.end(4)[0] == 0
    checkpointer.close()
    files = {f"model.ckpt-{step}{suffix}" for step in (3, 4) for suffix in (DATA, ".index", ".meta")}
    assert names(tmp_path) == files | {"checkpoint", "graph.pbtxt", "events.out.tfevents"}
    assert Checkpointer(replace(SMALL, before_first=False), tmp_path / "b", rank=0).begin(0)[0] == 0
    assert Checkpointer(SMALL, tmp_path / "c", rank=1).begin(0) == (0, 0)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(("steps", "count"), [(6, 3), (7, 4), (2, 2)])
def test_saves_are_foretold(steps: int, count: int, tmp_path: Path) -> None:
    checkpointer = Checkpointer(SMALL, tmp_path, rank=0)
    done = checkpointer.begin(0)[0]
    for step in range(1, steps + 1):
        if checkpointer.due(1, step, False):
            checkpointer.save(step)
            done += 1
    done += checkpointer.end(steps)[0]
    assert done == saves(SMALL, steps, 1) == count


def test_a_restore_reads_index_and_variables(tmp_path: Path) -> None:
    checkpointer = Checkpointer(replace(SMALL, restore=True), tmp_path, rank=0)
    checkpointer.prepare_restore()
    assert checkpointer.restore() == 100_000 + 690
    (tmp_path / "model.ckpt-0.index").unlink()
    with pytest.raises(DlioError, match=r"model\.ckpt-0\.index cannot be read"):
        checkpointer.restore()


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("sharded", [True, False])
def test_a_file_that_cannot_be_written_leaves_nothing(sharded: bool, tmp_path: Path) -> None:
    config = replace(SMALL, tensorflow=TensorFlowConfig(sharded=sharded, index_bytes=690, meta_bytes=4000))
    checkpointer = Checkpointer(config, tmp_path, rank=0)
    with largest_file(50_000), pytest.raises(DlioError, match=r"model\.ckpt-3.* cannot be written") as caught:
        checkpointer.save(3)
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == set()
    checkpointer.save(6)
    assert len(names(tmp_path)) == 4


RUN = [
    "recipe=minimal", "scale=tiny", "train.batch_size=4", "train.steps=8", "compute.step_s=0",
    "dataset.fields.0.shape=[8]", "checkpoint.layout=tensorflow", "checkpoint.state_bytes=64KiB",
    "checkpoint.every_epochs=0", "checkpoint.every_steps=3", "checkpoint.before_first=true",
    "checkpoint.after_last=true", "checkpoint.keep=5",
]  # fmt: skip


def test_a_run_saves_as_its_hook_does_and_goes_on(tmp_path: Path) -> None:
    """What was restored is saved once more, as the hook does when the session is there."""
    options = [*RUN, f"dataset.root={tmp_path}/data"]
    first, second = tmp_path / "first", tmp_path / "second"
    found = []
    for folder, more in ((first, ["train.epochs=1"]), (second, ["train.epochs=2", f"train.resume={first}"])):
        assert cli.main([*options, *more, f"output.dir={folder}"]) == 0
        steps = {int(path.stem.split("-")[1]) for path in (folder / "checkpoints").glob("*.index")}
        found.append((json.loads((folder / "summary.json").read_text())["saved"]["checkpoints"], steps))
    assert found == [(4, {0, 3, 6, 8}), (5, {8, 9, 12, 15, 16})]
