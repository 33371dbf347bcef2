"""What the data files hold inside, and what the recording cannot have seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from dlio_torch.analysis.io.captions import CAPTIONS
from dlio_torch.analysis.io.untraced import untraced
from dlio_torch.report.html.blocks import NOT_MEASURED, UNKNOWN, Absent, Block, Facts, Folded, Section, Table, Text
from dlio_torch.report.html.run.view import View
from dlio_torch.report.html.theme import clean
from dlio_torch.report.verdict import percent
from dlio_torch.units import format_size

_MOST = 5
_MOST_PARTS = 40
_LOOKED_AT = 200
_NO_DATA = (".json", ".py", ".pyc", ".so", ".log", ".txt", ".yaml")


def content_section(view: View) -> Section:
    """What the data files hold inside, where they lie on this machine."""
    title = "Inside the data files"
    if view.recording.kind not in ("run", "trace"):
        return Section("contents", title, [Absent("Files of an imported log are not looked up on this machine.")])
    # It loads torch, which the page of a log has no need of.
    from dlio_torch.analysis.io import contents

    found = [contents.summarise(path) for path in _data_files(view)]
    told = [one for one in found if one["format"] is not None][:_MOST]
    if not told:
        return Section("contents", title, [Absent("None of its data files is there any more, or of a known format.")])
    rows = [
        [
            clean(str(one["path"])),
            str(one["format"]),
            UNKNOWN if one["bytes"] is None else format_size(one["bytes"]),
            clean(str(one["summary"])) + (f" (damaged: {clean(str(one['error']))})" if one["error"] else ""),
        ]
        for one in told
    ]
    note = f"The files that moved most bytes (at most {_MOST}), read when this page was made."
    heads = ("<file", "<format", "size", "<what it holds")
    blocks: list[Block] = [Table("Contents", heads, rows, note)]
    details = _details(told[0])
    if details is not None:
        blocks.append(details)
    return Section("contents", title, blocks)


def _details(one: Mapping[str, Any]) -> Folded | None:
    """The arrays, members, columns or features of a file as a table of their own."""
    for kind in ("datasets", "arrays", "columns", "features"):
        parts = one.get(kind)
        if isinstance(parts, Sequence) and parts and all(isinstance(part, Mapping) for part in parts):
            names = [name for name in parts[0] if any(part.get(name) not in (None, [], 0) for part in parts)]
            rows = [[_cell(name, part.get(name)) for name in names] for part in parts[:_MOST_PARTS]]
            heads = tuple(f"<{name.replace('_', ' ')}" for name in names)
            left = len(parts) - len(rows)
            note = f"{left} more are left out." if left else ""
            return Folded(f"{len(parts)} {kind} of {clean(str(one['path']))}", [Table("", heads, rows, note)])
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
    """Files that moved most bytes; of a run those of its data set, even where no call was recorded."""
    names = [str(name) for name in view.files["file"].dropna().head(_LOOKED_AT).tolist()]
    paths = [Path(name) for name in names]
    if view.summary is not None:
        folder = Path(str(view.summary["dataset"]["path"]))
        inside = [path for path in paths if path == folder or folder in path.parents]
        paths = inside or ([folder] if folder.is_file() else sorted(islice(folder.rglob("*"), _LOOKED_AT)))
    wanted = (path for path in paths if path.is_absolute() and path.suffix not in _NO_DATA and path.is_file())
    return list(islice(wanted, 2 * _MOST))


def untraced_section(view: View) -> Section:
    """What the recording cannot have seen, by the kernel's counters."""
    title = "What the calls do not show"
    found = untraced(view.recording)
    if found["why"]:
        text = f"{found['why'][0].upper()}{found['why'][1:]}, so what its calls do not show is not measured."
        return Section("untraced", title, [Absent(text)])
    rows = [
        ("read, and by no call that the recorder saw", _part(found["read_bytes"], found["read_share"])),
        ("written, and by no call that the recorder saw", _part(found["write_bytes"], found["write_share"])),
        ("mapped files", _size(found["mapped_bytes"])),
        ("page faults that waited for a device", _count(found["major_faults"])),
        ("io_uring rings", _count(found["io_uring_rings"])),
        ("calls beyond the recorder's limit", _count(found["dropped_calls"])),
        ("processes that did not load the recorder", _unrecorded(found)),
        ("delivered by devices", _size(found["device_read_bytes"])),
        ("written to devices", _size(found["device_write_bytes"])),
    ]
    note = CAPTIONS["untraced"] + " Sums over all processes, as the kernel counts them (/proc/PID/io)."
    if not found["complete"]:
        note += " Some processes ended without their last count: these are lower bounds."
    return Section("untraced", title, [Facts(rows), Text(note)])


def _unrecorded(found: Mapping[str, Any]) -> str:
    if not found["unrecorded_processes"]:
        return _count(found["unrecorded_processes"])
    read, written = (_size(found[f"unrecorded_{way}_bytes"]) for way in ("read", "write"))
    names = clean(", ".join(found["unrecorded_names"][:_MOST]))
    return f"{found['unrecorded_processes']} ({names}): {read} read, {written} written"


def _part(size: int | None, share: float | None) -> str:
    return _size(size) + ("" if share is None else f" ({percent(share)})")


def _size(size: int | None) -> str:
    return NOT_MEASURED if size is None else format_size(size)


def _count(value: int | None) -> str:
    return NOT_MEASURED if value is None else f"{value:,}"
