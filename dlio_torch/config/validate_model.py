"""Checks of ``model`` and ``parallel``: sizes that are given in part, and sizes that the ranks cannot divide."""

from __future__ import annotations

from dlio_torch.config.check import Fail
from dlio_torch.config.schema import Config
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig
from dlio_torch.units import counted

_SIZES = ("hidden_size", "num_layers", "num_heads", "ffn_hidden_size", "vocab_size")
_DEGREES = ("tensor", "pipeline", "data", "expert")


def check_model(config: Config, fail: Fail) -> None:
    """Refuse a model whose sizes do not fit each other, and ranks that cannot divide it.

    Args:
        config: a complete configuration.
        fail: raises the error; called with keys, problem and way out.

    Raises:
        ConfigError: naming the keys, their values and what to change.
    """
    model, parallel = config.model, config.parallel
    if not model.described:
        _check_absent(model, parallel, fail)
        return
    _check_heads(model, fail)
    _check_experts(model, parallel, fail)
    _check_tensor(model, parallel, fail)
    _check_pipeline(model, parallel, fail)
    _check_data(parallel, fail)


def check_job_ranks(config: Config, world_size: int, fail: Fail) -> None:
    """Refuse more ranks than the described job has; fewer hold the state of its first ranks.

    Args:
        config: a complete configuration.
        world_size: number of ranks.
        fail: raises the error; called with keys, problem and way out.

    Raises:
        ConfigError: naming the keys, their values and what to change.
    """
    parallel = config.parallel
    if config.model.described and world_size > parallel.world_size:
        data = -(-world_size // (parallel.tensor * parallel.pipeline))
        fail(
            ["parallel.tensor", "parallel.pipeline", "parallel.data"],
            f"the job has {counted(parallel.world_size, 'rank')}, but {world_size} were started",
            f"set parallel.data={data}, or start at most {counted(parallel.world_size, 'rank')}",
        )


def _check_absent(model: ModelConfig, parallel: ParallelConfig, fail: Fail) -> None:
    """Refuse options about a model of which a size is absent."""
    absent = [f"model.{name}" for name in _SIZES if not getattr(model, name)]
    given = [f"model.{name}" for name in (*_SIZES, "num_kv_heads", "num_experts") if getattr(model, name)]
    given += [f"parallel.{name}" for name in _DEGREES if getattr(parallel, name) > 1]
    given += ["parallel.fsdp"] if parallel.fsdp != "none" else []
    given += ["parallel.zero"] if parallel.zero else []
    if given:
        fail(
            [absent[0], given[0]],
            "the model is described in part",
            f"set {', '.join(absent)} to 1 or more, or leave out all options of model and parallel",
        )


def _check_heads(model: ModelConfig, fail: Fail) -> None:
    heads, kv_heads = model.num_heads, model.kv_heads
    if heads % kv_heads:
        fail(
            ["model.num_kv_heads", "model.num_heads"],
            "the heads cannot be divided equally among those for keys and values",
            f"set model.num_kv_heads={_divisor(kv_heads, heads)}, or 0 for as many as model.num_heads",
        )
    # The 1T model of MLPerf Storage has heads of 134.75, but its keys and values have a whole number of rows.
    if model.hidden_size % heads and (kv_heads == heads or model.hidden_size * kv_heads % heads):
        fail(
            ["model.hidden_size", "model.num_heads"],
            "the width cannot be divided equally among the heads",
            f"set model.num_heads={_divisor(heads, model.hidden_size)}, or another model.hidden_size",
        )


def _check_experts(model: ModelConfig, parallel: ParallelConfig, fail: Fail) -> None:
    if model.experts_per_token > model.num_experts:
        fail(
            ["model.experts_per_token", "model.num_experts"],
            "a token cannot be processed by more experts than there are",
            f"set model.experts_per_token={model.num_experts}, or model.num_experts={model.experts_per_token} or more",
        )
    _check_divides(parallel, "expert", [("model.num_experts", model.num_experts or 1)], fail)
    _check_divides(parallel, "expert", [("parallel.data", parallel.data)], fail)
    if parallel.fsdp == "hybrid" and parallel.fsdp_ranks:
        _check_divides(parallel, "expert", [("parallel.fsdp_ranks", parallel.fsdp_ranks)], fail)


def _check_tensor(model: ModelConfig, parallel: ParallelConfig, fail: Fail) -> None:
    names = ("num_heads", "ffn_hidden_size", "vocab_size", "hidden_size")
    sizes = [(f"model.{name}", getattr(model, name)) for name in names]
    kv_key = "model.num_kv_heads" if model.num_kv_heads else "model.num_heads"
    rows = model.hidden_size * model.kv_heads // model.num_heads
    _check_divides(parallel, "tensor", [*sizes, (kv_key, model.kv_heads), ("model.hidden_size", rows)], fail)


def _check_pipeline(model: ModelConfig, parallel: ParallelConfig, fail: Fail) -> None:
    if model.num_layers < parallel.pipeline:
        fail(
            ["parallel.pipeline", "model.num_layers"],
            "each pipeline stage needs a layer",
            f"set parallel.pipeline={model.num_layers} or less",
        )
    if parallel.zero > 1 and parallel.pipeline > 1:
        fail(
            ["parallel.zero", "parallel.pipeline"],
            "DeepSpeed combines pipeline stages with ZeRO 1 only",
            "set parallel.zero=1, or parallel.pipeline=1",
        )


def _check_data(parallel: ParallelConfig, fail: Fail) -> None:
    if parallel.zero and parallel.fsdp != "none":
        fail(
            ["parallel.zero", "parallel.fsdp"],
            "both divide the same state among the data-parallel ranks",
            "set parallel.zero=0, or parallel.fsdp=none",
        )
    if parallel.fsdp == "hybrid":
        if not parallel.fsdp_ranks:
            fail(
                ["parallel.fsdp_ranks", "parallel.fsdp"],
                "the number of ranks that share one copy is not given",
                "set parallel.fsdp_ranks to a divisor of parallel.data, or parallel.fsdp=full",
            )
        _check_divides(parallel, "fsdp_ranks", [("parallel.data", parallel.data)], fail)
    elif parallel.fsdp_ranks:
        fail(
            ["parallel.fsdp_ranks", "parallel.fsdp"],
            "only hybrid sharding has this number",
            "set parallel.fsdp=hybrid, or parallel.fsdp_ranks=0",
        )


def _check_divides(parallel: ParallelConfig, degree: str, sizes: list[tuple[str, int]], fail: Fail) -> None:
    """Refuse a degree of parallelism that does not divide all sizes; the first of them is named."""
    ranks = getattr(parallel, degree)
    for key, size in sizes:
        if size % ranks:
            fits = _divisor(ranks, *(size for _, size in sizes))
            fail(
                [f"parallel.{degree}", key],
                f"{size} cannot be divided equally among {ranks} ranks",
                f"set parallel.{degree}={fits}, or {key} to a multiple of {ranks}",
            )


def _divisor(most: int, *sizes: int) -> int:
    """Largest number up to ``most`` that divides all sizes."""
    return next(count for count in range(min(most, *sizes), 0, -1) if not any(size % count for size in sizes))
