"""Converts DLIO's sections ``checkpoint`` and ``model`` to ``checkpoint``."""

from __future__ import annotations

import dataclasses

from dlio_torch.interop.dlio.model import DATATYPES, ModelShape
from dlio_torch.interop.dlio.recipe import Recipe
from dlio_torch.interop.dlio.training import interval
from dlio_torch.interop.dlio.transformer import job, width
from dlio_torch.interop.dlio.workload import WorkloadFile
from dlio_torch.units import counted

_LAYERS = "the workload file gives no layers, so the model is one file of its size"


def checkpoint(work: WorkloadFile, recipe: Recipe, ranks: int = 0) -> None:
    """Converts the sections; with ``workflow.train: False`` the run consists of checkpoints only.

    Args:
        work: the workload.
        recipe: gets the settings.
        ranks: ranks of the run, from which DLIO derives data parallelism; 0: as few as the model needs.
    """
    on = work.flag("workflow.checkpoint")
    if not on.value:
        for section in ("checkpoint", "model", "transformer"):
            work.dismiss(section, "workflow.checkpoint is off")
        return
    if work.flag("workflow.train", default=True).value:
        if not _when(work, recipe):
            recipe.settings = {key: value for key, value in recipe.settings.items() if "checkpoint." not in key}
            for section in ("checkpoint", "model", "transformer"):
                work.dismiss(section, "no checkpoint is due within the epochs of the run")
            return
        for key in ("time_between_checkpoints", "num_checkpoints_write", "num_checkpoints_read", "num_checkpoints"):
            work.dismiss(f"checkpoint.{key}", "DLIO uses this key with workflow.train: False only")
    else:
        _alone(work, recipe)
    _files_of_ranks(work, recipe, ranks)
    recipe.set("checkpoint.fsync", work.flag("checkpoint.fsync"))
    recipe.set("checkpoint.keep", 0, "DLIO keeps all checkpoints")


def _when(work: WorkloadFile, recipe: Recipe) -> bool:
    """Converts the interval of checkpoints; returns whether any checkpoint is due."""
    steps = work.integer("checkpoint.steps_between_checkpoints", default=-1, minimum=-1)
    if steps.value > 0:
        recipe.set("checkpoint.every_steps", steps)
        for key in ("epochs_between_checkpoints", "checkpoint_after_epoch"):
            work.dismiss(f"checkpoint.{key}", "checkpoint.steps_between_checkpoints takes precedence")
        if recipe.get("train.epochs", 1) > 1:
            recipe.differs(
                "DLIO counts checkpoint.steps_between_checkpoints from the start of each epoch; the recipe counts "
                "from the start of the run"
            )
        return True
    first = work.integer("checkpoint.checkpoint_after_epoch", default=1, minimum=1)
    between = work.integer("checkpoint.epochs_between_checkpoints", default=1)
    every, same = interval(first.value, between.value, recipe.get("train.epochs", 1))
    if not every:
        for value in (first, between):
            work.note(value.origin, "no checkpoint is due within the epochs of the run")
        return False
    recipe.set("checkpoint.every_epochs", every, f"{first.origin}, {between.origin}")
    if not same:
        work.note(first.origin, f"checkpoints follow every {every}. epoch, from epoch {every} on")
    return True


