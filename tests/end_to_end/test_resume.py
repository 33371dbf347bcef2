"""A run that was killed goes on with the next sample: every engine, mid-epoch, on one rank and on two."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from overrides import overridden
from ranks import run_ranks

from dlio_torch import cli
from dlio_torch.checkpoint.position import RunIdentity, SavedPositions, TrainingPosition, read
from dlio_torch.config.compose import compose
from dlio_torch.data.dataset.manifest import generated_manifests
from dlio_torch.data.order.planning import train_sampler
from dlio_torch.formats.core import registry
from dlio_torch.formats.core.batch import INDEX, Batch, batch_bytes
from dlio_torch.train import evaluation, trainer

SMALL = [
    "recipe=minimal", "scale=tiny", "train.epochs=3", "train.batch_size=4", "compute.step_s=0", "verify=true",
    "checkpoint=torch_save", "checkpoint.state_bytes=64KiB", "checkpoint.every_epochs=0", "checkpoint.every_steps=3",
    "checkpoint.fsync=false", "dataset.fields.0.shape=[8]",
]  # fmt: skip
WORKERS = ["loader.num_workers=2", "loader.prefetch_factor=2", "loader.read_threads=0"]
STREAM = ["dataset=tfrecord", "access=stream", "access.shuffle_pool=4", "dataset.fields.0.shape=[8]"]
ENGINES = {
    "main process": ["loader=main_process"],
    "held batches": ["loader=main_process", "access.hold_steps=2"],
    "workers": [*WORKERS, "loader.persistent_workers=true"],
    "stateful": [*WORKERS, "loader.engine=stateful"],
    "nodes": [*WORKERS, "loader.engine=nodes"],
    "threads": ["loader=threads", "loader.read_threads=2"],
    "decoupled": ["loader=decoupled"],
    "decoupled, workers": ["loader=decoupled", "loader.num_workers=2"],
    "stream": [*STREAM, "loader=main_process"],
    "stream, workers": [*STREAM, *WORKERS],
    "evaluation": [
        "loader=threads", "dataset.num_files_eval=1", "dataset.samples_per_file_eval=8", "train.eval_every_steps=5",
        "train.eval_every_epochs=1",
    ],
}  # fmt: skip
STOP = 11  # steps after which the first run ends: in the second of three epochs of eight


class Taken:
    """The sample numbers of the batches that a run's steps took; may end the run."""

    def __init__(self) -> None:
        self.numbers: list[list[int]] = []
        self.stop: int | None = None

    def __call__(self, batch: Batch) -> int:
        self.numbers.append(batch[INDEX].tolist())
        if len(self.numbers) == self.stop:
            raise KeyboardInterrupt
        return batch_bytes(batch)

    def begin(self, stop: int | None = None) -> None:
        self.numbers, self.stop = [], stop


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Taken:
    found = Taken()
    for module in (trainer, evaluation):
        monkeypatch.setattr(module, "batch_bytes", found)
    return found


def words(folder: Path, more: Sequence[str], run: str) -> list[str]:
    return overridden(
        *SMALL, *more, f"dataset.root={folder}/data", f"output.dir={folder}/{run}", "output.progress=false"
    )


def planned(arguments: Sequence[str], world_size: int = 1) -> list[list[list[int]]]:
    """Sample numbers of the steps of a run, by rank, without any loader."""
    config = compose(list(arguments), world_size=world_size).config
    fmt = registry.create(config.dataset, config.seed)
    plans = [
        train_sampler(config, generated_manifests(config, fmt)["train"], rank, world_size, fmt)
        for rank in range(world_size)
    ]
    steps = [(epoch, step) for epoch in range(config.train.epochs) for step in range(len(plans[0]))]
    return [[plan.batch(epoch, step).tolist() for epoch, step in steps] for plan in plans]


