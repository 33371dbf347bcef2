"""Parameters of a Llama-like transformer: names, shapes, and the dimension that tensor parallelism divides.

Names and order are those of torchtitan's Llama 3 (``torchtitan/models/llama3``).  With experts they are those of
Mixtral's reference code (mistral-inference), which agrees with it outside of the feed-forward part.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from dlio_torch.config.schema_model import ModelConfig

EMBEDDING = "tok_embeddings.weight"
"""Name of the matrix of the token embeddings."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of the model.

    Attributes:
        name: unique name, for example ``layers.0.attention.wq.weight``.
        shape: numbers of elements, as ``torch.nn.Linear`` has them: outputs first.
        layer: index of the transformer layer; None: outside of the layers.
        split: dimension that tensor parallelism divides; None: each tensor-parallel rank holds the whole.
        expert: index of the expert; None: part of no expert.
    """

    name: str
    shape: tuple[int, ...]
    layer: int | None = None
    split: int | None = None
    expert: int | None = None

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@functools.lru_cache(maxsize=64)
def parameters(model: ModelConfig) -> tuple[Parameter, ...]:
    """All parameters in the order in which the model holds them; none if no model is described."""
    return tuple(_parameters(model)) if model.described else ()


def parameter_count(model: ModelConfig) -> int:
    """Number of elements of all parameters."""
    return sum(parameter.elements for parameter in parameters(model))


def active_parameter_count(model: ModelConfig) -> int:
    """Number of parameters that process one token: those of ``experts_per_token`` experts, and all others."""
    experts = model.num_experts
    inactive = experts - (model.experts_per_token or experts)
    return sum(
        parameter.elements
        for parameter in parameters(model)
        if parameter.expert is None or parameter.expert >= inactive
    )


def _parameters(model: ModelConfig) -> Iterator[Parameter]:
    # Columns of a matrix are divided where it widens, rows where it narrows again (Megatron-LM, torchtitan); the
    # vocabulary is divided in both tables.
    table = (model.vocab_size, model.hidden_size)
    yield Parameter(EMBEDDING, table, split=0)
    for layer in range(model.num_layers):
        yield from _layer(model, layer)
    yield _weight("norm", (model.hidden_size,))
    if not model.tied_embeddings:
        yield _weight("output", table, split=0)


def _layer(model: ModelConfig, layer: int) -> Iterator[Parameter]:
    hidden, prefix = model.hidden_size, f"layers.{layer}"
    # The product first: 192 heads of the 1T model of MLPerf Storage do not divide its width, but its keys have a whole
    # number of rows.
    rows = hidden * model.kv_heads // model.num_heads
    for name, height in (("wq", hidden), ("wk", rows), ("wv", rows)):
        yield _weight(f"{prefix}.attention.{name}", (height, hidden), layer, split=0)
    yield _weight(f"{prefix}.attention.wo", (hidden, hidden), layer, split=1)
    if model.num_experts:
        yield _weight(f"{prefix}.feed_forward.gate", (model.num_experts, hidden), layer)
        for expert in range(model.num_experts):
            yield from _feed_forward(model, layer, f"{prefix}.feed_forward.experts.{expert}", expert)
    else:
        yield from _feed_forward(model, layer, f"{prefix}.feed_forward")
    for name in ("attention_norm", "ffn_norm"):
        yield _weight(f"{prefix}.{name}", (hidden,), layer)


def _feed_forward(model: ModelConfig, layer: int, prefix: str, expert: int | None = None) -> Iterator[Parameter]:
    wide, hidden = model.ffn_hidden_size, model.hidden_size
    yield _weight(f"{prefix}.w1", (wide, hidden), layer, 0, expert)
    yield _weight(f"{prefix}.w2", (hidden, wide), layer, 1, expert)
    yield _weight(f"{prefix}.w3", (wide, hidden), layer, 0, expert)


def _weight(
    module: str, shape: tuple[int, ...], layer: int | None = None, split: int | None = None, expert: int | None = None
) -> Parameter:
    """The weight of a module; none of them has a bias."""
    return Parameter(f"{module}.weight", shape, layer, split, expert)
