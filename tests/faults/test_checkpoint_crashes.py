"""A save ends at a random moment: the newest complete checkpoint is found, and nothing that is incomplete is loaded."""

from __future__ import annotations

import errno
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from faults import BASE, ROOMY, Ended, FaultServer, build, check, rule
from ranks import run_ranks

from dlio_torch import doctor
from dlio_torch.checkpoint.incomplete import incomplete_checkpoints
from dlio_torch.checkpoint.position import complete_steps, read_all
from dlio_torch.checkpoint.registry import BUILTIN
from dlio_torch.config.compose import compose
from dlio_torch.run_directory.run_dir import RunDir

FILES = "checkpoint.files=[{name: 'a3-{step}', bytes: 300KB, write_bytes: 100KB}, {name: 'b-{step}.pt', bytes: 50KB}]"
SIZES = {"hidden_size": 64, "num_layers": 1, "num_heads": 2, "ffn_hidden_size": 32, "vocab_size": 32}
MODEL = [f"model.{name}={size}" for name, size in SIZES.items()]
LAYOUTS = {
    "torch_save": ["checkpoint.layout=torch_save", "checkpoint.state_bytes=300KB"],
    "files": ["checkpoint.layout=files", FILES],
    "tensorflow": ["checkpoint.layout=tensorflow", "checkpoint.state_bytes=300KB"],
    "megatron_deepspeed": ["checkpoint.layout=megatron_deepspeed", "parallel.zero=1", *MODEL],
    "safetensors": ["checkpoint.layout=safetensors", *MODEL[:-1], "model.vocab_size=512"],
    "dcp": ["checkpoint.layout=dcp", *MODEL],
    "dcp, thread": ["checkpoint.layout=dcp", "checkpoint.async_save=thread", *MODEL],
    "dcp, process": ["checkpoint.layout=dcp", "checkpoint.async_save=process", *MODEL],
}
"""Options of the layouts, each with checkpoints of about 300 KB."""
SAVING = ("checkpoint.every_steps=2", "checkpoint.every_epochs=0", "checkpoint.keep=2", "checkpoint.fsync=true")
CALLS, FOLDER = "open,write,fsync,rename,unlink", "/checkpoints/"
WRITES = "open,write"
NEVER = 1 << 30


@dataclass(frozen=True)
class Layout:
    """A layout, and the numbers of calls on its files that a whole run makes, by kinds of calls."""

    name: str
    words: list[str]
    calls: dict[str, int]

    @property
    def below(self) -> bool:
        """Whether another process than the trainer writes."""
        return self.name.endswith("process")

    @property
    def resuming(self) -> list[str]:
        """Options of a run that resumes; a process for its saves would take seconds to start."""
        return [word.replace("async_save=process", "async_save=none") for word in self.words]

    def keeping_all(self) -> Layout:
        """The layout, of which all checkpoints are kept."""
        return replace(self, words=[word.replace("checkpoint.keep=2", "checkpoint.keep=0") for word in self.words])

    def moment(self, kinds: str, seed: int) -> int:
        """Number of a random call, the same for equal seeds."""
        return random.Random(f"{self.name}/{seed}").randint(1, self.calls[kinds])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultServer]:
    with FaultServer(tmp_path_factory.mktemp("crashes")) as made:
        yield made


@pytest.fixture(scope="module", params=[name for name in LAYOUTS if name.partition(",")[0] in BUILTIN])
def layout(request: pytest.FixtureRequest, server: FaultServer, tmp_path_factory: pytest.TempPathFactory) -> Layout:
    words = [*BASE[:-1], *SAVING, *LAYOUTS[request.param]]
    kinds = (CALLS, WRITES, "fsync")
    never = [rule(calls, FOLDER, "kill", NEVER) for calls in kinds]
    layout = Layout(request.param, words, {})
    (ended,) = server.run(tmp_path_factory.mktemp("whole"), *words, faults=never, below=layout.below)
    check(replace(ended, failed=()), 0, "cache: cold: ")
    return replace(layout, calls=dict(zip(kinds, ended.matched, strict=True)))


