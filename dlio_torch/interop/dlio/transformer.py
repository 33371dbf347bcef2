"""DLIO's transformer as the groups ``model`` and ``parallel``: the job whose state the checkpoints hold.

DLIO counts the same parameters (``get_num_parameters``) and numbers the layers of the same stages.  Three tensors of
the optimizer for each group of parameters are Adam's two moments and the master weights.
"""

from __future__ import annotations

import math

from dlio_torch.checkpoint.job.parameters import parameters
from dlio_torch.checkpoint.job.saved_state import ELEMENT_BYTES, optimizer_states
from dlio_torch.config.check import ConfigCheck
from dlio_torch.config.layers import Stack
from dlio_torch.config.schema import Config
from dlio_torch.config.validate_model import check_model
from dlio_torch.errors import ConfigError
from dlio_torch.interop.dlio.model import ModelShape
from dlio_torch.interop.dlio.recipe import Recipe
from dlio_torch.interop.dlio.workload import WorkloadFile
from dlio_torch.interop.dlio.workload_values import Value
from dlio_torch.units import counted

LAYOUT = "megatron_deepspeed"
"""The layout whose files DLIO imitates."""

_DEFAULTS = {
    "vocab_size": 32000,
    "hidden_size": 2048,
    "ffn_hidden_size": 8192,
    "num_attention_heads": 32,
    "num_kv_heads": 8,
}
_DATA_TYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}


def width(work: WorkloadFile, name: str) -> Value[int]:
    """Reads a size of the transformer, such as ``hidden_size``."""
    keys = (f"{section}.{name}" for section in ("model.transformer", "transformer"))
    return work.integer(*keys, default=_DEFAULTS[name], minimum=1)


def job(work: WorkloadFile, recipe: Recipe, shape: ModelShape, ranks: int) -> bool:
    """Converts a transformer; returns whether it could, otherwise the reason is among the differences.

    Args:
        work: the workload.
        recipe: gets the groups ``model`` and ``parallel``, and the layout.
        shape: the model and its ranks, complete.
        ranks: ranks of the run; fewer than the model needs save the state of the first ones; 0: all.
    """
    settings = _settings(work, shape)
    try:
        config = _config(settings)
    except ConfigError as error:
        recipe.differs(f"{error.message}; so the recipe saves files of DLIO's sizes, and no tensors")
        return False
    for key, value in settings.items():
        recipe.set(key, value)
    recipe.set("checkpoint.layout", LAYOUT, "the files whose sizes DLIO computes")
    _world(work, recipe, shape, ranks)
    _differences(recipe, config, shape)
    return True


def _settings(work: WorkloadFile, shape: ModelShape) -> dict[str, Value[int | str | bool]]:
    """Options of the recipe with their origins."""
    three = "three tensors of the optimizer"
    master = shape.optimizer_datatype == "fp32"
    sizes = {f"model.{name.replace('_attention', '')}": width(work, name) for name in _DEFAULTS}
    return {
        **{key: Value(size.value, size.origin) for key, size in sizes.items()},
        "model.num_layers": Value(shape.num_layers, "model.num_layers"),
        "model.dtype": Value(_data_type(shape.model_datatype), "model.model_datatype"),
        "model.optimizer_states": Value(2 if master else 3, f"{three}{', with master weights' if master else ''}"),
        "model.optimizer_dtype": Value(_data_type(shape.optimizer_datatype), "model.optimizer_datatype"),
        "model.master_weights": Value(master, three),
        "parallel.tensor": Value(shape.tensor, "model.parallelism.tensor"),
        "parallel.pipeline": Value(shape.pipeline, "model.parallelism.pipeline"),
        "parallel.data": Value(shape.data, "model.parallelism.data, or ranks / (tensor x pipeline)"),
        "parallel.zero": Value(shape.zero_stage, "model.parallelism.zero_stage"),
    }


def _data_type(name: str) -> str:
    """The name of an element type in a recipe; one that a recipe does not have keeps its name, and is refused."""
    return _DATA_TYPES.get(name, name)


def _config(settings: dict[str, Value[int | str | bool]]) -> Config:
    """Builds the configuration of the job.

    Raises:
        ConfigError: a value that a recipe does not take, or ranks that do not divide the model.
    """
    tree: dict[str, dict[str, int | str | bool]] = {"model": {}, "parallel": {}}
    for key, value in settings.items():
        group, _, name = key.partition(".")
        tree[group][name] = value.value
    stack = Stack()
    stack.add(tree, lambda path: "the workload")
    config = stack.build()
    check_model(config, ConfigCheck(config, {key: value.origin for key, value in settings.items()}).fail)
    return config


def _world(work: WorkloadFile, recipe: Recipe, shape: ModelShape, ranks: int) -> None:
    """Sets the number of ranks: those of the job, or fewer, which save a part of it."""
    mode = work.choice("checkpoint.mode", choices=("default", "subset"), default="default")
    if 0 < ranks < shape.ranks:
        recipe.set("system.world_size", ranks, f"the first of the job's {shape.ranks} ranks, checkpoint.mode: subset")
        if ranks > shape.tensor and shape.pipeline > 1 and shape.data > 1:
            recipe.differs(
                "after the tensor-parallel ranks DLIO numbers pipeline stages before data-parallel ranks, the recipe "
                f"data-parallel ranks first, so the first {ranks} ranks hold other parts of the model"
            )
    elif shape.ranks > 1:
        recipe.set("system.world_size", shape.ranks, "tensor x pipeline x data parallelism")
        if mode.value == "subset":
            work.note(mode.origin, "import with --ranks=N for the number of ranks that save")


def _differences(recipe: Recipe, config: Config, shape: ModelShape) -> None:
    """Notes where the bytes of DLIO's formulas are others, and that it saves no tensors."""
    weights, optimizer = _saved_bytes(config)
    dlio_weights, dlio_optimizer = shape.saved_bytes()
    rounding = "DLIO rounds the width of a head, and the part of each matrix on a rank, down"
    for name, size, dlio, reason in (
        ("weights", weights, dlio_weights, rounding),
        (
            "the optimizer",
            optimizer,
            dlio_optimizer,
            f"DLIO divides the parameters equally among {counted(shape.savers(), 'rank')}, counts norms once, and adds "
            "15 x hidden_size numbers on each; the recipe's ranks hold the parameters of their stage, and whole norms",
        ),
    ):
        if size != dlio:
            recipe.differs(f"all tensors of {name} have {size} bytes, {size - dlio:+d} to DLIO's {dlio}: {reason}")
    recipe.differs(
        "DLIO saves bytes that stand for tensors, a single one for each group of the optimizer; the recipe saves named "
        "tensors through torch.save, and verifies them when it reads them"
    )


def _saved_bytes(config: Config) -> tuple[int, int]:
    """Bytes of the tensors in all files: weights, and optimizer; each tensor-parallel rank has whole norms."""
    model, tensor = config.model, config.parallel.tensor
    elements = sum(
        math.prod(parameter.shape) * (tensor if parameter.split is None else 1) for parameter in parameters(model)
    )
    states = sum(ELEMENT_BYTES[dtype] for _, dtype in optimizer_states(model))
    return elements * ELEMENT_BYTES[model.dtype], elements * states
