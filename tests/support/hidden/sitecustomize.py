"""Hides modules and libraries from a Python process; Python imports this as it starts, by its name.

``DLIO_TORCH_TEST_HIDDEN`` names them: modules as ``mpi4py``, libraries as ``libsiloh5``.
"""

from __future__ import annotations

import os
import sys
from typing import Any

VARIABLE = "DLIO_TORCH_TEST_HIDDEN"


class WithoutModules:
    """A finder of modules that does not find some.

    Args:
        finder: an entry of ``sys.meta_path``.
        names: top-level modules that are not found.
    """

    def __init__(self, finder: Any, names: set[str]) -> None:
        self._finder, self._names = finder, names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return None if name.partition(".")[0] in self._names else self._finder.find_spec(name, path, target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)


def hide_modules(names: set[str]) -> None:
    sys.meta_path[:] = [WithoutModules(finder, names) for finder in sys.meta_path]


def hide_libraries(names: set[str]) -> None:
    import ctypes

    load = ctypes.CDLL

    class CDLL(load):  # type: ignore[misc, valid-type]
        def __init__(self, name: Any, *args: Any, **kwargs: Any) -> None:
            if os.path.basename(str(name)).partition(".")[0] in names:
                raise OSError(f"{name}: cannot open shared object file: No such file or directory")
            super().__init__(name, *args, **kwargs)

    ctypes.CDLL = CDLL  # type: ignore[misc]


hidden = set(os.environ.get(VARIABLE, "").split())
libraries = {name for name in hidden if name.startswith("lib")}
if hidden - libraries:
    hide_modules(hidden - libraries)
if libraries:
    hide_libraries(libraries)
