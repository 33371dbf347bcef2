"""Texts of ``explain``, ``show`` and ``ls``: options, their values, and the names of recipes and fragments."""

from __future__ import annotations

import itertools
import os
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dlio_torch.config import resources
from dlio_torch.config.compose import Composed
from dlio_torch.config.emit import as_dict, to_yaml
from dlio_torch.config.fields import Option, children, element, groups, leaves, lookup, suggest
from dlio_torch.config.recipe_blocks import accelerators
from dlio_torch.config.yamlfile import Document, dump_scalar, parse_document
from dlio_torch.errors import ConfigError


def explain(key: str, composed: Composed | None = None) -> str:
    """Describes ``key``: documentation, type and default and, with a recipe, its value and the source of the value.

    Args:
        key: dotted key; a group lists its options, an empty key lists the groups.
        composed: the recipe whose values are shown.

    Raises:
        ConfigError: no such key; the hint names the nearest one.
    """
    path = tuple(part for part in key.split(".") if part) if key else ()
    option = lookup(path)
    if option is None:
        raise ConfigError(f"explain {key}: no such option", hint=suggest(path))
    if option.kind == "group":
        return _explain_group(option, composed)
    if option.kind == "list":
        body = _explain_group(element(option, "*"), None)
        return f"{option.key}: {option.doc}\n  type     list of groups\n{_now(option, composed)}{body}"
    lines = [f"{option.key}: {option.doc}", f"  type     {option.type_text}"]
    if option.unit:
        example = "262144, 256KiB or 1.5MB" if option.unit == "B" else "0.5, 500ms or 2min"
        lines.append(f"  unit     {'bytes' if option.unit == 'B' else 'seconds'}; write {example}")
    for name, bound in (("minimum", option.minimum), ("maximum", option.maximum)):
        if bound is not None:
            lines.append(f"  {name}  {str(bound).removesuffix('.0')}")
    parent = lookup(path[:-1])
    if parent is None or parent.kind != "values":
        lines.append(f"  default  {dump_scalar(option.default)}")
    return "\n".join(lines) + "\n" + _now(option, composed)


def explain_data(key: str, composed: Composed | None = None) -> dict[str, Any]:
    """Returns the content of :func:`explain` as plain data: one entry for each option at or below ``key``."""
    path = tuple(part for part in key.split(".") if part) if key else ()
    option = lookup(path)
    if option is None:
        raise ConfigError(f"explain {key}: no such option", hint=suggest(path))
    entries: dict[str, Any] = {}
    for leaf in _leaf_options(option):
        entries[leaf.key] = {
            "doc": leaf.doc,
            "type": leaf.type_text,
            "choices": list(leaf.choices),
            "unit": leaf.unit,
            "minimum": leaf.minimum,
            "maximum": leaf.maximum,
            "default": leaf.default,
        }
        values = dict(_values(leaf, composed))
        if composed is not None and leaf.key in values:
            entries[leaf.key] |= {"value": values[leaf.key], "source": _source(leaf.key, composed)}
    return entries


def show(composed: Composed) -> str:
    """Returns the complete configuration as text: each value with its source, and notes on values that were changed."""
    notes = "".join(f"# {note}\n" for note in [*composed.notes, *composed.adjusted])
    return notes + to_yaml(composed.config, composed.sources)


def show_data(composed: Composed) -> dict[str, Any]:
    """Returns the content of :func:`show` as plain data."""
    return {
        "config": as_dict(composed.config),
        "sources": composed.sources,
        "notes": composed.notes,
        "adjusted": composed.adjusted,
    }


def listing(
    names: Sequence[str] = (),
    *,
    formats: Sequence[str] = (),
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, dict[str, str]]:
    """Lists recipes, fragments, scales and formats: section -> name -> one line of description.

    Args:
        names: sections to list, of ``recipes``, ``scales``, ``studies``, ``formats`` and the groups of ``conf/``;
            empty: all of them.
        formats: names of the file formats.
        cwd: folder that relative entries of ``DLIO_TORCH_PATH`` start from.
        environ: environment, of which ``DLIO_TORCH_PATH`` is read.

    Raises:
        ConfigError: an unknown section.
    """
    places = resources.find(cwd or Path.cwd(), os.environ if environ is None else environ)
    sections: dict[str, dict[str, str]] = {"recipes": {}}
    for name in places.recipes():
        try:
            sections["recipes"][name] = _recipe_line(places.recipe(name, "ls")[1])
        except ConfigError as error:  # one broken file must not hide the others
            sections["recipes"][name] = f"cannot be read: {error}"
    for group in groups():
        chosen = {name: _first_comment(path) for name, path in places.choices(group).items()}
        if chosen:
            sections["scales" if group == "scale" else group] = chosen
    sections["studies"] = {name: _title(path) for name, path in places.choices("study").items()}
    sections["formats"] = dict.fromkeys(sorted(formats), "")
    if not names:
        return sections
    for name in names:
        if name not in sections:
            raise ConfigError(f"ls {name}: no such section", hint=f"sections are {', '.join(sections)}")
    return {name: sections[name] for name in names}


