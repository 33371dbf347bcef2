"""Writes a configuration as YAML text or plain data; loading the text gives the same configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from dlio_torch.config.compose import RESOLVED
from dlio_torch.config.fields import ROOT, Option, children, element
from dlio_torch.config.schema import Config
from dlio_torch.config.yamlfile import dump_scalar

_COLUMN = 48


def as_dict(config: Config) -> dict[str, Any]:
    """Converts the configuration to nested dicts, lists, numbers, text and None, for JSON."""
    return dataclasses.asdict(config)


def to_yaml(config: Config, sources: Mapping[str, str] | None = None) -> str:
    """Writes ``config`` as a complete recipe, to which no scale is applied again.

    Args:
        config: what to write.
        sources: if given, each value carries a comment that says where it was set.
    """
    head = f"{RESOLVED}: true"
    note = "# this configuration is complete: the scale has been applied and is not applied again"
    lines = [f"{head:<{_COLUMN}} {note}", *_group(config, ROOT, 0, sources)]
    return "\n".join(lines) + "\n"


def sources_to_yaml(sources: Mapping[str, str]) -> str:
    """Writes the source of each option, by dotted key, as YAML."""
    return "".join(f"{key}: {dump_scalar(source)}\n" for key, source in sources.items())


def _group(value: Any, option: Option, depth: int, sources: Mapping[str, str] | None) -> list[str]:
    indent = "  " * depth
    lines: list[str] = []
    for name, child in children(option).items():
        item = getattr(value, name)
        if child.kind == "group":
            lines += [f"{indent}{name}:", *_group(item, child, depth + 1, sources)]
        elif child.kind == "list" and item:
            lines.append(f"{indent}{name}:")
            for i, entry in enumerate(item):
                inner = _group(entry, element(child, str(i)), depth + 2, sources)
                # The dash takes the place of the first line's indentation.
                inner[0] = f"{indent}  - {inner[0].lstrip()}"
                lines += inner
        else:
            text = f"{indent}{name}: {dump_scalar(item)}"
            source = None if sources is None else sources.get(child.key, "default")
            lines.append(text if source is None else f"{text:<{_COLUMN}} # {source}")
    return lines
