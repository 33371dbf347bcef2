"""DLIO's ``train``, ``evaluation``, ``metric``, ``output`` and ``profiling`` -> ``train``, ``compute`` and the rest."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlio_torch.interop.dlio.recipe import Recipe
from dlio_torch.interop.dlio.workload import WorkloadFile


@dataclass(frozen=True)
class Duration:
    """A time in DLIO: a number, or a distribution (docs/source/config.rst, "Time Configuration").

    Attributes:
        mean: mean, in seconds.
        stdev: standard deviation, in seconds; 0 where it follows from the distribution.
        kind: distribution, a choice of ``compute.distribution``.
        origin: keys that it came from.
        given: whether the file has it.
        spread: keys that say how it varies.
    """

    mean: float
    stdev: float
    kind: str
    origin: str
    given: bool
    spread: tuple[str, ...] = ()


def duration(work: WorkloadFile, key: str) -> Duration:
    """Reads the time at ``key``, which is a number or a group, and ``<key>_stdev``."""
    parts = tuple(f"{key}.{part}" for part in ("type", "stdev", "mean", "min", "max", "shape", "scale", "lam"))
    if not work.is_group(key):
        time, spread = work.number(key), work.number(f"{key}_stdev")
        origin = f"{time.origin}, {spread.origin}" if spread.value else time.origin
        shown = "normal" if spread.value and time.value else "constant"
        if spread.value and not time.value:
            work.note(spread.origin, "a standard deviation without a mean")
        wide = spread.value if shown == "normal" else 0.0
        return Duration(time.value, wide, shown, origin, time.given, (f"{key}_stdev",))
    kind = work.choice(
        f"{key}.type", choices=("normal", "uniform", "gamma", "exponential", "poisson"), default="normal"
    ).value
    if kind == "uniform":
        low, high = work.number(f"{key}.min").value, work.number(f"{key}.max").value
        if high < low:
            raise work.wrong(f"{key}.max", f"{high:g}", f"must be at least {key}.min", f"write {low:g} or more")
        # A hair less than the exact spread, which rounding could put beyond what a mean of this size permits.
        mean, stdev = (low + high) / 2, (high - low) / math.sqrt(12) * (1 - 1e-9)
    elif kind == "gamma":
        shape, scale = work.number(f"{key}.shape").value, work.number(f"{key}.scale").value
        mean, stdev = shape * scale, math.sqrt(shape) * scale
    elif kind == "exponential":
        mean, stdev = work.number(f"{key}.scale").value, 0.0
    elif kind == "poisson":
        mean = work.number(f"{key}.lam").value
        stdev, kind = math.sqrt(mean), "normal"
        work.note(
            f"{key}.type",
            ("a normal distribution with the same mean and standard deviation replaces the Poisson distribution"),
        )
    else:
        mean = work.number(f"{key}.mean").value
        stdev = work.number(f"{key}.stdev", f"{key}_stdev").value
        kind = "normal" if stdev else "constant"
    for part in parts:
        work.dismiss(part, f"this key does not belong to a distribution of type {kind}")
    if not mean:
        kind, stdev = "constant", 0.0
    return Duration(mean, stdev, kind, key, True, (*parts[:2], f"{key}_stdev"))


def training(work: WorkloadFile, recipe: Recipe) -> None:
    """Converts the options of training, without checkpoints."""
    epochs = work.integer("train.epochs", default=1, minimum=1)
    recipe.set("train.epochs", epochs)
    steps = work.integer("train.total_training_steps", default=-1, minimum=-1)
    if steps.value > 0:
        recipe.set("train.steps", steps, f"{steps.origin}: steps per epoch, as DLIO counts them")
    recipe.set("train.batch_size", work.integer("reader.batch_size", default=1, minimum=1))
    recipe.set("train.batch_scope", "rank", "DLIO's batch is the batch of one rank")
    skipped = work.integer("output.metric.exclude_start_steps", default=1)
    if skipped.given:
        recipe.set("train.warmup_steps", skipped)
    goal = work.number("metric.au")
    if goal.given:
        if goal.value > 1:
            raise work.wrong(goal.origin, f"{goal.value:g}", "a utilisation is between 0 and 1", "write 0.9 for 90 %")
        recipe.set("train.min_au", goal)
    step = duration(work, "train.computation_time")
    recipe.set("compute.mode", "sleep", "DLIO sleeps")
    recipe.set("compute.step_s", step.mean, step.origin)
    if step.kind != "constant":
        recipe.set("compute.distribution", step.kind, step.origin)
        if step.stdev:
            recipe.set("compute.stdev_s", step.stdev, step.origin)
    each = duration(work, "reader.preprocess_time")
    if each.given:
        recipe.set("compute.preprocess_s", each.mean, each.origin)
    if each.kind != "constant":
        for key in each.spread:
            work.note(key, "every sample takes the mean preprocessing time")
    _evaluation(work, recipe, epochs.value)


def outputs(work: WorkloadFile, recipe: Recipe) -> None:
    """Converts the folders of results and recordings."""
    folder = work.text("output.folder")
    if folder.given:
        recipe.set("output.root", folder)
    on = work.flag("workflow.profiling")
    kind = work.text("profiling.profiler", default="none")
    if on.value and kind.value == "tensorboard":
        recipe.set("trace.profiler", True, f"{on.origin}, {kind.origin}")
    elif on.value:
        work.note(kind.origin, f"run {kind.value} alongside dlio_torch")
        work.note(on.origin, "dlio_torch records its own spans")
    elif kind.given and kind.value != "none":
        work.note(kind.origin, "workflow.profiling is off, so DLIO does not start the profiler")
    makers = work.integer("generator.num_workers")
    if makers.given:
        recipe.set("generate.num_workers", makers)


def interval(first: int, between: int, epochs: int) -> tuple[int, bool]:
    """Converts "after epochs ``first``, ``first + between``, ..." to "after every n-th epoch".

    Returns:
        n, and whether that gives the same epochs out of ``epochs``; 0 if it never happens.
    """
    wanted = range(first, epochs + 1, max(1, between))
    if not wanted:
        return 0, True
    # Either the first of them is the only one, or they are the multiples of the distance.
    every = first if len(wanted) == 1 else max(1, between)
    return every, range(every, epochs + 1, every) == wanted


def _evaluation(work: WorkloadFile, recipe: Recipe, epochs: int) -> None:
    on = work.flag("workflow.evaluation")
    if not on.value:
        work.dismiss("evaluation", "workflow.evaluation is off")
        work.dismiss("reader.batch_size_eval", "workflow.evaluation is off")
        return
    if not recipe.get("dataset.num_files_eval"):
        work.note("workflow.evaluation", "dataset.num_files_eval is 0: there are no data for an evaluation")
        work.dismiss("evaluation", "dataset.num_files_eval is 0")
        work.dismiss("reader.batch_size_eval", "dataset.num_files_eval is 0")
        return
    first = work.integer("evaluation.eval_after_epoch", default=1, minimum=1)
    between = work.integer("evaluation.epochs_between_evals", default=1)
    every, same = interval(first.value, between.value, epochs)
    recipe.set("train.eval_every_epochs", every, f"{on.origin}, {between.origin}")
    if not same:
        work.note(first.origin, f"evaluations follow every {every}. epoch, from epoch {every} on")
    recipe.set("train.eval_batch_size", work.integer("reader.batch_size_eval", default=1, minimum=1))
    step = duration(work, "evaluation.eval_time")
    recipe.set("compute.eval_step_s", step.mean, step.origin)
    if step.kind != "constant":
        for key in step.spread:
            work.note(key, "every evaluation step takes the mean time")
