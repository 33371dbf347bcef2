"""Description of existing NumPy files: arrays from headers; nothing is unpickled, no element is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dlio_torch.errors import DataError
from dlio_torch.formats.core.data_description import DataDescription
from dlio_torch.formats.numpy.file_groups import FileGroups, groups_of
from dlio_torch.formats.numpy.interpretation import of_a_file, of_files
from dlio_torch.formats.numpy.stored_arrays import ArrayHeader, headers_of_archive, headers_of_array, in_all
from dlio_torch.units import counted

_COMPARED = 32
_SHOWN = 3
_ARRAY = ".npy"
ArrayHeaders = Mapping[str, ArrayHeader]


def describe_array(path: Path, *, files: Sequence[Path]) -> DataDescription:
    """Describes single-array files.

    Args:
        path: the first file.
        files: all of them, sorted.

    Raises:
        DataError: it is no array that can be read.
    """
    stems = [str(place).removesuffix(_ARRAY) for place in files if place.suffix == _ARRAY]
    groups = groups_of(stems) if len(stems) == len(files) else None
    fields = None if groups is None else _fields_of(groups)
    if groups is None or fields is None:
        return _description(path, _headers(files, headers_of_array), {}, single=len(files) == 1)
    options: dict[str, Any] = {}
    plain = all(suffix == f"_{name}" for name, suffix in groups.suffixes.items())
    if not plain:
        options["field_suffixes"] = list(groups.suffixes.values())
    listed = ", ".join(f"{name} (*{suffix}.npy)" for name, suffix in groups.suffixes.items())
    notes = [f"the arrays of a sample are in files of the same name up to its last word: {listed}"]
    if groups.missing:
        more = " ..." if len(groups.missing) > _SHOWN else ""
        notes.append(
            f"{counted(len(groups.missing), 'file')} missing beside files of the same samples: "
            + ", ".join(f"{name}{_ARRAY}" for name in groups.missing[:_SHOWN])
            + more
        )
    return _description(path, fields, options, single=len(groups.complete) == 1, notes=notes)


def describe_archive(path: Path, *, files: Sequence[Path]) -> DataDescription:
    """Describes archives of arrays.

    Args:
        path: the first file.
        files: all of them, sorted.

    Raises:
        DataError: it holds no array that can be read.
    """
    headers = _headers(files, headers_of_archive)
    options = {"compressed": True} if any(header.compression for header in headers[path].values()) else {}
    return _description(path, headers, options, single=len(files) == 1)


def _spread(places: Sequence[Any]) -> list[Any]:
    """The first, the last, and some between them."""
    step = max(1, (len(places) - 1) // (_COMPARED - 1))
    return [*places[: (_COMPARED - 1) * step : step], places[-1]] if len(places) > _COMPARED else list(places)


def _headers(places: Sequence[Path], read: Callable[[Path], dict[str, ArrayHeader]]) -> dict[Path, ArrayHeaders]:
    return {place: read(place) for place in _spread(places)}


def _fields_of(groups: FileGroups) -> dict[Path, ArrayHeaders] | None:
    """Headers of the files of each sample, by the first of them; ``None`` if they are not arrays of one sample.

    The files of a single stem are fields of the same samples only where their first axes agree, and their types or
    other axes show that they hold different things.
    """
    files: dict[Path, ArrayHeaders] = {}
    for stem in _spread(groups.complete):
        places = {name: Path(f"{stem}{suffix}{_ARRAY}") for name, suffix in groups.suffixes.items()}
        files[next(iter(places.values()))] = {name: headers_of_array(place)["data"] for name, place in places.items()}
    if len(groups.complete) > 1:  # such as x_train.npy and y_train.npy, whose last words name no fields
        return None if any(in_all(files).values()) else files
    headers = list(next(iter(files.values())).values())
    rows = {header.shape[:1] for header in headers}
    kinds = {(header.dtype, header.shape[1:]) for header in headers}
    return files if len(rows) == 1 and () not in rows and len(kinds) == len(headers) else None


def _parted(headers: ArrayHeaders, readable: Sequence[str]) -> tuple[ArrayHeaders, list[ArrayHeader]]:
    """The arrays that can be read, and the others."""
    others = [header for name, header in headers.items() if name not in readable]
    return {name: headers[name] for name in readable}, others


def _description(
    path: Path, files: Mapping[Path, ArrayHeaders], options: dict[str, Any], *, single: bool, notes: Sequence[str] = ()
) -> DataDescription:
    first = next(iter(files.values()))
    problems = in_all(files)
    readable = [name for name, problem in problems.items() if not problem]
    if not readable:
        reasons = "; ".join(f"{name}: {problem}" for name, problem in problems.items()) or "it is empty"
        pattern = "" if single else f", or name files of one kind by a pattern, such as dataset.path='{path.parent}/x*'"
        raise DataError(
            f"{path} holds no array that can be read: {reasons}", hint=f"store plain arrays of numbers{pattern}"
        )
    meaning = of_a_file(*_parted(first, readable)) if single else of_files(files, readable)
    problems.update(meaning.left_out)
    further = list(notes)
    if not single:
        further.append(f"headers of {len(files)} samples or files were compared")
    if any(header.fortran_order and len(header.shape) > 1 for header in first.values()):
        further.append("arrays in Fortran order are read by loader.engine=dataloader only")
    return DataDescription(
        fields=meaning.fields,
        options={**options, "samples_in_file": meaning.samples_in_file},
        samples=meaning.samples,
        arrays=tuple(header.stored(name, problems[name]) for name, header in first.items()),
        notes=(*further, *meaning.notes),
        questions=meaning.questions,
    )
