"""Checked specifications of a sample's arrays, made from ``dataset.fields`` for formats of plain arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlio_torch.config.schema import FieldConfig
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.batch import ArraySpec, is_reserved

DTYPES = (
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *(f"float{bits}" for bits in (16, 32, 64)),
)
"""Element types that both files and torch know."""


def specs_of(fields: Sequence[FieldConfig]) -> list[ArraySpec]:
    """Specifications of the arrays of a sample, made from ``dataset.fields``.

    Raises:
        ConfigError: no field, a name that cannot be used or comes twice, a dtype that torch does not
            know, an axis below 1.
    """
    if not fields:
        raise ConfigError("dataset.fields is empty", hint="set dataset.fields=[{name: data, shape: [64]}]")
    specs = [_spec_of(field) for field in fields]
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"dataset.fields names {name!r} twice", hint="give each array its own name")
        inside = [other for other in names if other.startswith(name + "/")]
        if inside:
            raise ConfigError(
                f"dataset.fields: name={name!r} is an array and cannot also be the group of {inside[0]!r}",
                hint="rename one of the two fields (a slash in a name makes a group)",
            )
    return specs


def _spec_of(field: FieldConfig) -> ArraySpec:
    key = f"dataset.fields: {field.name}"
    if not all(part not in ("", ".", "..") for part in field.name.split("/")):
        raise ConfigError(
            f"dataset.fields: name={field.name!r} is not a valid path inside a file",
            hint="use a name such as data or climate/data",
        )
    if is_reserved(field.name):
        raise ConfigError(
            f"dataset.fields: name={field.name!r} is reserved for an entry that dlio_torch adds to each batch",
            hint="rename it",
        )
    try:
        dtype = np.dtype(field.dtype)
    except TypeError as error:
        raise ConfigError(
            f"{key}: dtype={field.dtype!r} is not a NumPy type", hint="use a NumPy type, for example float32"
        ) from error
    if dtype.name not in DTYPES or not dtype.isnative:
        raise ConfigError(
            f"{key}: dtype={field.dtype!r} is not an element type of torch tensors",
            hint=f"use one of {', '.join(DTYPES)}",
        )
    if any(length < 1 for length in field.shape):
        raise ConfigError(
            f"{key}: shape={field.shape} has an axis of length 0 or less", hint="use lengths of 1 or more"
        )
    return ArraySpec(field.name, dtype, tuple(field.shape), variable=field.length_mean > 0)
