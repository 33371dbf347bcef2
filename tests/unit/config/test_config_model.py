"""A described model and its ranks: what is refused, and the layers that a scale leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlio_torch.config.compose import Composed, compose
from dlio_torch.config.validate import check_world
from dlio_torch.errors import ConfigError

LLAMA = """\
dataset: {num_files: 1, samples_per_file: 64, fields: [{name: x}]}
model:
  {hidden_size: 4096, num_layers: 32, num_heads: 32, num_kv_heads: 8, ffn_hidden_size: 14336, vocab_size: 128256}
parallel: {data: 8, fsdp: full}
"""


def of(tmp_path: Path, *args: str, text: str = LLAMA, world_size: int = 1) -> Composed:
    (tmp_path / "llama.yaml").write_text(text, encoding="utf-8")
    return compose(["recipe=llama.yaml", *args], cwd=tmp_path, environ={}, world_size=world_size)


@pytest.mark.parametrize(
    ("args", "texts"),
    [
        (["model.num_heads=0"], ["model.num_heads=0 (command line) with model.hidden_size=4096 (llama.yaml:3)"]),
        (["model.num_kv_heads=5"], ["model.num_kv_heads=5 (command line)", "num_kv_heads=4"]),
        (["model.num_heads=33", "model.num_kv_heads=0"], ["model.hidden_size=4096", "num_heads=33", "num_heads=32"]),
        (["model.num_heads=24", "model.num_kv_heads=8", "model.hidden_size=4097"], ["hidden_size=4097"]),
        (["parallel.tensor=16"], ["parallel.tensor=16 (command line)", "model.num_kv_heads=8", "parallel.tensor=8"]),
        (["parallel.tensor=3"], ["model.num_heads=32", "32 cannot be divided equally among 3 ranks", "tensor=2"]),
        (["parallel.tensor=8", "model.vocab_size=50257"], ["model.vocab_size=50257", "a multiple of 8"]),
        (["parallel.pipeline=33"], ["parallel.pipeline=33 (command line)", "num_layers=32", "pipeline=32 or less"]),
        (["parallel.expert=2"], ["parallel.expert=2", "model.num_experts=0", "set parallel.expert=1"]),
        (["parallel.expert=3", "model.num_experts=6"], ["parallel.expert=3", "parallel.data=8", "parallel.expert=2"]),
        (["model.experts_per_token=2"], ["model.experts_per_token=2", "model.num_experts=0"]),
        (["parallel.zero=1"], ["parallel.zero=1 (command line) with parallel.fsdp=full (llama.yaml:4)"]),
        (["parallel.fsdp=none", "parallel.zero=3", "parallel.pipeline=2"], ["parallel.zero=3", "parallel.pipeline=2"]),
        (["parallel.fsdp=hybrid"], ["parallel.fsdp_ranks=0", "parallel.fsdp=hybrid", "divisor of parallel.data"]),
        (["parallel.fsdp=hybrid", "parallel.fsdp_ranks=3"], ["parallel.fsdp_ranks=3", "data=8", "fsdp_ranks=2"]),
        (["parallel.fsdp_ranks=4"], ["parallel.fsdp_ranks=4", "parallel.fsdp=full", "fsdp=hybrid"]),
        (
            ["model.num_experts=8", "parallel.expert=8", "parallel.fsdp=hybrid", "parallel.fsdp_ranks=4"],
            ["parallel.expert=8", "parallel.fsdp_ranks=4", "set parallel.expert=4"],
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(tmp_path: Path, args: list[str], texts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        of(tmp_path, *args)
    line = str(caught.value)
    assert caught.value.exit_code == 2
    assert "\n" not in line
    for text in texts:
        assert text in line


def test_ranks_without_a_model_are_refused(tmp_path: Path) -> None:
    text = "dataset: {num_files: 1, samples_per_file: 64, fields: [{name: x}]}\nparallel: {tensor: 8}\n"
    with pytest.raises(
        ConfigError, match=r"model\.hidden_size=0 .* with parallel\.tensor=8 .*set model\.hidden_size, "
    ):
        of(tmp_path, text=text)


def test_the_heads_of_mlperf_s_largest_model_are_accepted(tmp_path: Path) -> None:
    sizes = ["hidden_size=25872", "num_layers=128", "num_heads=192", "num_kv_heads=32", "ffn_hidden_size=98304"]
    made = of(tmp_path, *(f"model.{size}" for size in sizes), "parallel.tensor=8", "parallel.pipeline=64")
    assert made.config.parallel.world_size == 4096


def test_more_ranks_than_the_job_has_are_refused(tmp_path: Path) -> None:
    made = of(tmp_path, "parallel.tensor=2")
    check_world(made.config, 16)
    with pytest.raises(ConfigError, match=r"parallel\.tensor=2 .*16 ranks, but 17 were started; set parallel\.data=9,"):
        check_world(made.config, 17, sources=made.sources)


def test_a_scale_leaves_out_layers_and_says_so(tmp_path: Path) -> None:
    made = of(tmp_path, "scale=laptop")
    assert made.config.model.num_layers == 1
    assert "model.num_layers 32 -> 1 (scale=laptop)" in made.notes
    assert made.sources["model.num_layers"] == "scale laptop (published 32)"
    assert of(tmp_path, "scale=laptop", "scale.max_state_bytes=3GB").config.model.num_layers == 4
    assert made.config.model.hidden_size == 4096


def test_the_smallest_scale_cuts_the_vocabulary_to_what_ranks_can_share(tmp_path: Path) -> None:
    small = of(tmp_path, "scale=tiny")
    assert small.config.model.vocab_size == 8192
    assert "model.vocab_size 128256 -> 8192 (scale=tiny)" in small.notes
    assert of(tmp_path, "scale=tiny", "parallel.tensor=8", "scale.max_vocab_size=1001").config.model.vocab_size == 1008
    assert of(tmp_path, "scale=laptop").config.model.vocab_size == 128256


@pytest.mark.parametrize("args", [["scale=paper"], ["scale=tiny", "model.num_layers=32"], []])
def test_layers_that_are_given_or_published_stay(tmp_path: Path, args: list[str]) -> None:
    made = of(tmp_path, *args)
    assert made.config.model.num_layers == 32
    assert not any(note.startswith("model.num_layers") for note in made.notes)


def test_each_stage_keeps_a_layer_at_any_scale(tmp_path: Path) -> None:
    assert of(tmp_path, "scale=tiny", "parallel.pipeline=5").config.model.num_layers == 5
