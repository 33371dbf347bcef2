"""Options that generate Parquet files like existing ones: rows of a row group, codec and size of the columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dlio_torch.formats.core.data_description import DataDescription
from dlio_torch.formats.core.recreation import ObservedReads, Recreation
from dlio_torch.formats.core.table_errors import table_errors
from dlio_torch.formats.parquet.footer import column_chunks

_CODECS = ("snappy", "gzip", "zstd")
_MOST_GROUPS = 1.2  # row groups read for each open, up to which a file is opened for each of them


def recreate(description: DataDescription, reads: ObservedReads) -> Recreation:
    """The recreation of existing files, which are alike; the description is that of one of them."""
    chunks = _chunks(reads.files[0])
    calls = _with_groups(reads, chunks)
    names = _columns_read(calls, chunks)
    fields = tuple(entry for entry in description.fields if not names or entry.name in names) or description.fields
    kept = {entry.name for entry in fields}
    codecs = [array.compression for array in description.arrays if array.name in kept]
    codec = next((name for name in codecs if name), "none")
    options: dict[str, Any] = {
        **description.options,
        "row_group_samples": max(1, int(description.details["row_group_samples"])),
        "compression": codec if codec in _CODECS else "none",
        "dictionary": bool(chunks["dictionary"][chunks["column"].isin(kept)].any()),
    }
    evidence: dict[str, str] = {}
    _add_reading(options, evidence, reads, calls)
    others = sorted({array.name for array in description.arrays} - kept)
    differences = [f"the column {name} is not generated" for name in others]
    if codec not in (*_CODECS, "none"):
        differences.append(f"columns are compressed by {codec}, generated ones are not compressed")
    return Recreation(fields, options, evidence=evidence, differences=tuple(differences))


def _add_reading(options: dict[str, Any], evidence: dict[str, str], reads: ObservedReads, calls: pd.DataFrame) -> None:
    """Add the arguments of the library's calls."""
    advice, threads = len(reads.calls_of("posix_fadvise")), calls.groupby("pid")["tid"].nunique().max()
    options |= {"memory_map": reads.is_mapped, "pre_buffer": advice > 0, "use_threads": bool(advice or threads > 1)}
    evidence["memory_map"] = f"{len(reads.calls_of('mmap'))} maps and {len(reads.read_calls)} reads of the files"
    evidence["pre_buffer"] = f"{advice} requests to read ahead (posix_fadvise)"
    evidence["use_threads"] = f"up to {threads} threads of a process read"
    in_groups = calls[calls["group"] >= 0]
    opens = int((reads.calls["op"] == "open").sum())
    if in_groups.empty or not opens:
        return
    loads = sum(1 for _ in _loads(in_groups))
    if calls["group"].max() > 0 and len(in_groups.groupby("file", observed=True)) * 2 < opens:
        if loads <= _MOST_GROUPS * opens:
            options["reopen"] = "row_group"
            evidence["reopen"] = f"{opens} opens for {loads} row groups"
    elif in_groups.groupby(["pid", "file"], observed=True)["batch"].nunique().max() == 1 and loads > opens:
        options["read"] = "table"
        evidence["read"] = f"all row groups of a file are read for one sample, {loads} of them with {opens} opens"


def _loads(in_groups: pd.DataFrame) -> Iterator[tuple[Any, ...]]:
    """Row groups in the order in which each process reads them; several reads of one after another are one."""
    for key, rows in in_groups.groupby(["pid", "file"], observed=True):
        previous = None
        for group in rows["group"]:
            if group != previous:
                yield (*key, group)
            previous = group


def _chunks(path: Path) -> pd.DataFrame:
    """Begin and end of each column chunk, with its column and row group, sorted."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows: list[tuple[int, int, str, int, bool]] = []
    with table_errors(path), closing(pa.OSFile(str(path), "rb")) as source:
        file = pq.ParquetFile(source, pre_buffer=False)
        of_group: dict[str, int] = {}
        for name, chunk in column_chunks(file.metadata, file.schema_arrow.names):
            begin = chunk.dictionary_page_offset or chunk.data_page_offset
            rows.append(
                (
                    begin,
                    begin + chunk.total_compressed_size,
                    name,
                    of_group.setdefault(name, 0),
                    chunk.has_dictionary_page,
                )
            )
            of_group[name] += 1
    return pd.DataFrame(sorted(rows), columns=["begin", "end", "column", "group", "dictionary"])


def _columns_read(calls: pd.DataFrame, chunks: pd.DataFrame) -> set[str]:
    """Names of the columns of whose chunks a call reads bytes; one call may read several chunks."""
    ends = (calls["offset"] + calls["bytes"]).to_numpy()
    last = np.searchsorted(chunks["begin"].to_numpy(), ends, side="left") - 1
    pairs = {(first, last) for first, last in zip(calls["chunk"], last, strict=True) if first >= 0}
    return {str(name) for first, last in pairs for name in chunks["column"].iloc[first : last + 1]}


def _with_groups(reads: ObservedReads, chunks: pd.DataFrame) -> pd.DataFrame:
    """Read calls with the columns ``chunk`` and ``group`` in which they begin; -1: in none."""
    calls = reads.read_calls.copy()
    sizes = calls["file"].astype(str).map({str(path): path.stat().st_size for path in reads.files})
    is_footer = (calls["offset"] + calls["bytes"] >= sizes).to_numpy()
    place = np.searchsorted(chunks["begin"].to_numpy(), calls["offset"].to_numpy(), side="right") - 1
    inside = (place >= 0) & (calls["offset"].to_numpy() < chunks["end"].to_numpy()[np.maximum(place, 0)]) & ~is_footer
    calls["chunk"] = np.where(inside, place, -1)
    calls["group"] = np.where(inside, chunks["group"].to_numpy()[np.maximum(place, 0)], -1)
    return calls
