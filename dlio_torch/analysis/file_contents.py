"""Describes the content of a data file from its headers and framing, without reading the data.

Nothing here trusts the file.  A damaged one gives what could be read and an ``error``; lists are cut at
:data:`~dlio_torch.formats.core.content.MOST`, and say so; links out of an HDF5 file are not followed, pickled objects
not loaded, and of compressed streams only the beginning is unpacked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dlio_torch.errors import DlioError
from dlio_torch.formats.core.content import DAMAGE
from dlio_torch.formats.core.facts import FormatFacts
from dlio_torch.formats.core.recognition import recognised_file
from dlio_torch.formats.core.registry import read_content
from dlio_torch.units import format_size


def summarise(path: Path | str) -> dict[str, Any]:
    """Describes the content of a file as plain values for JSON.

    Args:
        path: of a known format, recognised by its magic bytes or its framing, else by its name; any other file gives
            its size only.

    Returns:
        ``path``, ``bytes`` (None: there is no such file), ``format`` (None: not known), ``summary``, one line of text,
        ``error``, why something could not be read, else None; and what ``formats/<family>/content.py`` of its format
        adds.
    """
    place = Path(path)
    content_facts: dict[str, Any] = {"path": str(path), "bytes": None, "format": None, "summary": "", "error": None}
    kind: FormatFacts | None = None
    try:
        content_facts["bytes"] = place.stat().st_size
        if not place.is_file():
            raise ValueError("it is not a regular file")
        kind = recognised_file(place)
        if kind is not None:
            content_facts["format"] = kind.name
            read_content(kind, place, content_facts)
    except DlioError as error:
        content_facts["error"] = str(error)
    except ImportError as error:
        content_facts["error"] = f"a package is missing: {error}"
    except OSError as error:
        content_facts["error"] = error.strerror or str(error)
    except DAMAGE as error:
        content_facts["error"] = str(error) or type(error).__name__
    content_facts["summary"] = _line(content_facts, kind)
    return content_facts


def _line(content_facts: dict[str, Any], kind: FormatFacts | None) -> str:
    """Describes the content of a file in one line."""
    if content_facts["bytes"] is None:
        return str(content_facts["error"])
    text = f"{content_facts['format'] or 'unknown format'}, {format_size(content_facts['bytes'])}"
    if kind is not None and (content := kind.content_text(content_facts)):
        text += f", {content}"
    return text + (f"; {content_facts['error']}" if content_facts["error"] else "")
