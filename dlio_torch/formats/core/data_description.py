"""Description of existing data: the arrays that a file holds, and the options with which it is read.

The ``describe`` function of each family reads a file or folder of unknown origin from its headers.  A property that
the files do not state, such as the dtype of a file of bare tokens, is a :class:`OpenQuestion`, never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dlio_torch.config.schema import FieldConfig


@dataclass(frozen=True)
class StoredArray:
    """One array, column or member of a file, as the file's own header states it.

    Attributes:
        name: its name in the file.
        dtype: element type, in the words of the library.
        shape: of the whole array; ``None``: the header does not state it.
        chunks: shape of a chunk; ``None``: stored without chunks.
        compression: name of the codec; empty: none.
        stored_bytes: in the file; ``None``: not stated.
        note: one line on what cannot be read and why; empty: it is readable.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] | None = None
    chunks: tuple[int, ...] | None = None
    compression: str = ""
    stored_bytes: int | None = None
    note: str = ""


@dataclass(frozen=True)
class OpenQuestion:
    """A property that the files do not state, which the user must set.

    Attributes:
        problem: one sentence that says what is unknown.
        setting: ``key=value`` with a probable value, to paste on the command line.
    """

    problem: str
    setting: str


@dataclass(frozen=True)
class DataDescription:
    """Content of one file, or of one folder that a library treats as a file.

    Attributes:
        fields: arrays of a sample, as ``dataset.fields`` takes them; empty where the format takes none.
        options: options of the format's group, other than their defaults, that reading needs.
        samples: samples in the file; ``None``: unknown until it is read completely.
        arrays: everything that is stored, also what is not read.
        notes: further facts, one line each.
        questions: what the user must set; the data cannot be read before.
        details: further figures, JSON-able.
    """

    fields: tuple[FieldConfig, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    samples: int | None = None
    arrays: tuple[StoredArray, ...] = ()
    notes: tuple[str, ...] = ()
    questions: tuple[OpenQuestion, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
