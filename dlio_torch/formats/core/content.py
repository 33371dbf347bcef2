"""Limits and errors of looking into a file that is not to be trusted."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

MOST = 1000
"""Arrays, members or columns that are listed at most."""
DAMAGE = (EOFError, ValueError, LookupError, struct.error, zlib.error, zipfile.BadZipFile, RuntimeError)
"""Errors that libraries raise over damaged files, beside ``OSError``."""


def least(content: Mapping[str, Any]) -> str:
    """``at least `` where the file was not read to its end."""
    return "" if content.get("complete", True) else "at least "
