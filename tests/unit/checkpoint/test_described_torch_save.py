"""Layout torch_save of a described model: the whole state on the first rank, or a part on each."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from checkpointers import job_checkpointers, restore_problem, saved_names
from described_jobs import SMALL

from dlio_torch.checkpoint.job.parameters import parameter_count
from dlio_torch.checkpoint.job.saved_state import rank_bytes
from dlio_torch.checkpoint.registry import layout_of
from dlio_torch.config.compose import compose
from dlio_torch.config.schema import CheckpointConfig, Config
from dlio_torch.config.schema_model import ParallelConfig
from dlio_torch.errors import ConfigError, DlioError

FIRST = CheckpointConfig(layout="torch_save", every_steps=1)
JOB = Config(model=SMALL, parallel=ParallelConfig(tensor=2, data=2, fsdp="full"), checkpoint=FIRST)
EVERY = replace(JOB, checkpoint=replace(FIRST, ranks="all", fsync=True))


def test_the_first_rank_saves_the_whole_state(tmp_path: Path) -> None:
    first, second = job_checkpointers(JOB, tmp_path, 2)
    assert (first.saves, second.saves) == (True, False)
    first.save(5)
    assert saved_names(tmp_path) == ["checkpoint-5.pt"]
    layout = layout_of("torch_save")
    assert layout is not None
    assert layout.saved_bytes(JOB, 0) == layout.held_bytes(JOB, 0) == 14 * parameter_count(SMALL)
    state = torch.load(tmp_path / "checkpoint-5.pt", weights_only=True)
    assert list(state) == ["model", "optimizer", "step"]
    assert state["step"] == 5
    assert state["model"]["output.weight"].shape == (26, 48)
    moments = state["optimizer"]["state"]
    assert list(moments) == list(range(len(state["model"])))
    for parameter, moment in zip(state["model"].values(), moments.values(), strict=True):
        assert list(moment) == ["exp_avg", "exp_avg_sq", "master_param"]
        assert all(tensor.shape == parameter.shape for tensor in moment.values())
        assert parameter.unique().numel() > 1 or parameter.numel() == 1


def test_each_rank_saves_its_part(tmp_path: Path) -> None:
    ranks = job_checkpointers(EVERY, tmp_path, 4)
    layout = layout_of("torch_save")
    assert layout is not None
    for step in (1, 2):
        for rank in ranks:
            rank.save(step)
            rank.due(1, step, False)
    assert saved_names(tmp_path) == [f"rank-{number}/checkpoint-2.pt" for number in range(4)]
    for number, rank in enumerate(ranks):
        path = tmp_path / f"rank-{number}" / "checkpoint-2.pt"
        expected = rank_bytes(SMALL, EVERY.parallel, number)
        assert layout.saved_bytes(EVERY, number) == expected < path.stat().st_size
        times, saved = rank.restore(), rank.times[-1]
        assert times is not None
        assert times.bytes == saved.bytes == path.stat().st_size
        assert saved.fsync_s is not None


def test_another_or_a_damaged_file_is_refused(tmp_path: Path) -> None:
    [rank] = job_checkpointers(JOB, tmp_path, 1)
    rank.save(1)
    other = replace(JOB, model=replace(SMALL, num_layers=4))
    assert "holds another state: it holds no tensor layers.3.attention.wq.weight" in restore_problem(other, tmp_path, 1)
    no_optimizer = replace(JOB, model=replace(SMALL, optimizer_states=3))
    assert "it holds no tensor optimizer.state.tok_embeddings.weight.max_exp_avg_sq" in restore_problem(
        no_optimizer, tmp_path, 1
    )
    model_only = replace(no_optimizer, checkpoint=replace(FIRST, restore_part="model"))
    [reader] = job_checkpointers(model_only, tmp_path, 1, restores=(tmp_path, 1))
    assert reader.restore() is not None  # the model is the same
    os.truncate(tmp_path / "checkpoint-1.pt", 5000)
    assert "checkpoint-1.pt is damaged: " in restore_problem(JOB, tmp_path, 1)
    assert "checkpoint-2.pt cannot be read: No such file" in restore_problem(JOB, tmp_path, 2)


def test_a_full_device_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    [rank] = job_checkpointers(JOB, tmp_path, 1)
    rank.save(1)
    (tmp_path / ".checkpoint-2.pt.tmp").symlink_to("/dev/full")
    with pytest.raises(DlioError, match=r"checkpoint-2\.pt cannot be written \(it needs") as caught:
        rank.save(2)
    assert "\n" not in str(caught.value)
    assert saved_names(tmp_path) == ["checkpoint-1.pt"]
    assert rank.restore() is not None


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            ["checkpoint.state_bytes=1MB"],
            "state_bytes=1000000 .*; set checkpoint.state_bytes=0",
        ),
        (["model.hidden_size=0"], "model is described in part"),
    ],
)
def test_a_size_beside_a_model_is_refused(options: list[str], line: str) -> None:
    sizes = ["hidden_size", "num_layers", "num_heads", "ffn_hidden_size", "vocab_size"]
    model = [f"model.{name}={getattr(SMALL, name)}" for name in sizes]
    with pytest.raises(ConfigError, match=line) as caught:
        compose(["recipe=minimal", "checkpoint.layout=torch_save", "checkpoint.every_steps=1", *model, *options])
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


def test_neither_a_size_nor_a_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="state of 0 bytes"):
        compose(["recipe=minimal", "checkpoint.layout=torch_save", "checkpoint.every_steps=1"])
