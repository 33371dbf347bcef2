"""Checks of the layouts of checkpoints that save the state of a described model."""

from __future__ import annotations

from dlio_torch.config.check import Fail
from dlio_torch.config.schema import Config
from dlio_torch.units import counted

_LAYOUT = "checkpoint.layout"
_HUGGING_FACE = "safetensors"
_WITHOUT_PARTS = ("files", "tensorflow")


def check_layout(config: Config, fail: Fail) -> None:
    """Refuse a layout without the model that it saves, and jobs that it cannot save.

    Args:
        config: a complete configuration.
        fail: raises the error; called with keys, problem and way out.

    Raises:
        ConfigError: naming the keys, their values and what to change.
    """
    layout = config.checkpoint.layout
    if layout == "megatron_deepspeed":
        _check_described(config, fail)
        _check_deepspeed(config, fail)
    elif layout == _HUGGING_FACE:
        _check_described(config, fail)
        _check_parts(config, fail)
    elif layout == "torch_save":
        _check_torch_save(config, fail)
    if layout in _WITHOUT_PARTS or (layout == "torch_save" and not config.model.described):
        _check_whole(config, fail)
    if config.checkpoint.consolidate:
        _check_consolidation(config, fail)


def check_saved_parts(config: Config, world_size: int, fail: Fail) -> None:
    """Refuse to make whole files of the parts of too few ranks.

    Args:
        config: a complete configuration.
        world_size: number of ranks.
        fail: raises the error; called with keys, problem and way out.

    Raises:
        ConfigError: naming the keys, their values and what to change.
    """
    if config.checkpoint.consolidate and world_size < config.parallel.world_size:
        ranks = counted(config.parallel.world_size, "rank")
        fail(
            ["checkpoint.consolidate", "parallel.data"],
            f"whole files need the parts of the {ranks} of the job, but {world_size} were started",
            f"start {ranks}, or set checkpoint.consolidate=false",
        )


def _check_consolidation(config: Config, fail: Fail) -> None:
    if config.checkpoint.layout != _HUGGING_FACE or config.checkpoint.ranks != "all":
        fail(
            ["checkpoint.consolidate", _LAYOUT, "checkpoint.ranks"],
            "whole files are made of the parts of ranks, which only this layout saves",
            "set checkpoint.layout=safetensors and checkpoint.ranks=all, or checkpoint.consolidate=false",
        )


def _check_parts(config: Config, fail: Fail) -> None:
    if config.checkpoint.ranks == "all" and config.parallel.zero == 3:
        fail(
            ["checkpoint.ranks", "parallel.zero"],
            "the parts of ZeRO 3 are pieces of rows, which the files cannot describe",
            "set checkpoint.ranks=first, or parallel.zero=0 with parallel.fsdp=full",
        )


def _check_torch_save(config: Config, fail: Fail) -> None:
    """Refuse a state that a model and a size describe at once, or none of them."""
    if config.model.described and config.checkpoint.state_bytes:
        fail(
            ["checkpoint.state_bytes", "model.hidden_size"],
            "the state has the size that the described model gives it, and cannot have another one",
            "set checkpoint.state_bytes=0, or model.hidden_size=0 and the other sizes of model likewise",
        )
    if not config.model.described and not config.checkpoint.state_bytes:
        fail(
            [_LAYOUT, "checkpoint.state_bytes"],
            "the checkpoint has a state of 0 bytes",
            "set the size of the state, for example checkpoint.state_bytes=100MiB, or describe a model (group model)",
        )


def _check_whole(config: Config, fail: Fail) -> None:
    """Refuse to restore a part of a checkpoint that has none."""
    if config.checkpoint.restore_part == "model":
        fail(
            ["checkpoint.restore_part", _LAYOUT],
            "only the checkpoint of a described model has parts",
            "set checkpoint.restore_part=all, or describe a model (group model)",
        )


def _check_described(config: Config, fail: Fail) -> None:
    if not config.model.described:
        fail(
            [_LAYOUT, "model.hidden_size"],
            "this layout saves the state of a model, but none is described",
            "set the options of model, or checkpoint.layout=torch_save with checkpoint.state_bytes",
        )


def _check_deepspeed(config: Config, fail: Fail) -> None:
    if config.parallel.fsdp != "none":
        fail(
            [_LAYOUT, "parallel.fsdp"],
            "DeepSpeed divides the state by ZeRO, not by FSDP",
            "set parallel.fsdp=none and parallel.zero=3, or checkpoint.layout=torch_save",
        )
    if config.model.num_experts:
        fail(
            [_LAYOUT, "model.num_experts"],
            "DeepSpeed saves each expert in a file of its own, which this layout does not write",
            "set model.num_experts=0, or checkpoint.layout=torch_save",
        )
