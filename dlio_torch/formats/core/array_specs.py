"""Specifications of a sample's arrays from ``dataset.fields``, checked, for formats of plain arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlio_torch.config.schema import FieldConfig
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.batch import INDEX, LENGTHS, ArraySpec

DTYPES = (
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *(f"float{bits}" for bits in (16, 32, 64)),
)
"""Element types that both files and torch know."""


def specs_of(fields: Sequence[FieldConfig]) -> list[ArraySpec]:
    """The arrays of a sample.

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
                f"dataset.fields: {name!r} is an array and cannot hold {inside[0]!r}",
                hint="a name with slashes makes groups; rename one of the two",
            )
    return specs


def _spec_of(field: FieldConfig) -> ArraySpec:
    key = f"dataset.fields: {field.name}"
    if not all(part not in ("", ".", "..") for part in field.name.split("/")):
        raise ConfigError(
            f"dataset.fields: name={field.name!r} is no path inside a file", hint="for example data, or climate/data"
        )
    if field.name == INDEX or field.name.endswith(LENGTHS):
        raise ConfigError(f"dataset.fields: name={field.name!r} has a meaning of its own in a batch", hint="rename it")
    try:
        dtype = np.dtype(field.dtype)
    except TypeError as error:
        raise ConfigError(f"{key}: dtype={field.dtype!r} is no NumPy type", hint="for example float32") from error
    if dtype.name not in DTYPES or not dtype.isnative:
        raise ConfigError(
            f"{key}: dtype={field.dtype!r} is no element type of tensors", hint=f"one of {', '.join(DTYPES)}"
        )
    if any(length < 1 for length in field.shape):
        raise ConfigError(f"{key}: shape={field.shape} has an axis below 1", hint="lengths are 1 or more")
    return ArraySpec(field.name, dtype, tuple(field.shape), variable=field.length_mean > 0)
