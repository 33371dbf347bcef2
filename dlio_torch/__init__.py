"""dlio_torch emulates the I/O of deep-learning training, without the model.

Python interface, imported at its first use: :func:`compose`, :func:`run`, :func:`load_run`, :class:`Run`,
:func:`dataset`, :func:`datapipe`, :func:`loader`, :func:`emulated_step`, ``iotrace.record``, ``errors.DlioError``.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_MODULES = {
    "compose": "configuration",
    "run": "runs",
    "load_run": "runs",
    "Run": "runs",
    "dataset": "datasets",
    "datapipe": "datasets",
    "loader": "loaders",
    "emulated_step": "emulated_step",
}
# As text, so that the command line answers without torch.
_PACKAGES = ("errors", "iotrace")


def __getattr__(name: str) -> Any:
    """A function of the Python interface, or a module that it names.

    Raises:
        AttributeError: there is none of this name.
    """
    if name in _PACKAGES:
        return importlib.import_module(f"dlio_torch.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"dlio_torch.api.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    """Names of the Python interface beside those of the module."""
    return sorted({*globals(), *_MODULES, *_PACKAGES})
