"""Recognition of formats: by the first bytes of a file, by its framing, by the names in a folder, by suffix."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from dlio_torch.formats.core.facts import FormatFacts
from dlio_torch.formats.core.registry import all_facts

HEAD_BYTES = 16
"""First bytes of a file that are compared with the magic bytes of formats."""

_GZIP = b"\x1f\x8b"


def recognised(path: Path, head: bytes) -> FormatFacts | None:
    """Facts about the format of a file, recognised by the file's most reliable mark.

    Args:
        path: of a regular file.
        head: its first :data:`HEAD_BYTES` bytes, fewer if it is shorter.
    """
    known = all_facts()
    for facts in known:
        if head.startswith(facts.magics):
            special = (other for other in known if other.based_on == facts.name and other.recognises(path, head))
            return next(special, facts)
    for facts in known:
        if not facts.based_on and facts.recognises(path, head):
            return facts
    if head.startswith(_GZIP):  # its name tells what is in it when unpacked
        return None
    return next((facts for facts in known if facts.suffixes and path.name.lower().endswith(facts.suffixes)), None)


def recognised_file(path: Path) -> FormatFacts | None:
    """Facts about the format of a regular file.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        return recognised(path, file.read(HEAD_BYTES))


def recognised_folder(path: Path, known: Iterable[FormatFacts] | None = None) -> FormatFacts | None:
    """Facts about the format of which a folder as a whole is one data set; ``None``: it is a folder of files.

    Args:
        path: of the folder.
        known: formats among which it is looked for; ``None``: all.

    Raises:
        OSError: it cannot be listed.
    """
    names = sorted(os.listdir(path))
    known = all_facts() if known is None else known
    return next((facts for facts in known if facts.recognises_folder(path, names)), None)
