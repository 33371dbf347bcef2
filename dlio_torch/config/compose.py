"""Composes one frozen configuration of a recipe, fragments, a scale and ``key=value`` arguments.

Order, later wins:

1. defaults of the schema;
2. fragments ``conf/<group>/<choice>.yaml`` that the recipe's ``defaults:`` list picks;
3. the recipe's own keys;
4. the recipe's ``accelerators: {<accelerator>: ...}`` block, where ``accelerator=`` picks one;
5. ``conf/scale/<scale>.yaml``, then the recipe's ``scales: {<scale>: ...}`` block of options of the
   scale;
6. fragments picked by ``group=choice`` arguments (they also take the place of the recipe's pick);
7. ``group.key=value`` arguments, from left to right.

Then the scale is applied to the amounts, except to keys that the command line set.  Recipes by path, and existing data
(``dataset.path``), run as written unless ``scale=`` is given.  Without ``recipe=``, ``dataset.path=`` uses the recipe
``custom``.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dlio_torch.config import resources
from dlio_torch.config.adjustments import adjust_checkpoint, adjust_loader
from dlio_torch.config.arguments import split_argument
from dlio_torch.config.check import ConfigCheck
from dlio_torch.config.existing_data import CUSTOM, NOTHING, PATH, Fragments, has_shipped_batch, remarks_on, scale_of
from dlio_torch.config.fields import groups, leaves, lookup, nearest
from dlio_torch.config.file_paths import file_argument
from dlio_torch.config.layers import COMMAND_LINE, Stack, show, unknown
from dlio_torch.config.recipe_blocks import add_accelerator, add_scale
from dlio_torch.config.resources import Resources
from dlio_torch.config.scaling import scale
from dlio_torch.config.schema import Config
from dlio_torch.config.validate import validate
from dlio_torch.config.validate_model import check_model
from dlio_torch.config.validate_storage import with_local_paths
from dlio_torch.config.yamlfile import ACCELERATORS, SCALES, Document, Tree
from dlio_torch.errors import ConfigError

RESOLVED = "resolved"
"""Key that marks a ``config.yaml`` written by a run: the configuration is complete, its scale already applied."""

Detail = Literal["quiet", "normal", "verbose", "json"]
"""Output of a run: no progress and no notes, the key figures, all tables, or the summary as JSON on stdout."""

_META = ("defaults", SCALES, ACCELERATORS, RESOLVED)


@dataclass(frozen=True)
class Composed:
    """The result of composing the command line and the recipe.

    Attributes:
        config: the configuration, scaled and checked.
        sources: where each leaf's value came from, by dotted key.
        notes: what the scale changed and by how much, one line each.
        scaled: keys that the scale changed.
        adjusted: options that the requested loader overrides or does not use, one line each.
        detail: what a run prints; no option, so that it is no part of the configuration.
        remarks: recipe and scale that were chosen because none was given, one line each.
        fits_batch: whether a smaller amount of data may lower ``train.batch_size``, which nobody set.
    """

    config: Config
    sources: dict[str, str]
    notes: list[str]
    scaled: frozenset[str] = frozenset()
    adjusted: list[str] = field(default_factory=list)
    detail: Detail = "normal"
    remarks: tuple[str, ...] = ()
    fits_batch: bool = False


def compose(
    args: Sequence[str],
    *,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
    world_size: int = 1,
    formats: Collection[str] | None = None,
    data_options: Mapping[str, Any] | None = None,
) -> Composed:
    """Compose the configuration of ``key=value`` arguments.

    Args:
        args: ``recipe=...``, ``group=choice`` and ``group.key=value`` arguments.
        cwd: folder that relative recipe paths start from; None: the current one.
        environ: environment, of which ``DLIO_TORCH_PATH`` is read; None: this process's.
        world_size: ranks that will share the data; the scale needs it to count steps.
        formats: known values of ``dataset.format``; None: not checked here.
        data_options: options of ``dataset=auto`` that an inspection of the data gave; None: the data are inspected.

    Raises:
        ConfigError: anything that is wrong with them, in one line.
    """
    places = resources.find(cwd or Path.cwd(), os.environ if environ is None else environ)
    arguments = [split_argument(argument) for argument in args]
    name, document = _recipe(arguments, places)
    picks = {key: value for key, value in arguments if key in groups() and not value.lstrip().startswith("{")}
    stack = Stack()
    resolved = _flag(document)
    defaults = {} if resolved else _defaults(document)
    choices = {group: choice for group, (choice, _) in defaults.items()} | picks
    fragments = Fragments(stack, document, arguments, places, choices, data_options)
    scale_name = ""
    if resolved:
        _refuse_rescaling(document, arguments)
        stack.add(_recipe_keys(document), document.location_of, literal=True)
    else:
        scale_name = _layers(fragments, defaults, picks)
    for group, choice in picks.items():
        if group != "scale":
            fragments.add(group, choice, COMMAND_LINE)
    for key, value in arguments:
        if key == "scale.name":
            raise ConfigError(
                f"{key}={show(value)} (command line): scale.name cannot be set, because a scale is chosen as a whole",
                hint=f"write scale={value}",
            )
        if key != "recipe" and key not in picks:
            stack.set(key, file_argument(key, value, places.cwd))
    if "recipe" not in document.tree:
        stack.set("recipe", name)
    config = stack.build()
    _check_name(config, stack)
    _check_format(config, stack, formats)
    sources = {option.key: stack.source(option.key) for option, _ in leaves(config)}
    fits_batch = has_shipped_batch(arguments, document, sources["train.batch_size"])
    config, unread = adjust_checkpoint(config, sources, picked="checkpoint" in picks)
    notes: list[str] = []
    changed: dict[str, str] = {}
    if not resolved:
        check_model(config, ConfigCheck(config, sources).fail)  # the scale computes with it
        fixed = {key for key, source in sources.items() if source == COMMAND_LINE}
        config, changes = scale(config, fixed=fixed, world_size=world_size)
        for change in changes:
            before, after = change.texts
            notes.append(f"{change.key} {before} -> {after} (scale={scale_name})")
            changed[change.key] = f"scale {scale_name} (published {before})"
    sources |= changed
    config, adjusted = adjust_loader(config, sources, changed)
    validate(config, sources)
    config, paths = with_local_paths(config)
    adjusted += [*unread, *paths]
    remarks = [] if resolved else remarks_on(config, sources, arguments)
    return Composed(config, sources, notes, frozenset(changed), adjusted, remarks=tuple(remarks), fits_batch=fits_batch)


def _recipe(arguments: list[tuple[str, str]], places: Resources) -> tuple[str, Document]:
    names = [value for key, value in arguments if key == "recipe"]
    if not names and any(key == PATH and value not in NOTHING for key, value in arguments):
        return places.recipe(CUSTOM, COMMAND_LINE)
    if not names or not names[-1]:
        known = ", ".join(places.recipes()) or "none"
        for key, value in arguments:  # a misspelt 'recipe' is the likeliest reason
            if lookup(key.split(".")) is None:
                raise unknown(tuple(key.split(".")), value, COMMAND_LINE)
        raise ConfigError(
            "recipe= (command line): missing, every run needs a recipe",
            hint=f"add recipe=<name or path>, or dataset.path=<your data>; shipped recipes are {known}",
        )
    return places.recipe(names[-1], COMMAND_LINE)


def _layers(fragments: Fragments, defaults: Mapping[str, tuple[str, str]], picks: Mapping[str, str]) -> str:
    """Adds all layers of settings below the command line; returns the name of the scale.

    Args:
        fragments: adds the fragments; holds the recipe and the command line.
        defaults: the recipe's ``defaults:``, see :func:`_defaults`.
        picks: choices of the command line.
    """
    stack, document, arguments = fragments.stack, fragments.document, list(fragments.arguments)
    for group, (choice, source) in defaults.items():
        if group not in picks and group != "scale":
            fragments.add(group, choice, source)
    recipe_keys = _recipe_keys(document)
    if "scale" in recipe_keys:
        raise ConfigError(
            f"scale={show(recipe_keys['scale'])} ({document.location_of(('scale',))}): a recipe cannot choose "
            "the scale; only the command line can",
            hint=(
                "write a 'scales:' block with the options of each scale, for example scales: {laptop: {max_samples: "
                "256}}"
            ),
        )
    stack.add(recipe_keys, document.location_of)
    add_accelerator(stack, *_accelerator(recipe_keys, document, arguments), document)
    name, source = defaults.get("scale") or (scale_of(arguments, document), "default")
    if "scale" in picks:
        name, source = picks["scale"], COMMAND_LINE
    fragment = fragments.places.fragment("scale", name, source)
    stack.add(fragment.tree, fragment.location_of, prefix=("scale",))
    add_scale(stack, name, document, fragments.places)
    stack.add({"name": name}, lambda _: source, prefix=("scale",))
    return name


def _accelerator(recipe_keys: Tree, document: Document, arguments: list[tuple[str, str]]) -> tuple[str, str]:
    """Returns the requested accelerator variant and its source; both are empty if none is requested."""
    requested = [value for key, value in arguments if key == "accelerator"]
    if requested:
        return requested[-1], COMMAND_LINE
    name = recipe_keys.get("accelerator")
    # A value that is no text is refused where the configuration is built.
    return (name if isinstance(name, str) else ""), document.location_of(("accelerator",))


def _recipe_keys(document: Document) -> Tree:
    return {key: value for key, value in document.tree.items() if key not in _META}


def _defaults(document: Document) -> dict[str, tuple[str, str]]:
    """Reads the recipe's ``defaults:`` list as group -> (choice, source)."""
    listed = document.tree.get("defaults") or []
    hint = "write a list of '- group: choice' lines"
    if not isinstance(listed, list):
        raise ConfigError(
            f"defaults={show(listed)} ({document.location_of(('defaults',))}): expected a list", hint=hint
        )
    chosen: dict[str, tuple[str, str]] = {}
    for i, item in enumerate(listed):
        source = document.location_of(("defaults", str(i)))
        if not isinstance(item, dict) or len(item) != 1 or not isinstance(next(iter(item.values())), str):
            raise ConfigError(f"defaults={show(item)} ({source}): expected 'group: choice'", hint=hint)
        ((group, choice),) = item.items()
        if group not in groups():
            close = nearest(group, groups())
            meant = f"did you mean {close[0]}? " if close else ""
            raise ConfigError(
                f"defaults.{group}={choice} ({source}): unknown group", hint=f"{meant}groups are {', '.join(groups())}"
            )
        if group in chosen:
            raise ConfigError(
                f"defaults.{group}={choice} ({source}): the group appears twice in the 'defaults:' list",
                hint="remove one of the two lines",
            )
        chosen[group] = (choice, source)
    return chosen


