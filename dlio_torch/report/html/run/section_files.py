"""Builds the tables of files and of ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from dlio_torch.analysis.rank_steps import PARTS
from dlio_torch.iotrace.figures import io_tables
from dlio_torch.report.html.page_blocks import UNKNOWN, Absent, Block, Section, Table
from dlio_torch.report.html.run.view import GET_CALLS, View
from dlio_torch.report.html.theme import clean
from dlio_torch.units import format_duration, format_rate, format_size, percent

_MOST_FILES = 20
_MOST_RANKS = 64
_RULES = (
    "I/O time: length of the union of the intervals of the file's calls, over all processes. Sequential and "
    "consecutive: share of the accesses by Darshan's rule. Times read: bytes read / distinct bytes read."
)


def file_section(view: View) -> Section:
    """Builds the table of the files with the most bytes moved, with a sum of the others."""
    frame = view.files
    if not len(frame):
        return Section("files", "Files", [Absent(f"No file was recorded. {GET_CALLS}")])
    count = frame["file"].nunique()
    rows = [_file_row(row) for row in frame.head(_MOST_FILES).to_dict("records")]
    rest = frame.iloc[_MOST_FILES:]
    if len(rest):
        sums = {name: rest[name].sum() if rest[name].notna().any() else None for name in _SUMS}
        more = f"{len(rest)} more {'rows' if len(frame) > count else 'files'}"
        rows.append(_file_row({"file": more, "layer": "", **sums}, named=False))
    sums = {name: frame[name].sum() if frame[name].notna().any() else None for name in _SUMS}
    foot = _file_row({"file": f"{'all files' if len(frame) > 1 else 'sum'}", "layer": "", **sums}, named=False)
    note = "Files are sorted by bytes moved. " + _RULES
    if (frame["source"] == "counters").any():
        note += " Rows from a log's counters have sums only, and their I/O time is summed over processes."
        called = frame.loc[frame["source"] == "events", "file"].nunique()
        note += f" {called} files have recorded calls; {count - called} files have counters only."
    title = f"{count} file{'' if count == 1 else 's'}"
    if len(frame) > count:
        title += f" in {len(frame)} rows, one per layer and file"
    title += f", the {_MOST_FILES} with most bytes" if len(rest) else ""
    every = [*rows, foot]
    filled = [column for column in range(len(_FILE_HEADS)) if any(row[column] not in ("", UNKNOWN) for row in every)]
    heads = tuple(_FILE_HEADS[column] for column in filled)
    rows, foot = [[row[column] for column in filled] for row in rows], [foot[column] for column in filled]
    return Section("files", "Files", [Table(title, heads, rows, note, foot, tall=True)])


_SUMS = ("opens", "reads", "bytes_read", "writes", "bytes_written")
_FILE_HEADS = (
    "<file",
    "<layer",
    "ranks",
    "opens",
    "reads",
    "read",
    "mean",
    "writes",
    "written",
    "mean",
    "sequential",
    "consec.",
    "I/O time",
    "times read",
)


def _file_row(row: Any, named: bool = True) -> list[str]:
    name = row["file"]
    spent = row.get("io_s")
    if not _known(spent):
        spent = row.get("summed_s")
    return [
        clean(str(name)) if _known(name) else "file not known",
        str(row["layer"]) + (", counters" if row.get("source") == "counters" else ""),
        _count(row.get("ranks")) if named else "",
        _count(row.get("opens")),
        _count(row.get("reads")),
        _size(row.get("bytes_read")),
        _size(row.get("read_mean_bytes"), "" if not row.get("reads") else UNKNOWN) if named else "",
        _count(row.get("writes")),
        _size(row.get("bytes_written")),
        _size(row.get("write_mean_bytes"), "" if not row.get("writes") else UNKNOWN) if named else "",
        _share(row.get("sequential")) if named else "",
        _share(row.get("consecutive")) if named else "",
        (format_duration(spent) if _known(spent) else UNKNOWN) if named else "",
        (f"{row['reuse']:.3g}" if _known(row.get("reuse")) else UNKNOWN) if named else "",
    ]


_CALL_HEADS = (
    *("rank", "processes", "files", "opens", "reads", "read", "writes", "written"),
    *("sequential", "consec.", "I/O time", "read rate"),
)


def rank_section(view: View) -> Section:
    """Builds the table with one row per rank: its training figures and its I/O figures."""
    training = list(view.summary["ranks"]) if view.summary is not None else []
    frame = io_tables.ranks(view.recording)
    if not training and not len(frame):
        return Section("ranks", "Ranks", [Absent(f"No figures of single ranks were recorded. {GET_CALLS}")])
    blocks: list[Block] = []
    if training:
        parts = [part for part in PARTS if part != "copy" or any(row.get("copy_s") is not None for row in training)]
        heads = ("rank", "steps", "samples/s", "utilisation", *parts)
        rows = [_training_cells(row, parts) for row in training[:_MOST_RANKS]]
        note = "Times are means over the measured steps of the rank." + _left(len(training))
        blocks.append(Table("Training figures of each rank", heads, rows, note))
    if len(frame):
        rows = [_call_cells(row) for row in frame.head(_MOST_RANKS).to_dict("records")]
        note = (
            "I/O time: length of the union of the intervals of the rank's I/O calls. Read rate: bytes read / I/O "
            "time of the read calls."
        )
        if view.counted_words and (frame["source"] == "events").any():
            note += (
                f" Only recorded calls are counted; the counters contain a further {view.counted_words}, which no "
                "row includes."
            )
        blocks.append(Table("I/O figures of each rank", _CALL_HEADS, rows, note + _left(len(frame))))
    return Section("ranks", "Ranks", blocks)


def _left(count: int) -> str:
    return f" {count - _MOST_RANKS} more ranks are not shown." if count > _MOST_RANKS else ""


def _training_cells(row: Mapping[str, Any], parts: Sequence[str]) -> list[str]:
    times = [row[f"{part}_s"] for part in parts]
    return [
        str(row["rank"]),
        f"{row['steps']:,}",
        UNKNOWN if row["samples_per_s"] is None else f"{row['samples_per_s']:.4g}",
        UNKNOWN if row["au"] is None else percent(row["au"]),
        *(UNKNOWN if value is None else format_duration(value) for value in times),
    ]


def _call_cells(row: Any) -> list[str]:
    spent, read = row["io_s"], row["bytes_read"]
    return [
        str(row["rank"]) if row["rank"] >= 0 else "shared",
        *(_count(row[name]) for name in ("processes", "files", "opens", "reads")),
        _size(read),
        _count(row["writes"]),
        _size(row["bytes_written"]),
        _share(row["sequential"]),
        _share(row["consecutive"]),
        format_duration(spent) if _known(spent) else UNKNOWN,
        format_rate(read / spent) if _known(read) and _known(spent) and read and spent else UNKNOWN,
    ]


def _known(value: Any) -> bool:
    return value is not None and not pd.isna(value)


def _count(value: Any) -> str:
    return f"{int(value):,}" if _known(value) else UNKNOWN


def _size(value: Any, unknown: str = UNKNOWN) -> str:
    return format_size(round(float(value))) if _known(value) else unknown


def _share(value: Any) -> str:
    return percent(float(value)) if _known(value) else UNKNOWN
