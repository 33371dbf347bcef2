"""States that a list of tensors describes, saved by torch.save and by torch.distributed.checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from checkpointers import job_checkpointers, restore_problem, saved_names
from torch.distributed.checkpoint import FileSystemReader

from dlio_torch.checkpoint.listed_state import listed_bytes
from dlio_torch.checkpoint.registry import layout_of
from dlio_torch.config.compose import compose
from dlio_torch.config.scaling import scale
from dlio_torch.config.schema import CheckpointConfig, CheckpointTensorConfig, Config
from dlio_torch.errors import ConfigError

TENSORS = [
    CheckpointTensorConfig(name="model.weight", shape=[8, 4]),
    CheckpointTensorConfig(name="state.step", shape=[], count=2),
    CheckpointTensorConfig(name="mask", shape=[3], dtype="bool"),
    CheckpointTensorConfig(name="groups.lr", shape=[40], dtype="object"),
]
SAVED = Config(checkpoint=CheckpointConfig(layout="torch_save", every_steps=1, keep=0, tensors=TENSORS, rename=False))
SHAPES = {"model.weight": (8, 4), "state.step": (), "state.step.1": (), "mask": (3,)}
"""Of the saved tensors, by name."""


def test_torch_save_writes_the_listed_tensors_under_the_final_name(tmp_path: Path) -> None:
    [rank] = job_checkpointers(SAVED, tmp_path, 1)
    rank.save(3)
    assert saved_names(tmp_path) == ["checkpoint-3.pt"]
    state = torch.load(tmp_path / "checkpoint-3.pt", weights_only=True)
    assert {name: tuple(value.shape) for name, value in state.items() if torch.is_tensor(value)} == SHAPES
    assert isinstance(state["groups.lr"], str)
    times = rank.restore()
    assert times is not None
    assert times.bytes == (tmp_path / "checkpoint-3.pt").stat().st_size


def test_dcp_saves_the_listed_tensors_once_and_reads_them_back(tmp_path: Path) -> None:
    config = replace(SAVED, checkpoint=replace(SAVED.checkpoint, layout="dcp", rename=True))
    [rank] = job_checkpointers(config, tmp_path, 1)
    rank.save(2)
    saved = FileSystemReader(tmp_path / "step-2").read_metadata().state_dict_metadata
    assert {name: tuple(entry.size) for name, entry in saved.items() if hasattr(entry, "size")} == SHAPES
    times = rank.restore()
    rank.close()
    assert times is not None
    assert times.bytes > listed_bytes(config.checkpoint)
    layout = layout_of("dcp")
    assert layout is not None
    assert [layout.saved_bytes(config, number) for number in (0, 1)] == [listed_bytes(config.checkpoint), 0]


def test_checkpoints_of_one_name_replace_each_other(tmp_path: Path) -> None:
    options = replace(SAVED.checkpoint, file_name="last.pt", keep=1)
    [rank] = job_checkpointers(replace(SAVED, checkpoint=options), tmp_path, 1)
    for step in (1, 2):
        rank.save(step)
    assert saved_names(tmp_path) == ["last.pt"]
    layout = layout_of("torch_save")
    assert layout is not None
    assert layout.replaced_bytes(SAVED) == []
    config = replace(SAVED, checkpoint=options)
    assert layout.replaced_bytes(config) == [layout.saved_bytes(config, 0)]


def test_another_list_of_tensors_is_refused(tmp_path: Path) -> None:
    [rank] = job_checkpointers(SAVED, tmp_path, 1)
    rank.save(1)
    more = [*TENSORS, CheckpointTensorConfig(name="other")]
    config = replace(SAVED, checkpoint=replace(SAVED.checkpoint, tensors=more))
    assert "it holds no tensor other" in restore_problem(config, tmp_path, 1)


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("checkpoint.file_name=a/b", "not a file name"),
        ("checkpoint.layout=safetensors", "saves the state of a model"),
        ("checkpoint.state_bytes=1000", "both describe the state"),
        ("checkpoint.restore_part=model", "has parts"),
        ("checkpoint.tensors=[{name: a, shape: [-1]}]", "negative"),
        ("checkpoint.tensors=[{name: a, dtype: object}]", "number of its bytes"),
    ],
)
def test_lists_that_do_not_fit_are_refused(setting: str, text: str) -> None:
    given = ["recipe=minimal", "checkpoint.layout=torch_save", "checkpoint.every_steps=1", "checkpoint.tensors=[{}]"]
    with pytest.raises(ConfigError, match=text):
        compose([*given, setting])


def test_a_scale_leaves_fewer_rows_and_the_same_tensors() -> None:
    half = replace(SAVED, scale=replace(SAVED.scale, checkpoint_size=0.5))
    scaled = scale(half, fixed=[])[0].checkpoint.tensors
    assert [tensor.shape for tensor in scaled] == [[4, 4], [], [2], [40]]
    assert [(tensor.name, tensor.dtype) for tensor in scaled] == [(tensor.name, tensor.dtype) for tensor in TENSORS]
