"""Interpretation of stored arrays: one sample a file, or samples along the first axis.

A NumPy file does not state which.  A single file is a data set, so its samples lie along the first axis.  Among
several files, arrays that cannot be stacked tell that each file is one sample; otherwise the user must say.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dlio_torch.config.schema import FieldConfig
from dlio_torch.formats.core.data_description import OpenQuestion
from dlio_torch.formats.core.sample_arrays import Candidate, choose_arrays
from dlio_torch.formats.core.stacking import LENGTHS_SUFFIX
from dlio_torch.formats.numpy.stored_arrays import ArrayHeader

KEY = "dataset.npz.samples_in_file"
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Interpretation:
    """How the arrays of files are samples.

    Attributes:
        fields: of a sample.
        samples_in_file: value of the option.
        samples: of the first file; ``None``: they depend on an open question.
        left_out: arrays that are not read, with the reason.
        notes: one line each.
        questions: what the files do not state.
    """

    fields: tuple[FieldConfig, ...]
    samples_in_file: str
    samples: int | None
    left_out: Mapping[str, str]
    notes: tuple[str, ...] = ()
    questions: tuple[OpenQuestion, ...] = ()


def of_a_file(headers: Mapping[str, ArrayHeader], unreadable: Sequence[ArrayHeader] = ()) -> Interpretation:
    """Interprets the arrays of the only file: samples lie along the first axis.

    Args:
        headers: arrays that can be read.
        unreadable: all others.
    """
    counts = {name: count for name in headers if (count := _variable_samples(name, headers)) is not None}
    tables = {name + LENGTHS_SUFFIX for name in counts}
    candidates = [
        _candidate(name, header, counts.get(name))
        for name, header in headers.items()
        if header.shape and name not in tables
    ]
    if not candidates:
        fields = tuple(_field(name, header.dtype, ()) for name, header in headers.items())
        return Interpretation(fields, "one", 1, {}, ("the file holds single numbers: it is one sample",))
    left_out = {
        name: f"the rows of each sample of {name.removesuffix(LENGTHS_SUFFIX)}"
        if name in tables
        else "a single number, not one for each sample: not read"
        for name, header in headers.items()
        if name in tables or not header.shape
    }
    note = f"samples are taken along the first axis ({KEY}=stacked): a single file is read as a data set"
    companions = {header.shape[0] for header in unreadable if header.shape}
    sample = choose_arrays(candidates, companions=companions, numbers_tell=False)
    if sample.question is not None:
        left_out |= sample.left_out
        return Interpretation((), "stacked", None, left_out, (*sample.notes, note), (sample.question,))
    count = sample.chosen[0].rows
    for item in candidates:
        if item not in sample.chosen:
            left_out[item.name] = f"has {item.rows} rows, where other arrays have {count}: not read"
    return Interpretation(tuple(item.entry for item in sample.chosen), "stacked", count, left_out, (note,))


def _candidate(name: str, header: ArrayHeader, count: int | None) -> Candidate:
    """An array as a field of a sample; ``count``: of the samples of a variable-length one, ``None`` for all others."""
    if count is None:
        return Candidate(_field(name, header.dtype, header.shape[1:]), header.shape[0], header.shape[0])
    mean = max(1.0, round(header.shape[0] / max(count, 1), 1))
    return Candidate(FieldConfig(name, header.dtype, list(header.shape[1:]), mean), count, count)


def _variable_samples(name: str, headers: Mapping[str, ArrayHeader]) -> int | None:
    """Samples of a variable-length array, by the array with the rows of each; ``None``: it has no such array."""
    table = headers.get(name + LENGTHS_SUFFIX)
    if table is None or table.dtype != "int64" or len(table.shape) != 1 or not headers[name].shape:
        return None
    return table.shape[0]


def of_files(files: Mapping[Path, Mapping[str, ArrayHeader]], names: Sequence[str]) -> Interpretation:
    """Interprets the arrays ``names`` of several files."""
    shapes = {name: [headers[name].shape for headers in files.values()] for name in names}
    first = next(iter(files.values()))
    fields = tuple(_sample_field(name, first[name].dtype, shapes[name]) for name in names)
    certain = _why_single(shapes)
    notes = [f"each file is one sample, since {certain} ({KEY}=one)"] if certain else []
    flat = [name for name in names if _other_axes_differ(shapes[name])]
    if flat:
        notes.append(f"the shapes of {', '.join(flat)} differ in several axes: samples are lists of all elements")
    questions = () if certain else (_question(shapes, first, len(files)),)
    return Interpretation(fields, "one", 1, {}, tuple(notes), questions)


def _why_single(shapes: Mapping[str, Sequence[Shape]]) -> str:
    """Reason why the arrays of a file must be one sample; empty: there is none."""
    for name, of_name in shapes.items():
        if any(not shape for shape in of_name):
            return f"array {name} is a single number"
        if _other_axes_differ(of_name):
            return f"the shape of array {name} differs in other axes than the first"
    for of_file in zip(*shapes.values(), strict=True):
        if len({shape[0] for shape in of_file}) > 1:
            return "the first axes of the arrays of a file have different lengths"
    return ""


def _other_axes_differ(shapes: Sequence[Shape]) -> bool:
    return len({shape[1:] for shape in shapes}) > 1 or len({len(shape) for shape in shapes}) > 1


def _question(shapes: Mapping[str, Sequence[Shape]], first: Mapping[str, ArrayHeader], files: int) -> OpenQuestion:
    name = next(iter(shapes))
    lengths = sorted({shape[0] for shape in shapes[name]})
    rows = str(lengths[0]) if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"
    stacked = ", ".join(
        f"{{name: {other}, dtype: {first[other].dtype}, shape: {list(of_name[0][1:])}}}"
        for other, of_name in shapes.items()
    )
    return OpenQuestion(
        f"array {name} of {files} files that were compared has {rows} rows along its first axis, and the files do "
        f"not state whether each is one sample ({KEY}=one), or each row is one ({KEY}=stacked "
        f"'dataset.fields=[{stacked}]')",
        f"{KEY}=one",
    )


def _sample_field(name: str, dtype: str, shapes: Sequence[Shape]) -> FieldConfig:
    """The field of an array that is one sample in each file."""
    if len(set(shapes)) == 1:
        return _field(name, dtype, shapes[0])
    flat = _other_axes_differ(shapes)
    rows = [math.prod(shape) if flat else shape[0] for shape in shapes]
    mean, deviation = statistics.fmean(rows), statistics.pstdev(rows)
    return FieldConfig(name, dtype, [] if flat else list(shapes[0][1:]), round(mean, 1), round(deviation, 1))


def _field(name: str, dtype: str, shape: Shape) -> FieldConfig:
    return FieldConfig(name, dtype, list(shape))
