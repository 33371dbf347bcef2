"""Builds the end of the page: published figures, configuration, environment, and missing data."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from dlio_torch.config.schema import ExpectConfig
from dlio_torch.report.expect import compare
from dlio_torch.report.html.page_blocks import NOT_MEASURED, Absent, Block, Folded, Notes, Section, Table, Text
from dlio_torch.report.html.run.view import View
from dlio_torch.report.html.theme import clean
from dlio_torch.units import counted, format_size

_MOST_SKIPPED = 100
_COMMAND = ("command", "cwd", "exit_code")
_PAIR = ("<what", "<value")


def expect_section(view: View) -> Section:
    """Builds the section that compares published figures of the application with those of the run."""
    title = "Published and measured figures"
    expected = _expected(view)
    if not expected or view.summary is None:
        why = (
            "The recipe contains no published figures (expect:)."
            if view.config
            else f"No recipe was recorded. {view.get_run}"
        )
        if expected:
            why = "The run wrote no summary, so it cannot be compared with the published figures."
        return Section("expect", title, [Absent(why)])
    rows = [
        [
            row.metric,
            f"{row.published:.4g}",
            NOT_MEASURED if row.measured is None else f"{row.measured:.4g}",
            "" if row.ratio is None else f"{row.ratio:.3g}",
            row.alike,
            f"{100 * row.tolerance:.3g} %",
            clean(row.source),
        ]
        for row in compare(expected, view.summary)
    ]
    heads = ("<figure", "published", "measured", "ratio", "alike", "tolerance", "<source")
    published_on = view.summary.get("published_on")
    on = f"Published for {published_on['system']} with {published_on['world_size']} ranks. " if published_on else ""
    note = on + "Ratio: measured / published. Alike: the relative difference is within the tolerance (scaled: the "
    note += "scale changes a quantity on which the figure depends)."
    return Section(
        "expect",
        title,
        [Table("Published figures of the application and measured figures of this run", heads, rows, note)],
    )


def _expected(view: View) -> list[ExpectConfig]:
    entries = view.options.get("expect")
    lines = []
    for entry in entries or ():
        if not isinstance(entry, Mapping) or not {"metric", "value"} <= entry.keys():
            continue
        with contextlib.suppress(ValueError, TypeError):  # a damaged one is no published figure
            lines.append(
                ExpectConfig(
                    metric=str(entry["metric"]),
                    value=float(entry["value"]),
                    tolerance=float(entry.get("tolerance", 0.1)),
                    source=str(entry.get("source", "")),
                )
            )
    return lines


def config_section(view: View) -> Section:
    """Builds the section on the configuration: the options that were set, and the whole configuration."""
    title = "Configuration"
    if view.config is None:
        command = view.command or {
            name: view.recording.facts[name] for name in _COMMAND if name in view.recording.facts
        }
        if not command:
            return Section("config", title, [Absent(f"No configuration was recorded. {view.get_run}")])
        rows = [[key, _value(value)] for key, value in _flat(command)]
        return Section("config", "Command", [Folded(clean(view.command_line or "Command"), [Table("", _PAIR, rows)])])
    values = dict(_flat(view.options))
    blocks: list[Block] = []
    if view.sources:
        rows = [
            [key, _value(values.get(key)), clean(str(source))]
            for key, source in view.sources.items()
            if str(source) != "default"
        ]
        heads = ("<option", "<value", "<set by")
        note = f"{len(view.sources) - len(rows)} other options have their default values."
        blocks.append(Folded(f"{len(rows)} options that were set", [Table("", heads, rows, note)]))
    blocks.append(Folded("The whole configuration (config.yaml)", text=clean_lines(view.config)))
    for key, reason in (("scaled", "changed by the scale"), ("adjusted", "adjusted to other options, or not used")):
        notes = [clean(str(note)) for note in (view.summary or {}).get(key) or ()]
        if notes:
            blocks.append(Folded(f"{counted(len(notes), 'option')} {reason}", [Notes(notes)]))
    return Section("config", title, blocks)


def environment_section(view: View) -> Section:
    """Builds the section on machine, software and file systems."""
    title = "Environment"
    environment = view.environment
    if environment is None:
        others = (*_COMMAND, "config", "figures")
        environment = {key: value for key, value in view.recording.facts.items() if key not in others}
        if not environment:
            return Section(
                "environment", title, [Absent(f"The description of the machine was not recorded. {view.get_run}")]
            )
    return Section("environment", title, [environment_block(environment)])


def environment_block(environment: Mapping[str, Any]) -> Folded:
    """Builds a folded block with the content of ``environment.json``."""
    why = environment.get("not_measured")
    why = why if isinstance(why, Mapping) else {}
    rows = []
    for key, value in _flat({name: value for name, value in environment.items() if name != "not_measured"}):
        text = _value(value)
        if value is None:
            text = NOT_MEASURED + (f": {why[key]}" if key in why else "")
        elif key.endswith("_bytes") and isinstance(value, int):
            text = f"{format_size(value)} ({value:,} B)"
        rows.append([key, clean(text)])
    return Folded(_headline(environment), [Table("", _PAIR, rows)])


def _headline(environment: Mapping[str, Any]) -> str:
    cpu, mounts = environment.get("cpu"), environment.get("mounts")
    parts = [str(environment.get("host") or "machine")]
    if isinstance(cpu, Mapping):
        parts.append(f"{cpu.get('model')}, {cpu.get('cores_usable')} cores")
    if isinstance(mounts, Mapping) and isinstance(mounts.get("data"), Mapping):
        parts.append(f"data on {mounts['data'].get('file_system')}")
    return clean(" · ".join(parts))


def skipped_section(view: View) -> Section:
    """Builds the section on files that are missing or could not be read, with the reasons."""
    notes = [*view.missing, *(f"{skipped.path}: {skipped.reason}" for skipped in view.recording.events.skipped)]
    left = len(notes) - _MOST_SKIPPED
    shown = [clean(note) for note in notes[:_MOST_SKIPPED]] + ([f"and {left} more entries"] if left > 0 else [])
    if not shown:
        return Section("skipped", "Missing data", [Text("No data are missing: every record was read.")])
    return Section("skipped", "Missing data", [Notes(shown)])


def clean_lines(text: str) -> str:
    """Removes control characters other than line ends from a text of several lines."""
    return "\n".join(clean(line) for line in text.splitlines())


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the dotted name and the value of every entry; list entries are numbered."""
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _flat(item, f"{prefix}.{name}" if prefix else str(name))
    elif isinstance(value, list) and any(isinstance(item, (Mapping, list)) for item in value):
        for number, item in enumerate(value):
            yield from _flat(item, f"{prefix}.{number}")
    elif prefix:
        yield prefix, value


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(_value(item) for item in value)
    return "" if value is None else clean(str(value))