def summary(folder: Path, run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / run / "summary.json").read_text())
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_the_next_sample_follows_the_last_whole_checkpoint(engine: str, tmp_path: Path, taken: Taken) -> None:
    everything = planned(words(tmp_path, ENGINES[engine], "a"))[0]
    per_epoch = len(everything) // 3
    with_evaluation = engine == "evaluation"
    taken.begin(stop=STOP + (1 if with_evaluation else 0) * 6)  # evaluations take batches, too
    assert cli.main(words(tmp_path, ENGINES[engine], "a")) == 130
    saved = max(read(tmp_path / "a" / "position.rank0.json").places)  # type: ignore[union-attr]
    assert saved % 3 == 0
    assert saved % per_epoch, "the middle of an epoch"
    taken.begin()
    assert cli.main(words(tmp_path, [*ENGINES[engine], f"train.resume={tmp_path}/a"], "b")) == 0
    found = summary(tmp_path, "b")
    if not with_evaluation:
        assert taken.numbers == everything[saved:]
    assert found["resumed"]["checkpoint_step"] == saved
    rest = [row["steps"] for row in found["order"]]
    assert sum(rest) == len(everything) - saved
    at = saved
    for row in found["order"]:
        some = np.array(everything[at : at + row["steps"]], "<i8")
        assert row["crc32"] == f"{zlib.crc32(some.tobytes()):08x}"
        at += row["steps"]
    assert found["verified_samples"] >= 4 * sum(rest)
    assert found["restore"]["bytes"][0] > 60_000


def test_evaluations_go_on_where_they_were(tmp_path: Path, taken: Taken) -> None:
    """One that was due after the step of the checkpoint is done first."""
    more = [*ENGINES["evaluation"], "checkpoint.every_steps=5", "dataset.samples_per_file_eval=8"]
    taken.begin()
    assert cli.main(words(tmp_path, more, "whole")) == 0
    everything = taken.numbers
    taken.begin(stop=17)
    assert cli.main(words(tmp_path, more, "a")) == 130
    place = max(read(tmp_path / "a" / "position.rank0.json").places.items())[1]  # type: ignore[union-attr]
    taken.begin()
    assert cli.main(words(tmp_path, [*more, f"train.resume={tmp_path}/a"], "b")) == 0
    assert place.evaluations > 0
    assert taken.numbers == everything[-len(taken.numbers) :]
    before = (place.epoch - 1) * 8 + place.step + place.eval_steps
    assert len(everything) - len(taken.numbers) == before


def test_lanes_go_on(tmp_path: Path, taken: Taken) -> None:
    lanes = [
        "recipe=frnn", "scale=tiny", "compute.step_s=0", "train.epochs=3", "checkpoint=torch_save",
        "dataset.num_files=4", "checkpoint.state_bytes=64KiB", "checkpoint.every_epochs=0", "checkpoint.every_steps=3",
        "train.steps=4",
        f"dataset.root={tmp_path}/data", "output.progress=false", "loader=main_process",
    ]  # fmt: skip
    taken.begin()
    assert cli.main([*lanes, f"output.dir={tmp_path}/whole"]) == 0
    everything = taken.numbers
    taken.begin(stop=8)
    assert cli.main([*lanes, f"output.dir={tmp_path}/a"]) == 130
    taken.begin()
    assert cli.main([*lanes, f"output.dir={tmp_path}/b", f"train.resume={tmp_path}/a"]) == 0
    assert taken.numbers == everything[6:]


