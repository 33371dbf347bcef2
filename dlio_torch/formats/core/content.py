"""Limits and exceptions for the inspection of untrusted files."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

MOST = 1000
"""Maximum number of arrays, members or columns that a listing shows."""
DAMAGE = (EOFError, ValueError, LookupError, struct.error, zlib.error, zipfile.BadZipFile, RuntimeError)
"""Exceptions, besides ``OSError``, that libraries raise for damaged files."""


def least(content: Mapping[str, Any]) -> str:
    """Returns the prefix ``at least `` if the file was not read to its end, else an empty string."""
    return "" if content.get("complete", True) else "at least "
