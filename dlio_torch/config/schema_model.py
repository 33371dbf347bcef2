"""Options of ``model`` and ``parallel``: the training job whose state the checkpoints hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.opt import opt

DataType = Literal["bfloat16", "float16", "float32"]
"""Element types in which weights and optimizer state are saved."""

MOST_LAYERS = 1024
"""Upper limit for layers, and for experts of a layer, which no model reaches: a larger number is a typing mistake."""

MOST_RANKS = 1 << 20
"""Upper limit for a degree of parallelism, and for the number of heads."""

LARGEST_WIDTH = 1 << 24
"""Upper limit for the width of a matrix."""


@dataclass(frozen=True)
class ModelConfig:
    """A decoder-only transformer (Llama, Mixtral) and its optimizer; without sizes no model is described."""

    hidden_size: int = opt(0, "width of the hidden states; 0: no model is described", minimum=0, maximum=LARGEST_WIDTH)
    num_layers: int = opt(0, "number of transformer layers; 0: no model is described", minimum=0, maximum=MOST_LAYERS)
    num_heads: int = opt(0, "number of attention heads; 0: no model is described", minimum=0, maximum=MOST_RANKS)
    num_kv_heads: int = opt(
        0,
        "number of heads for keys and values, fewer with grouped-query attention; 0: as many as num_heads",
        minimum=0,
        maximum=MOST_RANKS,
    )
    ffn_hidden_size: int = opt(
        0,
        "width of the feed-forward part (of one expert, if there are experts); 0: no model is described",
        minimum=0,
        maximum=LARGEST_WIDTH,
    )
    vocab_size: int = opt(
        0, "number of tokens of the vocabulary; 0: no model is described", minimum=0, maximum=LARGEST_WIDTH
    )
    tied_embeddings: bool = opt(False, "true: the output layer uses the matrix of the token embeddings")
    num_experts: int = opt(
        0,
        "number of experts of the feed-forward part of each layer; 0: a dense feed-forward part",
        minimum=0,
        maximum=MOST_LAYERS,
    )
    experts_per_token: int = opt(0, "number of experts that process one token; 0: all", minimum=0)
    dtype: DataType = opt("float32", "element type of the saved weights")
    optimizer_states: int = opt(
        2,
        "number of state tensors that the optimizer saves for each parameter: 2 for Adam, 1 for SGD with momentum; "
        "0: none",
        minimum=0,
        maximum=3,
    )
    optimizer_dtype: DataType = opt("float32", "element type of the state tensors of the optimizer")
    master_weights: bool = opt(False, "the optimizer also saves a float32 copy of the weights")

    @property
    def described(self) -> bool:
        """Whether the sizes describe a model."""
        sizes = (self.hidden_size, self.num_layers, self.num_heads, self.ffn_hidden_size, self.vocab_size)
        return all(sizes)

    @property
    def kv_heads(self) -> int:
        """Number of heads for keys and values."""
        return self.num_kv_heads or self.num_heads


@dataclass(frozen=True)
class ParallelConfig:
    """The ranks over which the job divides model and data; their number is tensor x pipeline x data."""

    tensor: int = opt(1, "tensor parallelism: number of ranks that share each matrix", minimum=1, maximum=MOST_RANKS)
    pipeline: int = opt(
        1, "pipeline parallelism: number of stages, each with some of the layers", minimum=1, maximum=MOST_RANKS
    )
    data: int = opt(
        1, "data parallelism: number of ranks that train the same part of the model", minimum=1, maximum=MOST_RANKS
    )
    expert: int = opt(
        1,
        "expert parallelism: number of ranks, out of the data-parallel ones, that share the experts",
        minimum=1,
        maximum=MOST_RANKS,
    )
    fsdp: Literal["none", "full", "hybrid"] = opt(
        "none",
        "weights and optimizer state are sharded (FSDP) over all data-parallel ranks (full), over groups of fsdp_ranks "
        "ranks that hold the same (hybrid), or not at all",
    )
    fsdp_ranks: int = opt(
        0, "with fsdp=hybrid: number of ranks over which one copy is sharded", minimum=0, maximum=MOST_RANKS
    )
    zero: int = opt(
        0,
        "stage of DeepSpeed's ZeRO: 1 and 2 divide the optimizer state among the data-parallel ranks, 3 also the "
        "weights; 0: no ZeRO",
        minimum=0,
        maximum=3,
    )

    @property
    def world_size(self) -> int:
        """Number of ranks of the job."""
        return self.tensor * self.pipeline * self.data