# The argument that takes a name of the section.
_SINGLE = {"recipes": "recipe", "scales": "scale", "studies": "sweep study", "formats": "dataset.format"}


def listing_text(sections: Mapping[str, Mapping[str, str]]) -> str:
    """Formats the result of :func:`listing` for the terminal."""
    lines: list[str] = []
    for section, entries in sections.items():
        lines.append(f"{section}  ({_SINGLE.get(section, section)}=<name>)")
        width = max((len(name) for name in entries), default=0)
        lines += [f"  {name:<{width}}  {text}".rstrip() for name, text in entries.items()] or ["  none"]
        lines.append("")
    return "\n".join(lines)


def _title(path: Path) -> str:
    """Returns the title of a study file, or the error if the file cannot be read."""
    try:
        title = parse_document(path.read_text(encoding="utf-8"), str(path)).tree.get("title")
    except (OSError, ConfigError) as error:
        return f"cannot be read: {error}"
    return str(title or "")


def _recipe_line(document: Document) -> str:
    """Returns the description of a recipe and the names of its accelerator variants."""
    text = str(document.tree.get("description") or "")
    variants = accelerators(document)
    return f"{text} (accelerator={'|'.join(variants)})".lstrip() if variants else text


def _explain_group(option: Option, composed: Composed | None) -> str:
    head = f"{option.key}: {option.doc}" if option.key else "options"
    rows = []
    for child in children(option).values():
        text = "group" if child.kind == "group" else child.type_text
        default = "" if child.kind in ("group", "list") else f" [{dump_scalar(child.default)}]"
        rows.append((child.key, f"{child.doc} ({text}){default}"))
        now = _now(child, composed).strip() if child.kind not in ("group", "list") else ""
        if now:
            rows.append(("", now))
    width = max(len(name) for name, _ in rows)
    return "\n".join([head, *(f"  {name:<{width}}  {text}" for name, text in rows)]) + "\n"


def _now(option: Option, composed: Composed | None) -> str:
    """Formats the value in the recipe and its source; a list takes one line per element."""
    if composed is None:
        return ""
    return "".join(
        f"  now      {key + ' = ' if key != option.key else ''}{dump_scalar(value)}  ({_source(key, composed)})\n"
        for key, value in _values(option, composed)
    )


def _source(key: str, composed: Composed) -> str:
    """Returns the source of an option, or of the list that contains it."""
    return composed.sources.get(key) or composed.sources.get(key.rpartition(".")[0], "default")


def _values(option: Option, composed: Composed | None) -> list[tuple[str, Any]]:
    if composed is None:
        return []
    entries = []
    for leaf, value in leaves(composed.config):
        pattern = tuple(b if b == "*" else a for a, b in zip(leaf.path, option.path, strict=False))
        if pattern == option.path:
            entries.append((leaf.key, value))
        elif len(option.path) == len(leaf.path) + 1 and option.path[:-1] == leaf.path and option.path[-1].isdecimal():
            index = int(option.path[-1])
            if isinstance(value, list) and index < len(value):
                entries.append((option.key, value[index]))
    return entries


def _leaf_options(option: Option) -> list[Option]:
    if option.kind not in ("group", "list"):
        return [option]
    inside = element(option, "*") if option.kind == "list" else option
    return [leaf for child in children(inside).values() for leaf in _leaf_options(child)]


def _first_comment(path: Path) -> str:
    """Returns the first sentence of the comment at the start of a fragment, which says what the fragment is for."""
    words = []
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in itertools.islice(file, 10):
                if not line.startswith("#"):
                    break
                words.append(line.lstrip("#").strip())
    except OSError:
        return "unreadable"
    text = re.split(r"(?<=\w\w)[.;:](?:\s|$)|\s\(", " ".join(words), maxsplit=1)[0]
    return textwrap.shorten(text, 100, placeholder=" ...")