def crashed(layout: Layout, server: FaultServer, folder: Path, *faults: str) -> tuple[Ended, set[int]]:
    """Runs with faults, and then a run that resumes; returns how the first ended, and the steps that are complete."""
    again = [*layout.resuming, "output.dir=again", "train.resume=run"]
    words = [*layout.words, "output.dir=run"]
    ended, resumed = server.run(folder, *words, faults=faults, then=[again], below=layout.below)
    complete = complete_steps(read_all(RunDir(folder / "run")))
    if complete:
        assert resumed.code == 0, resumed.err
        summary = json.loads((folder / "again/summary.json").read_text(encoding="utf-8"))
        assert summary["resumed"]["checkpoint_step"] == max(complete)
    else:
        check(resumed, 3, "the run in this directory has completed no checkpoint")
    return ended, complete


def is_complete(name: str, complete: set[int]) -> bool:
    """Whether a file or folder belongs to a complete checkpoint, or to no single one."""
    step = re.search(r"(?:-|_step)(\d+)", name)
    return not name.startswith(".") and (step is None or int(step[1]) in complete)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_killed_save_leaves_the_newest_complete_checkpoint(
    layout: Layout, seed: int, server: FaultServer, tmp_path: Path
) -> None:
    """Where a process writes, it goes on after its trainer was killed, cannot, and must end nevertheless."""
    moment = layout.moment(CALLS, seed)
    kill = [rule(CALLS, FOLDER, "kill", moment)]
    if layout.below:
        kill = [rule(CALLS, FOLDER, "kill-parent", moment, times=1), rule(CALLS, FOLDER, "hang", moment)]
    ended, complete = crashed(layout, server, tmp_path, *kill)
    assert ended.code == -9, ended
    assert ended.left == []
    assert ended.lines == []
    assert "Traceback" not in ended.err
    leaves_named(RunDir(tmp_path / "run"), complete)


def leaves_named(run: RunDir, complete: set[int]) -> None:
    """What is left of checkpoints that are not complete is named."""
    entries = set(run.checkpoints.iterdir()) if run.checkpoints.is_dir() else set()
    assert set(incomplete_checkpoints(run)) == {path for path in entries if not is_complete(path.name, complete)}


def test_a_killed_process_of_saves_is_named(server: FaultServer, tmp_path: Path) -> None:
    layout = Layout("dcp, process", [*BASE[:-1], *SAVING, *LAYOUTS["dcp, process"]], {})
    opened = rule("open", "step-4/__0_0.distcp", "kill", 1)
    ended, complete = crashed(layout, server, tmp_path, opened)
    check(ended, 1, "step-4 cannot be written: the process that writes it was killed; look for a lack of memory")
    assert complete == {2}
    leaves_named(RunDir(tmp_path / "run"), complete)


@pytest.mark.parametrize(
    ("calls", "number", "code", "line"),
    [
        (WRITES, errno.ENOSPC, 3, "No space left on device; free space"),
        ("fsync", errno.EIO, 1, "Input/output error; check the file system"),
    ],
)
def test_a_save_that_fails_removes_what_it_wrote(
    calls: str, number: int, code: int, line: str, layout: Layout, server: FaultServer, tmp_path: Path
) -> None:
    ended, complete = crashed(layout, server, tmp_path, rule(calls, FOLDER, number, layout.moment(calls, 1)))
    check(ended, code, line)
    assert complete != {6, 8}
    assert incomplete_checkpoints(RunDir(tmp_path / "run")) == []


