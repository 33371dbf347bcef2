"""Files of weights in Hugging Face's layout: which tensors each of them has, and its name.

Whole weights are cut into files as ``save_pretrained`` does (huggingface_hub, ``split_torch_state_dict_into_shards``);
parts of ranks have the names of PyTorch's ``HuggingFaceStorageWriter``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from dlio_torch.checkpoint.job.saved_state import StateTensor, rank_weights
from dlio_torch.checkpoint.layouts.described_state.state_file import StateFile
from dlio_torch.config.schema import Config
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig

FOLDER = "checkpoint-{step}"
"""Folder of a checkpoint, as transformers' ``Trainer`` names it."""

INDEX = f"{FOLDER}/model.safetensors.index.json"
"""File that says which tensor is in which file; it is written last."""

SHARDED = "sharded"
"""Folder of the parts of ranks from which whole files are made."""


def saved_files(config: Config, rank: int) -> list[StateFile]:
    """Files that a rank writes: the whole weights, or its part of them.

    Args:
        config: the experiment.
        rank: number of the rank.
    """
    return _parts(config, rank) if config.checkpoint.ranks == "all" else whole_files(config)


def whole_files(config: Config) -> list[StateFile]:
    """Files with the whole weights; one file has no number, unless it is made of the parts of ranks."""
    groups = split(_whole(config.model), config.checkpoint.shard_bytes)
    if len(groups) == 1 and not config.checkpoint.consolidate:
        names = ["model.safetensors"]
    else:
        names = [f"model-{number:05d}-of-{len(groups):05d}.safetensors" for number in range(1, len(groups) + 1)]
    return [_file(f"{FOLDER}/{name}", group) for name, group in zip(names, groups, strict=True)]


def file_numbers(config: Config) -> dict[str, int]:
    """Number of the file of each tensor, from 1."""
    groups = split(_whole(config.model), config.checkpoint.shard_bytes)
    return {tensor.name: number for number, group in enumerate(groups, 1) for tensor in group}


def has_index(config: Config) -> bool:
    """Whether a checkpoint has an index: if it has several whole files, or such that were made of parts."""
    if config.checkpoint.ranks == "all":
        return config.checkpoint.consolidate
    return len(whole_files(config)) > 1


def split(tensors: Sequence[StateTensor], limit: int) -> list[list[StateTensor]]:
    """Groups of consecutive tensors of at most ``limit`` bytes; a larger tensor is a group of its own.

    Args:
        tensors: in the order of the model.
        limit: bytes of a file.
    """
    groups: list[list[StateTensor]] = []
    current: list[StateTensor] = []
    for tensor in tensors:
        if tensor.bytes > limit:
            groups.append([tensor])
            continue
        if sum(other.bytes for other in current) + tensor.bytes > limit:
            groups.append(current)
            current = []
        current.append(tensor)
    return [*groups, current] if current else groups


def _whole(model: ModelConfig) -> list[StateTensor]:
    return rank_weights(model, ParallelConfig(), 0)


def _parts(config: Config, rank: int) -> list[StateFile]:
    """Files of a rank's part; a block that several ranks hold is saved by one of them."""
    numbers, parts = file_numbers(config), defaultdict(list)
    for tensor in rank_weights(config.model, config.parallel, rank):
        if tensor.replica == 0 and tensor.bytes:
            parts[numbers[tensor.name]].append(tensor)
    folder, count = f"{FOLDER}/{SHARDED}" if config.checkpoint.consolidate else FOLDER, max(numbers.values())
    return [
        _file(f"{folder}/shard-{rank + 1:05d}-model-{number:05d}-of-{count:05d}.safetensors", tensors)
        for number, tensors in sorted(parts.items())
    ]


def _file(name: str, tensors: Sequence[StateTensor]) -> StateFile:
    return StateFile(name, {tensor.name: tensor for tensor in tensors})
