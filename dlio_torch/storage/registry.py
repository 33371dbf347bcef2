"""URL schemes, and the storage of each.

The table holds strings, so that no storage is imported before it is used.
"""

from __future__ import annotations

import importlib
import os
import re
from typing import TYPE_CHECKING

from dlio_torch.errors import ConfigError

if TYPE_CHECKING:
    from dlio_torch.storage.base import Storage

LOCAL = ""
"""The scheme of a path: it has none."""

BUILTIN: dict[str, str] = {
    LOCAL: "dlio_torch.storage.local.storage:LocalStorage",
}
"""Scheme -> ``module:Class``."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")  # RFC 3986, 3.1


def scheme_of(location: str) -> str:
    """The scheme of a URL in lower case; that of a path is :data:`LOCAL`."""
    match = _SCHEME.match(location)
    return LOCAL if match is None else match[1].lower()


def unknown_scheme(location: str) -> tuple[str, str] | None:
    """Problem and way out for a location that no storage serves; ``None`` if one does."""
    scheme = scheme_of(location)
    if scheme in BUILTIN:
        return None
    path = location[len(scheme) + len("://") :]
    fix = f"write {path}" if scheme == "file" else "name a folder; a bucket must be mounted as one"
    return f"no storage is known for {scheme}:// URLs", fix


def open_storage(location: str | os.PathLike[str]) -> Storage:
    """The storage whose root is a local folder or a URL.

    Raises:
        ConfigError: no storage is known for its scheme.
    """
    root = os.fspath(location)
    problem = unknown_scheme(root)
    if problem is not None:
        raise ConfigError(f"{root}: {problem[0]}", hint=problem[1])
    module, _, name = BUILTIN[scheme_of(root)].partition(":")
    storage: Storage = getattr(importlib.import_module(module), name)(root)
    return storage