def _flag(document: Document) -> bool:
    value = document.tree.get(RESOLVED, "false")
    if value not in ("true", "false"):
        raise ConfigError(
            f"{RESOLVED}={show(value)} ({document.location_of((RESOLVED,))}): expected true or false",
            hint="remove the line",
        )
    return bool(value == "true")


def _refuse_rescaling(document: Document, arguments: list[tuple[str, str]]) -> None:
    for key in ("defaults", SCALES, ACCELERATORS):
        if key in document.tree:
            raise ConfigError(
                f"{key} ({document.location_of((key,))}): a file with the line '{RESOLVED}: true' must not "
                "contain this key, because its configuration is complete",
                hint=f"remove {key}, or the line '{RESOLVED}: true'",
            )
    for key, value in arguments:
        if key.split(".")[0] == "scale":
            raise ConfigError(
                f"{key}={show(value)} (command line): the scale of {document.label} has already been applied",
                hint="start from the recipe itself to run it at another scale",
            )
        if key == "accelerator":
            raise ConfigError(
                f"{key}={show(value)} (command line): the variant of {document.label} has already been applied",
                hint="start from the recipe itself to run another variant",
            )


def _check_name(config: Config, stack: Stack) -> None:
    # The name becomes a folder below dataset.root and output.root.
    if not resources.is_name(config.recipe):
        raise ConfigError(
            f"recipe={show(config.recipe)} ({stack.source('recipe')}): the name of a recipe becomes a folder "
            "name, and this one is not allowed",
            hint="use only letters, digits, '_' and '-' in the name",
        )


def _check_format(config: Config, stack: Stack, formats: Collection[str] | None) -> None:
    name = config.dataset.format
    if formats is None or name in formats:
        return
    known = sorted(formats)
    close = nearest(name, known)
    meant = f"did you mean {close[0]}? " if close else ""
    raise ConfigError(
        f"dataset.format={show(name)} ({stack.source('dataset.format')}): no such format",
        hint=f"{meant}formats are {', '.join(known)}",
    )
