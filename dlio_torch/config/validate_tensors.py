"""Checks of a checkpoint that is described by a list of tensors."""

from __future__ import annotations

from dlio_torch.config.check import Fail
from dlio_torch.config.schema import CheckpointTensorConfig, Config

_OF_TENSORS = ("torch_save", "dcp")


def check_tensors(config: Config, fail: Fail) -> None:
    """Refuse tensors that the layout does not save, beside another description of the state, or of no shape.

    Args:
        config: a complete configuration.
        fail: raises the error; called with keys, problem and way out.

    Raises:
        ConfigError: naming the keys, their values and what to change.
    """
    if config.checkpoint.layout not in _OF_TENSORS:
        fail(
            ["checkpoint.tensors", "checkpoint.layout"],
            "this layout saves no list of tensors",
            "set checkpoint.layout=torch_save or dcp, or checkpoint.tensors=[]",
        )
    if config.model.described or config.checkpoint.state_bytes:
        other = "model.hidden_size" if config.model.described else "checkpoint.state_bytes"
        fail(
            ["checkpoint.tensors", other],
            "both describe the state that is saved",
            f"set {other}=0, or checkpoint.tensors=[]",
        )
    if config.checkpoint.restore_part == "model":
        fail(
            ["checkpoint.restore_part", "checkpoint.tensors"],
            "only the checkpoint of a described model has parts",
            "set checkpoint.restore_part=all, or describe a model (group model)",
        )
    for number, tensor in enumerate(config.checkpoint.tensors):
        _check_tensor(f"checkpoint.tensors.{number}", tensor, fail)


def _check_tensor(key: str, tensor: CheckpointTensorConfig, fail: Fail) -> None:
    if not tensor.name:
        fail([f"{key}.name"], "the tensor has no name", f"set {key}.name=weight")
    if any(size < 0 for size in tensor.shape):
        fail([f"{key}.shape"], "a number of elements is negative", f"set {key}.shape=[16, 16]")
    if tensor.dtype == "object" and len(tensor.shape) != 1:
        fail(
            [f"{key}.shape", f"{key}.dtype"],
            "the shape of a value that is no tensor is the number of its bytes",
            f"set {key}.shape=[8]",
        )
