"""Files that DeepSpeed saves on each rank of a job, with their names and tensors.

Names and content are those of DeepSpeed 0.19 (``DeepSpeedEngine._save_checkpoint`` and ``_save_zero_checkpoint``,
``PipelineModule.save_state_dict``, ``state_dict`` of its ZeRO optimizers).  Which rank saves which tensors is as in
the checkpoints of MLPerf Storage (DLIO's ``BaseCheckpointing``), which differ in two points: with ZeRO 3 the file of
the model holds this rank's part of the 16-bit weights, and with pipeline stages there is no
``mp_rank_<mm>_model_states.pt`` beside the files of the layers, in which DeepSpeed saves no tensor.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from dlio_torch.checkpoint.job.parameters import EMBEDDING, Parameter, parameters
from dlio_torch.checkpoint.job.ranks import RankPlace, place
from dlio_torch.checkpoint.job.saved_state import (
    MASTER,
    StateTensor,
    rank_optimizer,
    rank_weights,
)
from dlio_torch.checkpoint.layouts.described_state.optimizer_content import optimizer_content, state_groups
from dlio_torch.checkpoint.layouts.described_state.state_file import StateFile
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig

FOLDER = "global_step{step}"
"""Folder of a checkpoint; its name is DeepSpeed's tag, which the file ``latest`` holds."""

_STEPS = "global_steps"


def saved_files(model: ModelConfig, parallel: ParallelConfig, rank: int) -> list[StateFile]:
    """Files that a rank writes, in DeepSpeed's order: the model, then the optimizer.

    Args:
        model: the model.
        parallel: ranks of the job.
        rank: number of the rank.
    """
    here = place(parallel, rank)
    writes_model = parallel.zero == 3 or here.data == 0  # the other ranks hold the same weights
    return (_model_files(model, parallel, here) if writes_model else []) + _optimizer_files(model, parallel, here)


def read_files(model: ModelConfig, parallel: ParallelConfig, rank: int) -> list[StateFile]:
    """Files that a rank reads to continue: those of the model, which all data-parallel ranks read, and its optimizer's.

    Arguments are those of :func:`saved_files`.
    """
    here = place(parallel, rank)
    return _model_files(model, parallel, here) + _optimizer_files(model, parallel, here)


def _model_files(model: ModelConfig, parallel: ParallelConfig, here: RankPlace) -> list[StateFile]:
    weights = rank_weights(model, parallel, here.rank)
    if parallel.pipeline == 1:
        return [_module_file(model, parallel, here, weights)]
    files = _layer_files(model, here, weights)
    return files if parallel.zero else [*files, _module_file(model, parallel, here, [])]


def _module_file(
    model: ModelConfig, parallel: ParallelConfig, here: RankPlace, weights: list[StateTensor]
) -> StateFile:
    """The weights of a rank; without ZeRO, DeepSpeed saves the optimizer's state in the same file."""
    optimizer = [] if parallel.zero else rank_optimizer(model, parallel, here.rank)
    prefix = f"zero_pp_rank_{here.data}_" if parallel.zero == 3 else ""
    content: dict[str, Any] = {
        "module": {weight.name: weight for weight in weights} or None,
        "optimizer": optimizer_content(state_groups(optimizer)) if optimizer else None,
        "lr_scheduler": None,
        "skipped_steps": 0,
        "dp_world_size": parallel.data,
        "mp_world_size": parallel.tensor * parallel.pipeline,
    }
    name = f"{FOLDER}/{prefix}mp_rank_{_model_rank(parallel, here):02d}_model_states.pt"
    return StateFile(name, content, optimizer_only=not weights, step_key=_STEPS)


def _layer_files(model: ModelConfig, here: RankPlace, weights: list[StateTensor]) -> list[StateFile]:
    """A file for each layer of the stage: embedding, transformer layers, final norm, head."""
    layers: dict[int, dict[str, StateTensor]] = defaultdict(dict)
    known = {parameter.name: parameter for parameter in parameters(model)}
    for weight in weights:
        layer = known[weight.name].layer
        name = weight.name if layer is None else weight.name.removeprefix(f"layers.{layer}.")
        layers[_layer_number(model, here, known[weight.name])][name] = weight
    return [
        StateFile(f"{FOLDER}/layer_{number:02d}-model_{here.tensor:02d}-model_states.pt", content)
        for number, content in sorted(layers.items())
    ]


def _layer_number(model: ModelConfig, here: RankPlace, parameter: Parameter) -> int:
    """Number of the layer in the pipeline; tied embeddings are its first layer and, in another stage, its last."""
    if parameter.layer is not None:
        return parameter.layer + 1
    if parameter.name == EMBEDDING:
        return 0 if here.pipeline == 0 else model.num_layers + 2
    return model.num_layers + (1 if parameter.name == "norm.weight" else 2)


def _optimizer_files(model: ModelConfig, parallel: ParallelConfig, here: RankPlace) -> list[StateFile]:
    """With ZeRO, the file with this rank's part of the optimizer's state."""
    groups = state_groups(rank_optimizer(model, parallel, here.rank)) if parallel.zero else []
    if not groups:
        return []
    prefix = "bf16_" if model.dtype == "bfloat16" else ""
    name = f"{prefix}zero_pp_rank_{here.data}_mp_rank_{_model_rank(parallel, here):02d}_optim_states.pt"
    content = {"optimizer_state_dict": _zero_state(parallel, groups), "ds_config": {}}
    return [StateFile(f"{FOLDER}/{name}", content, optimizer_only=True)]


def _zero_state(parallel: ParallelConfig, groups: list[dict[str, StateTensor]]) -> dict[str, Any]:
    """Optimizer's state and float32 weights of each group of parameters; their part is one row."""
    states = [{name: tensor for name, tensor in group.items() if name != MASTER} for group in groups]
    weights = [group[MASTER] for group in groups if MASTER in group]
    base = optimizer_content(states)
    names = ("optimizer_state_dict", "fp32_flat_groups")
    if parallel.zero < 3:
        names = ("base_optimizer_state", "single_partition_of_fp32_groups")
    return {"zero_stage": parallel.zero, "partition_count": parallel.data, names[0]: base, names[1]: weights}


def _model_rank(parallel: ParallelConfig, here: RankPlace) -> int:
    """Number of the rank among those that hold one copy of the model."""
    return here.pipeline * parallel.tensor + here.tensor
