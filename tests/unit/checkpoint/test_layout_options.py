"""Options of checkpoints that the chosen layout does not read are refused, or reset where only a recipe sets them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from dlio_torch.checkpoint.base import COMMON_OPTIONS
from dlio_torch.checkpoint.layouts.plain_files.layout import TorchSaveLayout
from dlio_torch.checkpoint.registry import BUILTIN, layout_of, unread_options
from dlio_torch.config.compose import Composed, compose
from dlio_torch.config.emit import to_yaml
from dlio_torch.config.resources import find
from dlio_torch.config.schema import CheckpointConfig
from dlio_torch.errors import ConfigError

NAMES = {field.name for field in fields(CheckpointConfig)}
MODEL = ("model.hidden_size=48", "model.num_layers=1", "model.num_heads=4", "model.ffn_hidden_size=64")
JOB = (*MODEL, "model.vocab_size=64", "checkpoint.every_steps=1")
RECIPE = """\
description: two checkpoints
dataset: {num_files: 1, samples_per_file: 8, fields: [{name: a, shape: [4]}]}
train: {epochs: 1, batch_size: 1}
checkpoint:
  layout: files
  every_steps: 4
  restore_read_bytes: 1KiB
  files:
    - {name: weights, bytes: 4KiB}
    - {name: momentum, bytes: 4KiB}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


def composed(recipe: Path, *options: str) -> Composed:
    return compose([f"recipe={recipe}", *options])


def test_each_option_is_of_all_layouts_or_read_by_some() -> None:
    read = [layout.options for name in BUILTIN if (layout := layout_of(name)) is not None]
    assert COMMON_OPTIONS | frozenset().union(*read) == NAMES
    assert not any(COMMON_OPTIONS & options for options in read)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            ["checkpoint.layout=dcp", *JOB, "checkpoint.shard_bytes=1MB"],
            r"checkpoint\.shard_bytes=1000000 \(command line\) with checkpoint\.layout=dcp \(command line\): only the "
            r"layout safetensors reads this option.*set checkpoint\.layout=safetensors, or leave "
            r"checkpoint\.shard_bytes out",
        ),
        (["checkpoint.layout=dcp", *JOB, "checkpoint.consolidate=true"], "only the layout safetensors reads"),
        (["checkpoint.layout=megatron_deepspeed", *JOB, "checkpoint.ranks=all"], "layout=files or torch_save or "),
        (["checkpoint=torch_save", "checkpoint.async_save=thread"], r"async_save=thread .*set checkpoint\.layout=dcp"),
        (["checkpoint=torch_save", "checkpoint.planned_ranks=16"], "only the layout dcp reads"),
        (
            ["checkpoint=torch_save", "checkpoint.restore_read_bytes=4KiB"],
            "only the layouts files, tensorflow read this option",
        ),
        (
            ["checkpoint=dlio", "checkpoint.restore_part=model"],
            "layout=torch_save or dcp or megatron_deepspeed or safetensors",
        ),
        (
            ["checkpoint=dlio", "checkpoint.tensorflow.meta_bytes=1KiB"],
            r"checkpoint\.tensorflow\.meta_bytes=1024 \(command line\) with .*leave checkpoint\.tensorflow out",
        ),
        (
            ["checkpoint=torch_save", "checkpoint.files=[{name: a}]"],
            r"checkpoint\.files=\[1 elements\] \(command line\)",
        ),
        (["checkpoint.async_save=thread"], r"layout=none \(default\): only the layout dcp reads this option"),
    ],
)
def test_options_of_other_layouts_are_refused(options: list[str], line: str) -> None:
    with pytest.raises(ConfigError, match=line) as caught:
        compose(["recipe=minimal", *options])
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


def test_a_recipe_with_options_of_another_layout_is_refused_by_its_line(recipe: Path) -> None:
    recipe.write_text(f"{RECIPE}  thread_count: 4\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"thread_count=4 \(.*mine\.yaml:11\) with checkpoint\.layout=files"):
        composed(recipe)


@pytest.mark.parametrize(
    "words", [["checkpoint=torch_save"], ["checkpoint.layout=torch_save", "checkpoint.state_bytes=1KiB"]]
)
def test_the_layout_of_the_command_line_resets_options_of_the_recipe(recipe: Path, words: list[str]) -> None:
    run = composed(recipe, *words)
    assert run.config.checkpoint.files == []
    assert run.config.checkpoint.restore_read_bytes == 0
    assert [note.partition(" (")[0] for note in run.adjusted] == [
        "checkpoint.files=[2 elements]",
        "checkpoint.restore_read_bytes=1024",
    ]
    assert all(note.endswith("is not used by checkpoint.layout=torch_save") for note in run.adjusted)
    assert "mine.yaml" in run.adjusted[0]
    assert run.sources["checkpoint.files"].startswith("replaces checkpoint.files=[2 elements]")
    written = recipe.parent / "resolved.yaml"
    written.write_text(to_yaml(run.config), encoding="utf-8")
    assert composed(written).config.checkpoint == run.config.checkpoint


def test_an_option_of_the_command_line_is_never_reset(recipe: Path) -> None:
    with pytest.raises(ConfigError, match=r"restore_read_bytes=2048 \(command line\)"):
        composed(recipe, "checkpoint=torch_save", "checkpoint.restore_read_bytes=2KiB")
    with pytest.raises(ConfigError, match=r"checkpoint\.files=\[2 elements\]"):
        composed(recipe, "checkpoint=torch_save", "checkpoint.files.1.bytes=1KiB")


def test_no_checkpoints_leave_no_options_of_a_layout(recipe: Path) -> None:
    run = composed(recipe, "checkpoint.thread_count=4", "checkpoint=none")
    assert unread_options(run.config.checkpoint) == {}
    assert run.adjusted == []


@pytest.mark.parametrize("recipe", ["cosmic_tagger", "dlio_default", "l2hmc", "llama3_8b", "mlperf_llama3_8b"])
def test_each_shipped_choice_of_checkpoints_fits_recipes_of_other_layouts(recipe: str, tmp_path: Path) -> None:
    places = find(tmp_path, {})
    for choice in places.choices("checkpoint"):
        layout = places.fragment("checkpoint", choice, "").tree["layout"]
        state = ["checkpoint.state_bytes=0"] if layout == "torch_save" and "llama" in recipe else []
        job = [] if "llama" in recipe or layout in ("none", "files", "torch_save") else JOB
        state += ["parallel.zero=0", "parallel.fsdp=none"]  # each layout has limits of its own
        run = compose([f"recipe={recipe}", "scale=tiny", f"checkpoint={choice}", *state, *job])
        assert run.config.checkpoint.layout == layout
        assert unread_options(run.config.checkpoint) == {}


def test_a_registered_layout_says_which_options_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unread_options(CheckpointConfig(layout="torch_save", plan_cache=True)) == {"plan_cache": ("dcp",)}
    monkeypatch.setitem(BUILTIN, "other", f"{__name__}:OtherLayout")
    assert unread_options(CheckpointConfig(layout="torch_save", plan_cache=True)) == {"plan_cache": ("dcp", "other")}


class OtherLayout(TorchSaveLayout):
    options = frozenset({"plan_cache"})
