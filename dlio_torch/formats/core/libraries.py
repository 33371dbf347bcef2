"""Import of the libraries that formats need and a plain installation lacks."""

from __future__ import annotations

import importlib
from typing import Any

from dlio_torch.errors import MissingPackageError


def import_library(module: str, need: str, extra: str, *, otherwise: str = "") -> Any:
    """Imports a library, or says in a line what installs it.

    Args:
        module: as an import statement names it.
        need: what needs which package; begins the message.
        extra: of dlio_torch that installs the package.
        otherwise: a setting that does without the package, for the hint.

    Raises:
        MissingPackageError: the library is not installed, or cannot be imported.
    """
    try:
        importlib.import_module(module.partition(".")[0])  # an inner module may have been imported without it
        return importlib.import_module(module)
    except ImportError as error:
        is_missing = isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")
        problem = "is not installed" if is_missing else f"cannot be imported ({error})"
        hint = f"pip install 'dlio-torch[{extra}]'" + (f", or {otherwise}" if otherwise else "")
        raise MissingPackageError(f"{need}, which {problem}", hint=hint) from error
