"""Registry of checkpoint layouts; the table holds strings so that a layout costs nothing until it is used."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from dlio_torch.config.schema_training import OF_ALL_LAYOUTS, CheckpointConfig

if TYPE_CHECKING:
    from dlio_torch.checkpoint.base import Layout

_LAYOUTS = "dlio_torch.checkpoint.layouts"


@dataclass(frozen=True)
class LayoutEntry:
    """A layout in the table.

    Attributes:
        target: ``module:Class`` of its :class:`~dlio_torch.checkpoint.base.Layout`.
        options: options of ``checkpoint`` that it reads, without those of
            :data:`~dlio_torch.config.schema_training.OF_ALL_LAYOUTS`; others are refused.
    """

    target: str
    options: frozenset[str]


def _entry(target: str, options: str) -> LayoutEntry:
    return LayoutEntry(f"{_LAYOUTS}.{target}", frozenset(options.split()))


BUILTIN: dict[str, LayoutEntry] = {
    "files": _entry("plain_files.layout:FilesLayout", "files restore_read_bytes ranks rename"),
    "torch_save": _entry(
        "plain_files.layout:TorchSaveLayout", "state_bytes file_name tensors ranks rename restore_part"
    ),
    "dcp": _entry(
        "dcp.layout:DcpLayout",
        "async_save thread_count single_file_per_rank sync_files plan_cache use_collectives pinned_staging "
        "planned_ranks restore_ranks restore_part tensors",
    ),
    "megatron_deepspeed": _entry("megatron_deepspeed.layout:MegatronDeepSpeedLayout", "restore_part"),
    "safetensors": _entry(
        "huggingface.layout:SafetensorsLayout",
        "ranks restore_part shard_bytes consolidate consolidate_ranks consolidate_threads",
    ),
    "tensorflow": _entry("tensorflow.layout:TensorFlowLayout", "state_bytes tensorflow restore_read_bytes ranks"),
}
"""Layouts by their names in ``checkpoint.layout``."""


def layout_of(name: str) -> Layout | None:
    """The layout of a valid name; ``None`` for ``none``."""
    if name == "none":
        return None
    module, _, member = BUILTIN[name].target.partition(":")
    layout: Layout = getattr(importlib.import_module(module), member)()
    return layout


def unread_options(options: CheckpointConfig) -> dict[str, tuple[str, ...]]:
    """Options that differ from their defaults and that the chosen layout does not read.

    Returns:
        Name of each option -> names of the layouts that read it.
    """
    defaults = CheckpointConfig()
    names = [field.name for field in fields(options) if field.name not in OF_ALL_LAYOUTS]
    changed = [name for name in names if getattr(options, name) != getattr(defaults, name)]
    read = BUILTIN[options.layout].options if options.layout in BUILTIN else frozenset()
    return {name: _layouts_with(name) for name in changed if name not in read}


def _layouts_with(option: str) -> tuple[str, ...]:
    return tuple(name for name, entry in BUILTIN.items() if option in entry.options)
