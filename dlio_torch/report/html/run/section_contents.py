"""Builds the sections on the content of data files, and on I/O that the recording does not contain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from dlio_torch.iotrace.figures.captions import CAPTIONS
from dlio_torch.iotrace.figures.untraced_io import untraced
from dlio_torch.report.html.page_blocks import NOT_MEASURED, UNKNOWN, Absent, Block, Facts, Folded, Section, Table, Text
from dlio_torch.report.html.run.view import View
from dlio_torch.report.html.theme import clean
from dlio_torch.units import format_size, percent

_MOST = 5
_MOST_PARTS = 40
_LOOKED_AT = 200
_NO_DATA = (".json", ".py", ".pyc", ".so", ".log", ".txt", ".yaml")


def content_section(view: View) -> Section:
    """Builds the section on the content of the data files that exist on this machine."""
    title = "Inside the data files"
    if view.recording.kind not in ("run", "trace"):
        return Section("contents", title, [Absent("The data files of an imported log are not read.")])
    # It loads torch, which the page of a log has no need of.
    from dlio_torch.analysis import file_contents

    summaries = [file_contents.summarise(path) for path in _data_files(view)]
    known = [file for file in summaries if file["format"] is not None][:_MOST]
    if not known:
        return Section("contents", title, [Absent("None of the data files still exists in a known format.")])
    rows = [
        [
            clean(str(file["path"])),
            str(file["format"]),
            UNKNOWN if file["bytes"] is None else format_size(file["bytes"]),
            clean(str(file["summary"])) + (f" (damaged: {clean(str(file['error']))})" if file["error"] else ""),
        ]
        for file in known
    ]
    note = f"The {_MOST} files (at most) with the most bytes moved; their content was read when this page was written."
    heads = ("<file", "<format", "size", "<content")
    blocks: list[Block] = [Table("Contents", heads, rows, note)]
    details = _details(known[0])
    if details is not None:
        blocks.append(details)
    return Section("contents", title, blocks)


def _details(file: Mapping[str, Any]) -> Folded | None:
    """A table of the arrays, members, columns or features of one file."""
    for kind in ("datasets", "arrays", "columns", "features"):
        parts = file.get(kind)
        if isinstance(parts, Sequence) and parts and all(isinstance(part, Mapping) for part in parts):
            names = [name for name in parts[0] if any(part.get(name) not in (None, [], 0) for part in parts)]
            rows = [[_cell(name, part.get(name)) for name in names] for part in parts[:_MOST_PARTS]]
            heads = tuple(f"<{name.replace('_', ' ')}" for name in names)
            left = len(parts) - len(rows)
            note = f"{left} more rows are not shown." if left else ""
            return Folded(f"{len(parts)} {kind} of {clean(str(file['path']))}", [Table("", heads, rows, note)])
    return None


def _cell(name: str, value: Any) -> str:
    if value is None or value == []:
        return UNKNOWN
    if name.endswith("_bytes") and isinstance(value, int):
        return format_size(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return (", " if name == "filters" else " x ").join(clean(str(item)) for item in value)
    return clean(str(value))


def _data_files(view: View) -> list[Path]:
    """Files with the most bytes moved; for a run, files of its data set, even without recorded calls."""
    names = [str(name) for name in view.files["file"].dropna().head(_LOOKED_AT).tolist()]
    paths = [Path(name) for name in names]
    if view.summary is not None:
        folder = Path(str(view.summary["dataset"]["path"]))
        inside = [path for path in paths if path == folder or folder in path.parents]
        paths = inside or ([folder] if folder.is_file() else sorted(islice(folder.rglob("*"), _LOOKED_AT)))
    wanted = (path for path in paths if path.is_absolute() and path.suffix not in _NO_DATA and path.is_file())
    return list(islice(wanted, 2 * _MOST))


def untraced_section(view: View) -> Section:
    """Builds the section on I/O that is in the kernel's counters but not in the recording."""
    title = "I/O outside the recorded calls"
    totals = untraced(view.recording)
    if totals["why"]:
        text = f"{totals['why'][0].upper()}{totals['why'][1:]}, so I/O outside of the recorded calls is not measured."
        return Section("untraced", title, [Absent(text)])
    rows = [
        ("bytes read outside of the recorded calls", _part(totals["read_bytes"], totals["read_share"])),
        ("bytes written outside of the recorded calls", _part(totals["write_bytes"], totals["write_share"])),
        ("size of mapped files", _size(totals["mapped_bytes"])),
        ("page faults that waited for a device", _count(totals["major_faults"])),
        ("io_uring rings", _count(totals["io_uring_rings"])),
        ("calls not recorded because of the recorder's limit", _count(totals["dropped_calls"])),
        ("processes that did not load the recorder", _unrecorded(totals)),
        ("bytes delivered by devices", _size(totals["device_read_bytes"])),
        ("bytes written to devices", _size(totals["device_write_bytes"])),
    ]
    note = CAPTIONS["untraced"] + " The values are sums over all processes, as the kernel counts them (/proc/PID/io)."
    if not totals["complete"]:
        note += " Some processes ended before their last counters were read, so the values are lower bounds."
    return Section("untraced", title, [Facts(rows), Text(note)])


def _unrecorded(totals: Mapping[str, Any]) -> str:
    if not totals["unrecorded_processes"]:
        return _count(totals["unrecorded_processes"])
    read, written = (_size(totals[f"unrecorded_{way}_bytes"]) for way in ("read", "write"))
    names = clean(", ".join(totals["unrecorded_names"][:_MOST]))
    return f"{totals['unrecorded_processes']} ({names}): {read} read, {written} written"


def _part(size: int | None, share: float | None) -> str:
    return _size(size) + ("" if share is None else f" ({percent(share)})")


def _size(size: int | None) -> str:
    return NOT_MEASURED if size is None else format_size(size)


def _count(value: int | None) -> str:
    return NOT_MEASURED if value is None else f"{value:,}"
