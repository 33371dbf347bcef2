"""Named blocks of a recipe: settings for one scale, and settings for one accelerator.

Every block is checked, whichever of them a run uses: a recipe that works at one scale and breaks at
another, or on another accelerator, is a broken recipe.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlio_torch.config.convert import Unfit, convert
from dlio_torch.config.fields import Option, children, lookup, nearest
from dlio_torch.config.layers import SourceOf, Stack, show
from dlio_torch.config.resources import Resources, is_name
from dlio_torch.config.yamlfile import ACCELERATORS, SCALES, Document, Path, Tree
from dlio_torch.errors import ConfigError


def add_scale(stack: Stack, name: str, document: Document, places: Resources) -> None:
    """Merge the recipe's block for scale ``name``, if there is one, into the options of the scale.

    Raises:
        ConfigError: a block, of this scale or another, of no scale that there is, or with a wrong key or value.
    """
    blocks = _blocks(document, SCALES, "a block for each scale", "scales: {laptop: {max_samples: 256}}")
    for block, tree in blocks.items():
        source_of = _sources_in(document, SCALES, block)
        places.fragment("scale", block, source_of(()))
        if not isinstance(tree, dict):
            raise ConfigError(
                f"{SCALES}.{block}={show(tree)} ({source_of(())}): a block of '{SCALES}:' must contain options "
                "of the scale, as a mapping",
                hint="`dlio_torch explain scale` lists them",
            )
        _add(stack if block == name else Stack(), tree, source_of, ("scale",))


def add_accelerator(stack: Stack, name: str, source: str, document: Document) -> None:
    """Merge the recipe's variant ``name`` over its own keys; an empty name leaves the recipe as it stands.

    Raises:
        ConfigError: no such variant, or a wrong key or value in any of them.
    """
    blocks = accelerators(document)
    for block, tree in blocks.items():
        source_of = _sources_in(document, ACCELERATORS, block)
        _check_variant(block, tree, source_of)
        _add(stack if block == name else Stack(), tree, source_of, ())
    if not name or name in blocks:
        return
    if not blocks:
        raise ConfigError(
            f"accelerator={show(name)} ({source}): {document.label} has no variants", hint="leave accelerator out"
        )
    close = nearest(name, list(blocks))
    meant = f"did you mean {close[0]}? " if close else ""
    raise ConfigError(
        f"accelerator={show(name)} ({source}): {document.label} has no such variant",
        hint=f"{meant}variants are {', '.join(blocks)}",
    )


def accelerators(document: Document) -> dict[str, Any]:
    """Returns the recipe's accelerator variants, unchecked: name -> settings.

    Raises:
        ConfigError: the recipe holds something else there.
    """
    return _blocks(
        document, ACCELERATORS, "a block for each accelerator", "accelerators: {a100: {compute: {step_s: 0.6}}}"
    )


def _blocks(document: Document, key: str, expected: str, example: str) -> dict[str, Any]:
    blocks: Any = document.tree.get(key) or {}
    if not isinstance(blocks, dict):
        raise ConfigError(
            f"{key}={show(blocks)} ({document.location_of((key,))}): expected {expected}", hint=f"for example {example}"
        )
    return {name: {} if tree is None else tree for name, tree in blocks.items()}


def _sources_in(document: Document, key: str, name: str) -> SourceOf:
    return lambda path: document.location_of((key, name, *path))


def _check_variant(name: str, tree: Any, source_of: SourceOf) -> None:
    variant = f"{ACCELERATORS}.{name}"
    if not is_name(name):
        raise ConfigError(
            f"{variant} ({source_of(())}): this name of a variant is not allowed",
            hint="use only letters, digits, '_' and '-' in the name, for example a100",
        )
    if not isinstance(tree, dict):
        raise ConfigError(
            f"{variant}={show(tree)} ({source_of(())}): a variant must contain keys of the recipe, as a mapping",
            hint=f"for example {name}: {{compute: {{step_s: 0.6}}}}",
        )
    for key in ("scale", "recipe", "accelerator"):
        if key in tree:
            raise ConfigError(
                f"{variant}.{key}={show(tree[key])} ({source_of((key,))}): a variant cannot set {key}",
                hint=f"write '{SCALES}:' at the top level of the recipe"
                if key == "scale"
                else f"remove {key} from the variant",
            )


def _add(stack: Stack, tree: Tree, source_of: SourceOf, prefix: Path) -> None:
    stack.add(tree, source_of, prefix=prefix)
    option = lookup(prefix)
    if option is not None:
        _check_values(tree, option, source_of, len(prefix))


def _check_values(tree: Mapping[str, Any], option: Option, source_of: SourceOf, depth: int) -> None:
    """Checks the values of a block that is not used, as if it were used."""
    known = children(option)
    for name, value in tree.items():
        child = known[name]
        if child.kind == "group":
            _check_values(value, child, source_of, depth)
        elif not _open(value):
            try:
                convert(value, child)
            except Unfit as error:
                key = error.option.path
                raise ConfigError(
                    f"{'.'.join(key)}={show(error.value)} ({source_of(key[depth:])}): {error.problem}", hint=error.hint
                ) from None


def _open(value: Any) -> bool:
    """Returns whether ``value`` is known only in the complete configuration: it is a reference or a required value."""
    if isinstance(value, dict):
        return any(_open(item) for item in value.values())
    if isinstance(value, list):
        return any(_open(item) for item in value)
    return isinstance(value, str) and ("${" in value or value == "???")
