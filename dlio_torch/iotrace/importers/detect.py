"""Detects the kind of a file by its content, whatever its name."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Literal

from dlio_torch.iotrace.importers.strace_lines import looks_like_strace
from dlio_torch.iotrace.importers.text_logs import head

Content = Literal["darshan", "dftracer", "strace", "tar"]

ACCEPTED = (
    "a run directory, a folder of the verb trace, a Darshan log, DFTracer .pfw files, or the text of strace -f (logs "
    "also in a folder or a .tar.gz)"
)

_DARSHAN_MAGIC = 6567223  # behind the version, 8 bytes, of every log since 3.0
_PFW = re.compile(rb'^\s*\[?\s*\{(?=[^\n]*"ph"\s*:)(?=[^\n]*"name"\s*:)(?=[^\n]*"pid"\s*:)', re.MULTILINE)
_LOOKS = (
    (b"\x89HDF\r\n", "an HDF5 file"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x1f\x8b", "a gzip file that cannot be decompressed"),
    (b"BZh", "a file compressed by bzip2"),
    (b"\x28\xb5\x2f\xfd", "a file compressed by zstd"),
    (b"\xfd7zXZ", "a file compressed by xz"),
    (b"DLIOSPAN", "the spans of one process, a part of an events folder"),
    (b"DLIOPOSX", "the calls of one process, a part of an events folder"),
    (b"\x7fELF", "a program"),
    (b"%PDF", "a PDF file"),
)


def content(path: Path) -> Content | None:
    """Kind of a file by its content; None if the kind is not supported.

    Raises:
        DataError: it cannot be opened.
    """
    first = head(path)
    if len(first) >= 16 and _DARSHAN_MAGIC in (
        *struct.unpack_from("<q", first, 8),
        *struct.unpack_from(">q", first, 8),
    ):
        return "darshan"
    if first[257:262] == b"ustar":
        return "tar"
    if b'"traceEvents"' in first[:4096]:
        return None
    if _PFW.search(first):
        return "dftracer"
    return "strace" if b"\0" not in first and looks_like_strace(first) else None


def describe(path: Path) -> str:
    """Describes an unsupported file in words."""
    first = head(path)
    if not first:
        return "an empty file" if path.stat().st_size == 0 else _LOOKS[2][1]
    if b'"traceEvents"' in first[:4096]:
        return "a Perfetto trace, which lacks data that the analysis needs"
    for start, words in _LOOKS:
        if first.startswith(start):
            return words
    if re.match(rb"# darshan log version", first):
        return "the text output of darshan-parser (give the path of the log itself)"
    if b"\0" in first:
        return "a binary file"
    line = first.split(b"\n", 1)[0][:60].decode("utf-8", "replace").strip()
    return f"text that begins with {line!r}"
