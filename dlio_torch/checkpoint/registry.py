"""Registry of checkpoint layouts; the table holds strings so that a layout costs nothing until it is used."""

from __future__ import annotations

import importlib

from dlio_torch.checkpoint.base import Layout

BUILTIN: dict[str, str] = {
    "files": "dlio_torch.checkpoint.layouts.plain_files.layout:FilesLayout",
    "torch_save": "dlio_torch.checkpoint.layouts.plain_files.layout:TorchSaveLayout",
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
