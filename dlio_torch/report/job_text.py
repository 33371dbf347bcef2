"""Console text on the described job: its model, its ranks, and the state that a checkpoint holds."""

from __future__ import annotations

from collections.abc import Iterator

from dlio_torch.checkpoint.job.parameters import active_parameter_count, parameter_count, parameters
from dlio_torch.checkpoint.job.saved_state import bytes_per_parameter, job_bytes, largest_rank_bytes
from dlio_torch.config.schema import Config
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig
from dlio_torch.units import counted, format_size


def job_lines(config: Config, world_size: int) -> Iterator[str]:
    """Lines on the model and the job of a plan; none if no model is described.

    Args:
        config: the experiment, with its scale applied.
        world_size: number of ranks of this run.
    """
    if config.model.described:
        yield f"model: {_model(config.model)}"
        yield f"job: {_job(config.model, config.parallel, world_size)}"


def _model(model: ModelConfig) -> str:
    count, active = parameter_count(model), active_parameter_count(model)
    grouped = f" ({model.num_kv_heads} for keys and values)" if model.num_kv_heads else ""
    token = f" ({active:,} of them for a token)" if active < count else ""
    layers = f"{counted(model.num_layers, 'layer')} of {counted(model.num_heads, 'head')}{grouped}"
    return (
        f"{layers}, {count:,} parameters{token} in {len(parameters(model))} tensors, {bytes_per_parameter(model)} "
        f"bytes of state for each, {format_size(job_bytes(model))} in all"
    )


def _job(model: ModelConfig, parallel: ParallelConfig, world_size: int) -> str:
    degrees = {"tensor": parallel.tensor, "pipeline": parallel.pipeline, "data": parallel.data}
    words = [f"{name} {degree}" for name, degree in degrees.items()]
    words += [f"expert {parallel.expert}"] if parallel.expert > 1 else []
    words += [f"{parallel.fsdp} sharding by FSDP"] if parallel.fsdp != "none" else []
    words += [f"ZeRO {parallel.zero}"] if parallel.zero else []
    ranks = f"{counted(parallel.world_size, 'rank')} ({', '.join(words)})"
    largest = format_size(largest_rank_bytes(model, parallel))
    return f"{ranks}, up to {largest} of state each{_present(parallel, world_size)}"


def _present(parallel: ParallelConfig, world_size: int) -> str:
    """Ranks of the job that the ranks of this run stand for."""
    if world_size >= parallel.world_size:
        return ""
    if world_size == 1:
        return "; the rank of this run stands for rank 0"
    return f"; the {world_size} ranks of this run stand for ranks 0 to {world_size - 1}"