def test_two_ranks_go_on_after_one_was_killed(tmp_path: Path) -> None:
    """SIGKILL in the middle of an epoch; the global order of what is left is that of one run."""
    more = [*WORKERS, "checkpoint.ranks=all", "checkpoint.keep=2", "train.allreduce_bytes=4KiB", "train.batch_size=2"]
    killed = (
        "import os, signal, sys\n"
        "from dlio_torch.train import trainer\n"
        "from dlio_torch.formats.core.batch import batch_bytes\n"
        "count = 0\n"
        "def taken(batch):\n"
        "    global count\n"
        "    count += 1\n"
        "    if count == 12 and os.environ['RANK'] == '1':\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return batch_bytes(batch)\n"
        "trainer.batch_bytes = taken\n"
        "from dlio_torch.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    program = tmp_path / "killed.py"
    program.write_text(killed)
    first = run_ranks("torch", 2, [program, *words(tmp_path, more, "a")])
    assert first[1].exit_code == -9
    resume = [*more, f"train.resume={tmp_path}/a"]
    again = run_ranks("torch", 2, ["-m", "dlio_torch", *words(tmp_path, resume, "b")])
    assert [one.exit_code for one in again] == [0, 0], again[0].stderr
    found = summary(tmp_path, "b")
    by_rank = planned(words(tmp_path, more, "b"), world_size=2)
    at = found["resumed"]["checkpoint_step"]
    assert at == 9
    for row in found["order"]:
        some = np.array([[rank[step] for rank in by_rank] for step in range(at, at + row["steps"])], "<i8")
        assert row["crc32"] == f"{zlib.crc32(some.tobytes()):08x}"
        at += row["steps"]
    assert at == len(by_rank[0])
    other = cli.main(words(tmp_path, resume, "c"))
    assert other == 2


# --- what is refused --------------------------------------------------------------------------------------


def refused(capsys: pytest.CaptureFixture[str], arguments: Sequence[str]) -> tuple[int, str]:
    capsys.readouterr()
    code = cli.main(list(arguments))
    return code, capsys.readouterr().err.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run ``a`` of three epochs, of which each has eight steps."""
    folder = tmp_path_factory.mktemp("ended")
    assert cli.main(words(folder, ["loader=main_process"], "a")) == 0
    return folder


@pytest.mark.parametrize(
    ("more", "code", "says"),
    [
        ([], 2, "at the end of train.epochs=3"),
        (["train.epochs=4", "seed=2"], 2, "the data set of the run to resume"),
        (["train.epochs=4", "access=sequential"], 2, "the order of the run to resume"),
        (["train.epochs=4", "train.batch_size=2"], 2, "the order of the run to resume"),
        (["train.epochs=4", "loader=workers", "loader.in_order=false"], 2, "loader.in_order=false"),
        (["train.epochs=4", "loader.replay=batches"], 2, "loader.replay=batches"),
        (["train.resume=nowhere"], 3, "train.resume=nowhere: "),
    ],
)
def test_what_cannot_go_on_is_refused_in_a_line(
    more: Sequence[str], code: int, says: str, ended: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        *words(ended, ["loader=main_process", f"train.resume={ended}/a"], "b"),
        *more,
        f"output.dir={tmp_path}/b",
    ]
    found, line = refused(capsys, overridden(*arguments))
    assert found == code, line
    assert says in line
    assert not (tmp_path / "b").exists()


def test_a_finished_run_is_trained_on_with_more_epochs(ended: Path, tmp_path: Path, taken: Taken) -> None:
    more = ["loader=main_process", "train.epochs=4", f"train.resume={ended}/a"]
    arguments = overridden(*words(ended, more, "b"), f"output.dir={tmp_path}/b")
    taken.begin()
    assert cli.main(arguments) == 0
    assert taken.numbers == planned(arguments)[0][24:]


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"version": 1, "identity": {}}', '{"version": 9}'])
def test_a_damaged_position_is_named(
    text: str, ended: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "position.rank0.json").write_text(text)
    arguments = overridden(
        *words(ended, ["loader=main_process", f"train.resume={tmp_path}/a"], "b"), f"output.dir={tmp_path}/b"
    )
    code, line = refused(capsys, arguments)
    assert (code, "position.rank0.json is damaged" in line) == (3, True), line


def test_a_run_without_a_whole_checkpoint_is_refused(
    ended: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    arguments = overridden(
        *words(ended, ["loader=main_process", f"train.resume={tmp_path}/a"], "b"), f"output.dir={tmp_path}/b"
    )
    code, line = refused(capsys, arguments)
    assert (code, "has completed no checkpoint" in line) == (3, True), line


def test_a_damaged_checkpoint_is_named(ended: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["loader=main_process", "train.epochs=4", "checkpoint.keep=0"]
    assert cli.main(overridden(*words(ended, more, "c"), f"output.dir={tmp_path}/a")) == 0
    newest = max(read(tmp_path / "a" / "position.rank0.json").places)  # type: ignore[union-attr]
    (tmp_path / "a" / "checkpoints" / f"checkpoint-{newest}.pt").write_bytes(b"no checkpoint")
    arguments = words(ended, [*more, "train.epochs=5", f"train.resume={tmp_path}/a"], "d")
    code, line = refused(capsys, overridden(*arguments, f"output.dir={tmp_path}/b"))
    assert (code, f"checkpoint-{newest}.pt is damaged" in line) == (3, True), line


def test_only_kept_checkpoints_have_a_place(tmp_path: Path) -> None:
    positions = SavedPositions(tmp_path / "position.rank0.json", RunIdentity(1, 1, "an order", 4, "data"))
    for step in (2, 4, 6):
        positions.write(step, TrainingPosition((step - 1) // 4 + 1, (step - 1) % 4 + 1), [step - 2, step])
    found = read(tmp_path / "position.rank0.json")
    assert found is not None
    assert found.places == {4: TrainingPosition(1, 4), 6: TrainingPosition(2, 2)}
    assert found.identity == positions.identity
