"""Registry of checkpoint layouts; the table holds strings so that a layout costs nothing until it is used."""

from __future__ import annotations

import importlib
from dataclasses import fields

from dlio_torch.checkpoint.base import COMMON_OPTIONS, Layout
from dlio_torch.config.schema import CheckpointConfig

BUILTIN: dict[str, str] = {
    "files": "dlio_torch.checkpoint.layouts.plain_files.layout:FilesLayout",
    "torch_save": "dlio_torch.checkpoint.layouts.plain_files.layout:TorchSaveLayout",
    "dcp": "dlio_torch.checkpoint.layouts.dcp.layout:DcpLayout",
    "megatron_deepspeed": "dlio_torch.checkpoint.layouts.megatron_deepspeed.layout:MegatronDeepSpeedLayout",
    "safetensors": "dlio_torch.checkpoint.layouts.huggingface.layout:SafetensorsLayout",
    "tensorflow": "dlio_torch.checkpoint.layouts.tensorflow.layout:TensorFlowLayout",
}
"""Layout -> class."""


def layout_of(name: str) -> Layout | None:
    """The layout of a valid name; ``None`` for ``none``."""
    if name == "none":
        return None
    module, _, member = BUILTIN[name].partition(":")
    layout: Layout = getattr(importlib.import_module(module), member)()
    return layout


def unread_options(options: CheckpointConfig) -> dict[str, tuple[str, ...]]:
    """Options that differ from their defaults and that the chosen layout does not read.

    Returns:
        Name of each option -> names of the layouts that read it.
    """
    defaults = CheckpointConfig()
    names = [field.name for field in fields(options) if field.name not in COMMON_OPTIONS]
    changed = [name for name in names if getattr(options, name) != getattr(defaults, name)]
    layout = layout_of(options.layout) if changed else None
    read = frozenset() if layout is None else layout.options
    return {name: _layouts_with(name) for name in changed if name not in read}


def _layouts_with(option: str) -> tuple[str, ...]:
    layouts = ((name, layout_of(name)) for name in BUILTIN)
    return tuple(name for name, layout in layouts if layout is not None and option in layout.options)
