"""Parameters of described models: numbers as published, names and order of torchtitan's Llama 3."""

from __future__ import annotations

from dataclasses import replace

import pytest
from described_jobs import LLAMA3_8B, LLAMA3_70B, LLAMA3_405B, MIXTRAL, MLPERF_1T, MLPERF_70B

from dlio_torch.checkpoint.job.parameters import active_parameter_count, parameter_count, parameters
from dlio_torch.config.schema_model import ModelConfig


@pytest.mark.parametrize(
    ("model", "count"),
    [
        (LLAMA3_8B, 8_030_261_248),
        (LLAMA3_70B, 70_553_706_496),
        (MLPERF_70B, 69_882_617_856),
        (LLAMA3_405B, 405_853_388_800),
        (MLPERF_1T, 1_183_194_060_048),
        (MIXTRAL, 46_702_792_704),
    ],
)
def test_numbers_of_parameters_are_those_published(model: ModelConfig, count: int) -> None:
    assert parameter_count(model) == count
    h, v, f, layers = model.hidden_size, model.vocab_size, model.ffn_hidden_size, model.num_layers
    if not model.num_experts:
        kv = h * model.num_kv_heads // model.num_heads
        assert count == 2 * v * h + layers * (2 * h**2 + 2 * h * kv + 3 * h * f + 2 * h) + h


def test_names_and_order_are_those_of_torchtitan() -> None:
    names = [parameter.name for parameter in parameters(replace(LLAMA3_8B, num_layers=2))]
    layer = [
        *(f"attention.{name}" for name in ("wq", "wk", "wv", "wo")),
        *(f"feed_forward.{name}" for name in ("w1", "w2", "w3")),
        "attention_norm",
        "ffn_norm",
    ]
    assert names == [
        "tok_embeddings.weight",
        *(f"layers.{index}.{name}.weight" for index in range(2) for name in layer),
        "norm.weight",
        "output.weight",
    ]


def test_shapes_are_those_of_torch_and_tensor_parallelism_divides_the_wide_side() -> None:
    by_name = {parameter.name: parameter for parameter in parameters(LLAMA3_8B)}
    assert by_name["layers.31.attention.wk.weight"].shape == (1024, 4096)
    assert by_name["layers.31.feed_forward.w2.weight"].shape == (4096, 14336)
    split = {name.removeprefix("layers.0."): p.split for name, p in by_name.items() if p.layer in (None, 0)}
    assert {name.split(".")[-2] for name, axis in split.items() if axis == 1} == {"wo", "w2"}
    assert {name for name, axis in split.items() if axis is None} == {
        "attention_norm.weight",
        "ffn_norm.weight",
        "norm.weight",
    }


def test_each_expert_has_matrices_of_its_own_and_a_layer_a_router() -> None:
    of_layer = [parameter for parameter in parameters(MIXTRAL) if parameter.layer == 3]
    router = [p for p in of_layer if p.name == "layers.3.feed_forward.gate.weight"]
    assert [(p.shape, p.split, p.expert) for p in router] == [((8, 4096), None, None)]
    assert [p.expert for p in of_layer if p.expert is not None] == [e for e in range(8) for _ in range(3)]
    assert active_parameter_count(MIXTRAL) == 12_879_925_248  # two of eight experts
    assert active_parameter_count(replace(MIXTRAL, experts_per_token=0)) == parameter_count(MIXTRAL)


def test_tied_embeddings_have_no_output_matrix() -> None:
    tied = replace(LLAMA3_8B, tied_embeddings=True)
    assert parameter_count(LLAMA3_8B) - parameter_count(tied) == 128256 * 4096
    assert parameters(tied)[-1].name == "norm.weight"


def test_without_sizes_there_are_no_parameters() -> None:
    assert parameters(ModelConfig()) == ()
