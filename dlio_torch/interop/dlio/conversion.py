"""Converts one workload file to the text of a recipe, with a report on its keys."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from dlio_torch.config.layers import Stack
from dlio_torch.config.resources import Resources
from dlio_torch.config.scaling import data_steps
from dlio_torch.config.schema import Config
from dlio_torch.config.validate import check_world, validate
from dlio_torch.config.yamlfile import Document, parse_document
from dlio_torch.errors import ConfigError
from dlio_torch.interop.dlio.checkpoint import checkpoint
from dlio_torch.interop.dlio.dataset import dataset
from dlio_torch.interop.dlio.loading import loading
from dlio_torch.interop.dlio.recipe import Recipe, comment
from dlio_torch.interop.dlio.scales import scales
from dlio_torch.interop.dlio.training import outputs, training
from dlio_torch.interop.dlio.workload import WorkloadFile
from dlio_torch.interop.dlio.workload_values import UnusedKey
from dlio_torch.units import counted


@dataclass(frozen=True)
class Converted:
    """A recipe converted from a workload file.

    Attributes:
        text: the recipe, each line with a comment that names the key it came from, and below it all keys that
            it does not hold.
        mapped: number of keys of the file that the recipe honours.
        not_honoured: keys that it does not, or not as they stand, and why.
        unknown: keys that DLIO does not have.
        differences: differences between DLIO and the recipe that belong to no single key.
        words: verb and arguments that do with the recipe what the workload does; empty: the verb ``run``.
        ranks: number of ranks that the recipe is for.
    """

    text: str
    mapped: int
    not_honoured: tuple[UnusedKey, ...]
    unknown: tuple[UnusedKey, ...]
    differences: tuple[str, ...]
    words: tuple[str, ...] = ()
    ranks: int = 1

    def command(self, path: str) -> str:
        """The command that runs the recipe at ``path``."""
        name = path if "/" in path else f"./{path}"
        verb, *arguments = self.words or ("run",)
        return " ".join(["python -m dlio_torch", verb, f"recipe={name}", *arguments])

    def report(self) -> list[str]:
        """Lines about keys and behaviour of the workload that the recipe does not reproduce."""
        return [
            *(f"not honoured: {item}" for item in self.not_honoured),
            *(f"unknown: {item}" for item in self.unknown),
            *(f"differs from DLIO: {text}" for text in self.differences),
        ]


def convert(document: Document, places: Resources, *, strict: bool = False, ranks: int = 0) -> Converted:
    """Converts a workload file to a recipe.

    Args:
        document: the parsed file.
        places: where the scales are, to which the recipe adds blocks.
        strict: refuse keys that DLIO does not have.
        ranks: ranks of the run, where the size of a checkpoint depends on them; 0: as the file says.

    Raises:
        ConfigError: a value that DLIO does not take, or with ``strict`` an unknown key.
    """
    work, recipe = WorkloadFile(document), Recipe()
    name = work.text("model.name") if work.is_group("model") else work.text("model", default="default")
    kind = work.text("model.type").value
    model_name = f"{name.value or 'default'}{f' ({kind})' if kind else ''}"
    recipe.set("description", f"{model_name}, imported from a DLIO workload", name.origin)
    trains = work.flag("workflow.train", default=True)
    saves = work.flag("workflow.checkpoint")
    generates = work.flag("workflow.generate_data")
    if not trains.value and saves.value:
        for section in ("dataset", "reader", "train", "evaluation", "metric", "generator", "storage"):
            work.dismiss(section, "workflow.train is off: the run consists of checkpoints only")
        work.dismiss("workflow.evaluation", "workflow.train is off")
    else:
        form = dataset(work, recipe)
        loading(work, recipe, form)
        training(work, recipe)
        if not trains.value:
            work.note(trains.origin, "the verb `run` trains; the verb `generate` only writes the data")
    if generates.given and not generates.value and trains.value:
        recipe.differs(
            "workflow.generate_data is off, so DLIO expects existing data; here the verb `run` generates missing data"
        )
    checkpoint(work, recipe, ranks)
    outputs(work, recipe)
    work.text("framework")
    if trains.value or not saves.value:  # else steps are checkpoints
        _fit_steps(work, recipe, document.label, ranks)
    scales(recipe, places)
    unknown = tuple(work.unknown())
    if strict and unknown:
        listed = ", ".join(f"{item.key} ({item.line})" for item in unknown)
        raise ConfigError(
            (f"{document.label}: DLIO does not know these keys: {listed}"),
            hint=("correct the keys, or import without --strict"),
        )
    keys = Converted(
        "",
        work.mapped(),
        tuple(work.not_honoured()),
        unknown,
        tuple(recipe.differences),
        recipe.words,
        recipe.get("system.world_size", 1),
    )
    head = [
        (
            f"Imported from the DLIO workload {Path(document.label).name}; the comment of a value names the key of its "
            "origin."
        )
    ]
    if keys.words:
        head.append(f"It runs with: {keys.command('FILE.yaml')}")
    text = comment(head) + "\n" + recipe.body()
    if keys.report():
        text += "\n" + comment(
            [("Keys of the workload that are not in this recipe:"), *(f"  {line}" for line in keys.report())]
        )
    _check(text, document.label)
    return dataclasses.replace(keys, text=text)


def _fit_steps(work: WorkloadFile, recipe: Recipe, label: str, ranks: int) -> None:
    """Removes a number of steps that the data cannot provide: DLIO ends the epoch, this tool refuses the recipe.

    Raises:
        ConfigError: the recipe cannot be run.
    """
    config, ranks = _check(recipe.body(), label), max(1, ranks)
    access, wanted = config.access, config.train.steps
    if access.repeat or access.pattern == "lanes" or wanted <= (given := data_steps(config, ranks)):
        return
    recipe.unset("train.steps")
    work.note(
        "train.total_training_steps",
        f"the data provide {given} steps per epoch for {counted(ranks, 'rank')}, and DLIO ends an "
        "epoch with its data: the "
        "recipe takes this number of steps",
    )


def _check(text: str, label: str) -> Config:
    """Checks that the recipe is valid; its mistakes are reported as mistakes of the workload file."""
    parsed = parse_document(text, "recipe")
    stack = Stack()
    tree = {key: value for key, value in parsed.tree.items() if key != "scales"}
    try:
        stack.add(tree, parsed.location_of)
        config = stack.build()
        validate(config)
        check_world(config, 1)
    except ConfigError as error:
        raise ConfigError(
            (f"{label}: the recipe converted from this file is not valid: {error.message}"), hint=error.hint
        ) from None
    return config
