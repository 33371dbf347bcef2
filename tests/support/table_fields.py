"""Fields of generated tables: scalars, arrays and lists of several types."""

from __future__ import annotations

from dlio_torch.config.schema import FieldConfig

FIELDS = [
    FieldConfig("label", "int64", []),
    FieldConfig("image", "float32", [16, 12]),
    FieldConfig("group/mask", "uint8", [16, 12]),
    FieldConfig("class", "uint8", []),
    FieldConfig("flags", "bool", [9]),
    FieldConfig("half", "float16", [33]),
    FieldConfig("tokens", "int32", [], length_mean=40, length_stdev=15),
    FieldConfig("points", "float64", [3], length_mean=30, length_stdev=10),
    FieldConfig("jpeg", "uint8", [], length_mean=900, length_stdev=200),
    FieldConfig("bits", "bool", [2], length_mean=5, length_stdev=2),
]