def test_a_full_disk_leaves_the_newest_complete_checkpoint(layout: Layout, server: FaultServer, tmp_path: Path) -> None:
    """Three checkpoints do not fit; the check of the space before the run is passed, as where others fill the disk."""
    small = {"at": str(tmp_path / "small"), "options": "size=800k"}
    kept = layout.keeping_all()
    again = [*kept.resuming, "output.dir=again", "train.resume=small/run"]
    words = [*kept.words, "output.dir=small/run"]
    ended, resumed = server.run(tmp_path, *words, mounts=[small], patch=[ROOMY], then=[again])
    check(ended, 3, "No space left on device")
    assert resumed.code == 0, resumed.err
    summary = json.loads((tmp_path / "again/summary.json").read_text(encoding="utf-8"))
    assert summary["resumed"]["checkpoint_step"] in (2, 4)


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("ranks", "layout", "faults"),
    [
        (
            4,
            ["checkpoint.layout=megatron_deepspeed", "parallel.zero=1"],
            [rule("write", "global_step6/zero_pp_rank_3_", "kill", 1)],
        ),
        (
            2,
            ["checkpoint.layout=dcp", "checkpoint.async_save=thread", "parallel.fsdp=full"],
            [rule("write", "step-6/__1_", "kill", 1)],
        ),
        # The process that writes cannot go on after that.
        (
            2,
            ["checkpoint.layout=dcp", "checkpoint.async_save=process", "parallel.fsdp=full"],
            [rule("open", "__1_", "kill-parent", 3, times=1), rule("write", "step-6/__1_", "hang")],
        ),
    ],
    ids=["megatron_deepspeed", "dcp, thread", "dcp, process"],
)
def test_ranks_go_on_from_the_checkpoint_that_all_of_them_completed(
    ranks: int, layout: list[str], faults: list[str], tmp_path: Path
) -> None:
    """The last rank is killed when it writes its file of the third checkpoint, which nobody uses then.

    That file is left, even where the other ranks end soon enough to remove theirs.
    """
    words = ["-m", "dlio_torch", *BASE[:-1], *SAVING, *MODEL, *layout, f"parallel.data={ranks}", "train.batch_size=1"]
    environ = {"LD_PRELOAD": str(build(tmp_path)), "FAULTS": ";".join(faults), "FAULTS_FIFO": "", "FAULTS_COUNTS": ""}
    ended = run_ranks("torch", ranks, [*words, "output.dir=run"], cwd=tmp_path, env=environ)
    assert ended[-1].exit_code == -9, ended[-1]
    assert [rank.running for rank in ended] == [()] * ranks
    assert not any("Traceback" in rank.stderr for rank in ended)
    run = RunDir(tmp_path / "run")
    assert complete_steps(read_all(run)) == {2, 4}
    assert steps_named(incomplete_checkpoints(run)) == {6}
    resuming = [word.replace("async_save=process", "async_save=none") for word in words]
    again = run_ranks("torch", ranks, [*resuming, "output.dir=again", "train.resume=run"], cwd=tmp_path)
    assert [rank.exit_code for rank in again] == [0] * ranks, again[0].stderr
    summary = json.loads((tmp_path / "again/summary.json").read_text(encoding="utf-8"))
    assert summary["resumed"]["checkpoint_step"] == 4


def steps_named(paths: list[Path]) -> set[int]:
    return {int(re.sub(r"\D", "", path.name)) for path in paths}


def test_doctor_names_what_a_killed_save_left(
    server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*BASE[:-1], *SAVING, *LAYOUTS["files"]]
    # The second file of the second checkpoint; the first file has its name.
    (ended,) = server.run(tmp_path, *words, faults=[rule("open", ".b-4.pt", "kill")])
    assert ended.code == -9, ended
    monkeypatch.chdir(tmp_path)
    composed = compose(words)
    (finding,) = [check.text for check in doctor.orphans(composed.config) if "incomplete checkpoints" in check.text]
    (run,) = (tmp_path / "runs/minimal").iterdir()
    assert finding.startswith(
        f"1 incomplete checkpoints of runs that were killed, the first is {run}/checkpoints/a3-4; "
    )
    assert "train.resume takes the newest complete one" in finding
