"""Sums of counters, for logs without single calls.

Counts, bytes and summed times are exact.  Times and sizes of single calls are not known, so there are no unions of
intervals, no medians and no distinct bytes.  Darshan sums the ranks that share a file into one row (rank -1), which
belongs to no rank.  NaN: not known; a sum is not known if one of its values is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from dlio_torch.iotrace.events.recording import COUNTERS
from dlio_torch.iotrace.figures.group_figures import quotient, typed

_VALUES = COUNTERS[3:]
_COPIED = ("opens", "reads", "writes", "seeks", "bytes_read", "bytes_written")
_DERIVED = ("read_mean_bytes", "write_mean_bytes", "sequential", "consecutive")


def by_file(counters: pd.DataFrame, layers: str | Sequence[str] | None = None) -> pd.DataFrame:
    """Sums of counters in one row per layer and file.

    Args:
        counters: columns :data:`dlio_torch.iotrace.events.recording.COUNTERS`.
        layers: these ones; None: all, but a file's MPI-IO rows only where it has no POSIX row, because
            MPI-IO ends in POSIX calls.

    Returns:
        Columns layer, file, and the figures of :mod:`dlio_torch.iotrace.figures.group_figures`.
    """
    return _figures(_counting(counters, layers), ["layer", "file"])


def by_rank(counters: pd.DataFrame, layers: str | Sequence[str] | None = None) -> pd.DataFrame:
    """Sums of counters in one row per rank; empty if a counter is a sum over ranks."""
    rows = _counting(counters, layers)
    return _figures(rows if (rows["rank"] >= 0).all() else rows.iloc[:0], ["rank"])


def by_layer(counters: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Sums by layer as plain values (None: not known), with the number of files and derived figures."""
    rows = _known(counters)
    sums, figures = _sums(rows, ["layer"]), _figures(rows, ["layer"])
    layers: dict[str, dict[str, Any]] = {}
    for row, more in zip(sums.to_dict("records"), figures.to_dict("records"), strict=True):
        plain: dict[str, float | None] = {str(key): _plain(row[key]) for key in _VALUES}
        layers[str(row["layer"])] = {
            "coarse": True,
            "files": int(row["files"]),
            **{key: value if value is None or key.endswith("_s") else int(value) for key, value in plain.items()},
            **{name: _plain(more[name]) for name in _DERIVED},
        }
    return layers


def _known(counters: pd.DataFrame) -> pd.DataFrame:
    """The table with NaN for unknown values and plain strings instead of categoricals."""
    table: pd.DataFrame = counters[list(COUNTERS)].copy()
    for name in ("layer", "file"):
        table[name] = table[name].astype(object)
    for name in _VALUES:
        values = table[name].to_numpy(dtype=float)
        table[name] = np.where(values < 0, np.nan, values)
    return table


def _counting(counters: pd.DataFrame, layers: str | Sequence[str] | None) -> pd.DataFrame:
    rows = _known(counters)
    if layers is None:
        doubled = (rows["layer"] == "mpiio") & rows["file"].isin(rows.loc[rows["layer"] == "posix", "file"])
        keep = ~doubled
    else:
        keep = rows["layer"].isin([layers] if isinstance(layers, str) else list(layers))
    chosen: pd.DataFrame = rows[keep]
    return chosen


def _sums(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    groups = rows.groupby(keys, sort=True, dropna=False)
    values = groups[list(_VALUES)]
    table: pd.DataFrame = values.sum().where(values.count().eq(groups.size(), axis=0))
    table.insert(0, "files", groups["file"].nunique())
    if "rank" not in keys:
        table.insert(0, "ranks", groups["rank"].nunique().where(groups["rank"].min() >= 0).astype(float))
    by_file: pd.DataFrame = table.reset_index()
    return by_file


def _figures(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    sums = _sums(rows, keys)
    transfers = (sums["reads"] + sums["writes"]).to_numpy()
    kept = [name for name in (*keys, "ranks", "files", *_COPIED) if name in sums]
    table: pd.DataFrame = sums[kept].assign(
        read_mean_bytes=quotient(sums["bytes_read"].to_numpy(), sums["reads"].to_numpy()),
        write_mean_bytes=quotient(sums["bytes_written"].to_numpy(), sums["writes"].to_numpy()),
        sequential=quotient((sums["sequential_reads"] + sums["sequential_writes"]).to_numpy(), transfers),
        consecutive=quotient((sums["consecutive_reads"] + sums["consecutive_writes"]).to_numpy(), transfers),
        summed_s=sums["read_s"] + sums["write_s"] + sums["meta_s"],
    )
    return typed(table)


def _plain(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)
