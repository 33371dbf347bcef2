"""Registry of URL schemes and their storage classes.

The table holds strings, so that no storage is imported before its first use.  An installed package adds a storage
through the entry point group ``dlio_torch.storages``: ``scheme = "package.module:Class"``, where the class is a
:class:`~dlio_torch.storage.base.Storage`.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dlio_torch.errors import ConfigError, MissingPackageError, PreconditionError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from dlio_torch.storage.base import Storage

LOCAL = ""
"""Scheme of local paths, which have none."""

BUILTIN: dict[str, str] = {
    LOCAL: "dlio_torch.storage.local.storage:LocalStorage",
}
"""Scheme -> ``module:Class``."""

ENTRY_POINTS = "dlio_torch.storages"
"""Entry point group of storages of other packages."""

Refusal = tuple[str, str]
"""Problem of a location, and the remedy."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")  # RFC 3986, 3.1


def entry_points(group: str) -> Iterable[EntryPoint]:
    """Entry points of installed packages; imported here, since that takes as long as the rest of ``--help``."""
    from importlib import metadata

    return metadata.entry_points(group=group)


def available() -> dict[str, str]:
    """All storages, scheme -> ``module:Class``; a built-in storage hides an entry point of the same scheme."""
    return {**{point.name: point.value for point in entry_points(group=ENTRY_POINTS)}, **BUILTIN}


def scheme_of(location: str) -> str:
    """The scheme of a URL in lower case; :data:`LOCAL` for a path."""
    match = _SCHEME.match(location)
    return LOCAL if match is None else match[1].lower()


def unknown_scheme(location: str) -> Refusal | None:
    """The problem of a URL whose scheme has no storage; ``None`` if a storage is known."""
    scheme = scheme_of(location)
    if scheme in BUILTIN:  # without a look at every installed package
        return None
    known = available()
    if scheme in known:
        return None
    urls = "".join(f", {other}://" for other in sorted(known) if other)
    path = location[len(scheme) + len("://") :]
    fix = f"write {path}" if scheme == "file" else "use a local path; mount the bucket first"
    return f"no storage supports {scheme}:// URLs; supported are paths (no scheme){urls}", fix


def no_local_path(location: str) -> Refusal | None:
    """The problem of a URL where a local path is required; ``None`` for a path."""
    scheme = scheme_of(location)
    if scheme == LOCAL:
        return None
    return unknown_scheme(location) or (f"a local path is required, not a {scheme}:// URL", "use a local path")


def storage_class(location: str) -> type[Storage]:
    """The class of the storage of a location; nothing is opened or created.

    Raises:
        ConfigError: no storage is known for its scheme.
        MissingPackageError: the storage needs a package that is not installed.
        PreconditionError: the entry point of an installed package names no storage class.
    """
    problem = unknown_scheme(location)
    if problem is not None:
        raise ConfigError(f"{location}: {problem[0]}", hint=problem[1])
    scheme = scheme_of(location)
    target = BUILTIN.get(scheme) or available()[scheme]
    module, _, name = target.partition(":")
    try:
        named = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise MissingPackageError(
            f"{location}: the storage of {scheme}:// URLs needs a package that is not installed ({error})",
            hint=f"install the package that provides {error.name!r}" if error.name else "install it",
        ) from error
    from dlio_torch.storage.base import Storage

    if not (isinstance(named, type) and issubclass(named, Storage)):
        raise PreconditionError(
            f"{location}: {target!r} is not a Storage class",
            hint=f"correct the entry point {scheme!r} in the package that adds the storage",
        )
    return named


def open_storage(location: str | os.PathLike[str]) -> Storage:
    """The storage whose root is a local folder or a URL.

    Raises:
        DlioError: see :func:`storage_class`.
    """
    root = os.fspath(location)
    return storage_class(root)(root)
