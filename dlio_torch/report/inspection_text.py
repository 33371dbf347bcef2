"""Writes what the inspection of existing data found: as text, as JSON, and as a recipe."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TextIO

import yaml
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from dlio_torch.config.schema import FieldConfig
from dlio_torch.errors import harmless
from dlio_torch.formats.core.data_description import StoredArray
from dlio_torch.formats.core.inspection import Inspection, set_option
from dlio_torch.formats.core.registry import facts
from dlio_torch.report.terminal import write
from dlio_torch.units import counted, format_size

SCHEMA = "dlio_torch.inspection"
VERSION = "1"
_MOST_ARRAYS = 30
_BATCH = 32  # samples, as of the recipe custom


@dataclass(frozen=True)
class DataAmount:
    """Amount of data below a path.

    Attributes:
        files: number of files.
        samples: in all files; ``None``: the files could not be counted, or a question is open.
        bytes: of all files; ``None``: likewise.
        problem: one line on why they cannot be read; empty: they can.
    """

    files: int
    samples: int | None = None
    bytes: int | None = None
    problem: str = ""


def print_inspection(inspection: Inspection, amount: DataAmount, stream: TextIO) -> None:
    """Writes format, amount, arrays, notes, open questions, and the settings that read the data."""

    def draw(console: Console) -> None:
        description = inspection.description
        console.print(harmless(f"{inspection.path}: {inspection.format}"), soft_wrap=True)
        console.print(_facts(inspection, amount))
        if description.arrays:
            console.print("stored arrays" if inspection.files == 1 else f"stored arrays of {inspection.described}:")
            console.print(Padding(_arrays(description.arrays), (0, 0, 0, 2)))
        for note in description.notes:
            console.print(Padding(harmless(f"- {note}"), (0, 0, 0, 2)))
        if amount.problem:
            console.print(Padding(harmless(f"cannot be read: {amount.problem}"), (0, 0, 0, 0)))
        for question in description.questions:
            console.print(harmless(f"to be set: {question.problem}; add {question.setting}"))
        console.print()
        console.print("read them:")
        console.print(f"  {command(inspection)}", soft_wrap=True)
        console.print("in a recipe:")
        console.print(_indented(dataset_block(inspection)), soft_wrap=True)

    write(stream, draw)


def to_json(inspection: Inspection, amount: DataAmount) -> dict[str, Any]:
    """Converts the inspection to plain values; None for values that are not known."""
    description = inspection.description
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "path": inspection.path,
        "format": inspection.format,
        "described": str(inspection.described),
        **asdict(amount),
        "other_files": dict(inspection.other_files),
        "arrays": [asdict(array) for array in description.arrays],
        "fields": inspection.settings().get("fields", []),
        "dataset": inspection.settings(),
        "details": dict(description.details),
        "notes": list(description.notes),
        "questions": [asdict(question) for question in description.questions],
        "command": command(inspection),
    }


def command(inspection: Inspection) -> str:
    """The command that reads the data."""
    answers = [question.setting for question in inspection.description.questions]
    given = [f"{key}={value}" for key, value in inspection.given.items()]
    words = [f"dataset.path={inspection.path}", *given, *answers]
    return " ".join(["python -m dlio_torch", *map(shlex.quote, words)])


def dataset_block(inspection: Inspection) -> str:
    """The ``dataset:`` block of a recipe, YAML."""
    tree: dict[str, Any] = {"path": inspection.path, **inspection.settings()}
    for question in inspection.description.questions:
        key, _, value = question.setting.partition("=")
        set_option(tree, key, value)
    return yaml.safe_dump({"dataset": tree}, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100)


def recipe_text(inspection: Inspection, amount: DataAmount) -> str:
    """A complete recipe that reads the data, YAML."""
    samples = "an unknown number of samples" if amount.samples is None else f"{amount.samples} samples"
    open_lines = [f"# To be checked: {question.problem}." for question in inspection.description.questions]
    access = facts(inspection.format).choices.get("access", "shuffled")
    lines = [
        f"# Written by `inspect`: {counted(amount.files, 'file')} of format {inspection.format}, {samples}.",
        *map(harmless, open_lines),
        "",
        yaml.safe_dump({"description": f"data of {inspection.path}"}, allow_unicode=True, width=10_000).rstrip(),
        "",
        "defaults:",
        f"  - access: {access}",
        "  - loader: main_process # loader: workers takes worker processes",
        "  - compute: none # compute: sleep, and compute.step_s, emulate the model",
        "",
        dataset_block(inspection),
        "train:",
        "  epochs: 1",
        f"  batch_size: {_BATCH if amount.samples is None else min(_BATCH, amount.samples)}",
    ]
    return "\n".join(lines) + "\n"


def _facts(inspection: Inspection, amount: DataAmount) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, text in _fact_rows(inspection, amount):
        table.add_row(f"  {name}", harmless(text))
    return table


def _fact_rows(inspection: Inspection, amount: DataAmount) -> Iterator[tuple[str, str]]:
    size = "" if amount.bytes is None else f", {format_size(amount.bytes)}"
    more = " or more, of which the first were counted" if inspection.is_partial and amount.bytes is None else ""
    yield "files", f"{amount.files}{more}{size}"
    if amount.samples is not None:
        yield "samples", f"{amount.samples}"
    if inspection.description.fields:
        yield "a sample", "; ".join(map(_field, inspection.description.fields))
    for name, value in inspection.description.details.items():
        yield name.replace("_", " "), _plain(value)
    if inspection.other_files:
        others = ", ".join(f"{count} {kind or 'without suffix'}" for kind, count in inspection.other_files.items())
        yield "not read", others


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(item)}" for name, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _field(field: FieldConfig) -> str:
    rows = [f"~{field.length_mean:g}"] if field.length_mean else []
    shape = ", ".join([*rows, *map(str, field.shape)])
    return f"{field.name} {field.dtype}" + (f" [{shape}]" if shape else "")


def _arrays(arrays: tuple[StoredArray, ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for name in ("name", "dtype", "shape", "chunks", "compression", "stored", "note"):
        table.add_column(name, overflow="fold")
    for array in arrays[:_MOST_ARRAYS]:
        table.add_row(
            harmless(array.name),
            harmless(array.dtype),
            _shape(array.shape),
            _shape(array.chunks),
            array.compression,
            "" if array.stored_bytes is None else format_size(array.stored_bytes),
            harmless(array.note),
        )
    if len(arrays) > _MOST_ARRAYS:
        table.add_row(f"... {len(arrays) - _MOST_ARRAYS} more")
    return table


def _shape(shape: tuple[int, ...] | None) -> str:
    return "" if shape is None else "scalar" if not shape else " x ".join(map(str, shape))


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.rstrip().splitlines())
