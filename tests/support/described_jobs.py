"""Models with published sizes, and small models with ranks that divide them."""

from __future__ import annotations

from hypothesis import strategies as st

from dlio_torch.config.schema_model import ModelConfig, ParallelConfig

LLAMA = {"num_kv_heads": 8, "vocab_size": 128256}
LLAMA3_8B = ModelConfig(hidden_size=4096, num_layers=32, num_heads=32, ffn_hidden_size=14336, **LLAMA)
LLAMA3_70B = ModelConfig(hidden_size=8192, num_layers=80, num_heads=64, ffn_hidden_size=28672, **LLAMA)
MLPERF_70B = ModelConfig(hidden_size=8192, num_layers=80, num_heads=128, ffn_hidden_size=28672, **LLAMA)
LLAMA3_405B = ModelConfig(hidden_size=16384, num_layers=126, num_heads=128, ffn_hidden_size=53248, **LLAMA)
MLPERF_1T = ModelConfig(
    hidden_size=25872, num_layers=128, num_heads=192, num_kv_heads=32, ffn_hidden_size=98304, vocab_size=128256
)
MIXTRAL = ModelConfig(
    hidden_size=4096,
    num_layers=32,
    num_heads=32,
    num_kv_heads=8,
    ffn_hidden_size=14336,
    vocab_size=32000,
    num_experts=8,
    experts_per_token=2,
)

SMALL = ModelConfig(
    hidden_size=48,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    ffn_hidden_size=96,
    vocab_size=26,
    dtype="bfloat16",
    master_weights=True,
)


@st.composite
def jobs(draw: st.DrawFn, zero: st.SearchStrategy[int] | None = None) -> tuple[ModelConfig, ParallelConfig]:
    """A small model and ranks that divide it; its rows need not divide evenly among the ranks of FSDP."""
    tensor, pipeline, expert = (draw(st.integers(1, 2)) for _ in range(3))
    groups, copies = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    kind = draw(st.sampled_from(["none", "full", "hybrid"])) if zero is None else "none"
    heads = tensor * draw(st.integers(1, 2))
    model = ModelConfig(
        hidden_size=heads * draw(st.integers(1, 3)),
        num_layers=pipeline + draw(st.integers(0, 2)),
        num_heads=heads,
        num_kv_heads=tensor,
        ffn_hidden_size=tensor * draw(st.integers(1, 5)),
        vocab_size=tensor * draw(st.integers(1, 7)),
        tied_embeddings=draw(st.booleans()),
        num_experts=expert * draw(st.integers(1, 2)) if expert > 1 else draw(st.sampled_from([0, 3])),
        master_weights=draw(st.booleans()),
    )
    parallel = ParallelConfig(
        tensor=tensor,
        pipeline=1 if zero is not None else pipeline,
        data=expert * groups * copies,
        expert=expert,
        fsdp=kind,  # type: ignore[arg-type]
        fsdp_ranks=expert * groups if kind == "hybrid" else 0,
        zero=0 if zero is None else draw(zero),
    )
    return model, parallel