def _alone(work: WorkloadFile, recipe: Recipe) -> None:
    """Converts checkpoints without training: a step is the time between two checkpoints, and reads nothing."""
    wanted = work.integer("checkpoint.num_checkpoints_write", "checkpoint.num_checkpoints", default=-1, minimum=-1)
    count = max(1, wanted.value)
    if wanted.value < 1:
        recipe.differs(f"{wanted.origin} is -1, so DLIO writes no checkpoint; the recipe writes one")
    why = "workflow.train is False, so no data are read"
    for key, value in (
        ("dataset.format", "synthetic"),
        ("dataset.num_files", 1),
        ("dataset.samples_per_file", count),
        ("dataset.fields", [{"name": "data", "dtype": "uint8", "shape": [1], "origin": why}]),
        ("access.partition", "none"),
        ("loader.num_workers", 0),
        ("train.epochs", 1),
        ("train.batch_size", 1),
        ("train.batch_scope", "rank"),
        ("train.warmup_steps", 0),
    ):
        recipe.set(key, value, why)
    recipe.set("train.steps", count, f"{wanted.origin}: one checkpoint per step")
    pause = work.number("checkpoint.time_between_checkpoints", default=-1, minimum=-1)
    recipe.set("compute.mode", "sleep", "DLIO sleeps")
    recipe.set("compute.step_s", max(0.0, pause.value), pause.origin)
    recipe.set("checkpoint.every_steps", 1, "a step is the time between two checkpoints")
    reads = work.integer("checkpoint.num_checkpoints_read", default=-1, minimum=-1)
    recipe.words = ("checkpoint", f"saves={count}", f"loads={max(0, reads.value)}")
    if reads.value > 0:
        recipe.set("checkpoint.restore", True, reads.origin)
        recipe.differs(
            "the verb `run` reads one checkpoint, before the first step; DLIO and the verb `checkpoint` read after the "
            "last write"
        )
    for key in ("steps_between_checkpoints", "epochs_between_checkpoints", "checkpoint_after_epoch"):
        work.dismiss(f"checkpoint.{key}", "DLIO does not use this key with workflow.train: False")


def _files_of_ranks(work: WorkloadFile, recipe: Recipe, ranks: int) -> None:
    size = work.integer("model.model_size_bytes", "model.model_size", "checkpoint.model_size", default=10240)
    kind = work.text("model.type").value.strip().lower()
    model = _model(work, size.value)
    layered = bool(model.num_layers or model.optimization_groups)
    model = _with_data_ranks(work, recipe, model, ranks, layered)
    transformer = kind == "transformer" and layered
    if transformer and size.given:
        work.note(size.origin, "model.type is transformer, so its layers define the size")
    place = work.choice("checkpoint.type", choices=("rank_zero", "all_ranks", "independent"), default="rank_zero")
    files = model.files(transformer)
    if not layered:
        for key in ("model.parallelism", "model.transformer", "transformer", "model.layer_parameters"):
            work.dismiss(key, _LAYERS)
        every = place.value != "rank_zero"
        recipe.set("checkpoint.ranks", "all" if every else "first", place.origin)
        if work.text("framework").value == "tensorflow":
            recipe.set("checkpoint.layout", "files", "tf.train.Checkpoint")
            name = "model_states-{step}.data-00000-of-00001"
            recipe.set("checkpoint.files", [{"name": name, "bytes": size.value, "origin": size.origin}], size.origin)
        else:
            recipe.set("checkpoint.layout", "torch_save", "torch.save")
            recipe.set("checkpoint.state_bytes", max(1, size.value), size.origin)
        return
    if place.given:
        work.note(place.origin, "model.parallelism defines which ranks save which files")
    if transformer and _by_formula(work, model) and job(work, recipe, model, ranks):
        return
    recipe.set("checkpoint.layout", "files", "files of a rank, from model and its parallelism")
    recipe.set("checkpoint.ranks", "all" if model.savers() > 1 else "first", f"{model.savers()} ranks save")
    origin = "model.num_layers, model.transformer, model.parallelism"
    if model.layer_parameters or model.optimization_groups:
        origin = "layer_parameters, optimization_groups, num_layers, parallelism"
    names = [{"name": f"{part.name}-{{step}}.pt", "bytes": part.size, "origin": origin} for part in files]
    recipe.set("checkpoint.files", names, "computed as in DLIO's base_checkpointing.py")
    if model.ranks > 1:
        recipe.set("system.world_size", model.ranks, "tensor x pipeline x data parallelism")
        if not model.even():
            recipe.differs(
                "ranks save different layers in DLIO; in the recipe each rank saves the mean, so the sum is the same"
            )
        if model.savers() < model.ranks:
            recipe.differs(f"without ZeRO, only {model.savers()} of {model.ranks} ranks save in DLIO")


def _by_formula(work: WorkloadFile, model: ModelShape) -> bool:
    """Whether the sizes follow from the transformer, and torch saves them."""
    listed = model.layer_parameters or model.optimization_groups
    return not listed and work.text("framework").value != "tensorflow"


def _with_data_ranks(work: WorkloadFile, recipe: Recipe, model: ModelShape, ranks: int, layered: bool) -> ModelShape:
    """The model with the data-parallel degree that follows from the number of ranks."""
    product = model.tensor * model.pipeline
    if ranks > product * model.data:
        groups, rest = divmod(ranks, product)
        if rest:
            raise work.wrong(
                "model.parallelism",
                f"tensor {model.tensor} x pipeline {model.pipeline}",
                f"this product does not divide the {ranks} ranks",
                f"set --ranks to a multiple of {product}",
            )
        if model.data:
            work.note(
                "model.parallelism.data",
                f"the recipe divides the model among {ranks} ranks; with these ranks and this degree, DLIO saves parts "
                "of the model several times",
            )
        return dataclasses.replace(model, data=groups)
    if layered and not model.data:
        recipe.differs(
            "model.parallelism.data is not given, and DLIO derives it from the number of ranks; the sizes are those "
            f"of {counted(product, 'rank')}; import with --ranks=N for other numbers"
        )
    return dataclasses.replace(model, data=max(1, model.data))


def _model(work: WorkloadFile, size: int) -> ModelShape:
    """Reads DLIO's description of the model; ``data`` is 0 if the file does not give it."""

    def whole(*keys: str, default: int, minimum: int = 1) -> int:
        return work.integer(*keys, default=default, minimum=minimum).value

    # A transformer's own number of layers, in old files beside another one, is that of the model.
    layers = whole("transformer.num_layers", "model.transformer.num_layers", default=-1, minimum=-1)
    outer = whole("model.num_layers", "checkpoint.num_layers", default=-1, minimum=-1)
    kinds = {"choices": DATATYPES}
    model = ModelShape(
        size=size,
        num_layers=max(0, layers if layers > 0 else outer),
        layer_parameters=tuple(work.integers("model.layer_parameters", "checkpoint.layer_parameters").value),
        optimization_groups=tuple(work.integers("model.optimization_groups", "checkpoint.optimization_groups").value),
        vocab_size=width(work, "vocab_size").value,
        hidden_size=width(work, "hidden_size").value,
        ffn_hidden_size=width(work, "ffn_hidden_size").value,
        num_attention_heads=width(work, "num_attention_heads").value,
        num_kv_heads=width(work, "num_kv_heads").value,
        model_datatype=work.choice("model.model_datatype", "checkpoint.model_datatype", default="fp16", **kinds).value,
        optimizer_datatype=work.choice(
            "model.optimizer_datatype", "checkpoint.optimizer_datatype", default="fp32", **kinds
        ).value,
        tensor=whole(
            "model.parallelism.tensor", "model.tensor_parallelism", "checkpoint.tensor_parallelism", default=1
        ),
        pipeline=whole(
            "model.parallelism.pipeline", "model.pipeline_parallelism", "checkpoint.pipeline_parallelism", default=1
        ),
        data=max(0, whole("model.parallelism.data", default=-1, minimum=-1)),
        zero_stage=whole("model.parallelism.zero_stage", "model.zero_stage", default=0, minimum=0),
    )
    if model.num_layers > 4096 or model.tensor * model.pipeline * max(1, model.data) > 1 << 20:
        raise work.wrong(
            "model", model.num_layers, "more layers or ranks than any model has", ("write a number of at most 4096")
        )
    if model.pipeline > max(1, model.num_layers) or (model.zero_stage == 3 and model.pipeline > 1):
        raise work.wrong(
            "model.parallelism.pipeline",
            model.pipeline,
            "a pipeline stage needs a layer, and ZeRO stage 3 allows no pipeline stages",
            "write pipeline: 1",
        )
    return model
