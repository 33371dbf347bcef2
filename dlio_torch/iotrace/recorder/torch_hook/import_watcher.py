"""Calls functions with modules of the program when these have been imported."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

from dlio_torch.iotrace.recorder.torch_hook.patched_names import is_half_imported

Patch = Callable[[ModuleType], None]


class ImportWatcher:
    """Finder at the begin of ``sys.meta_path`` that finds nothing itself, but sees which module is imported.

    A module that has been imported is patched at once; one whose import has begun, after its end.

    Args:
        patches: function to call with a module, by the module's name; they must not raise.
    """

    def __init__(self, patches: Mapping[str, Patch]) -> None:
        self._patches = dict(patches)
        self._half_imported: set[str] = set()

    def start(self) -> None:
        """Begins to watch."""
        for name in list(self._patches):
            module = sys.modules.get(name)
            if module is not None:
                if is_half_imported(module):
                    self._half_imported.add(name)
                else:
                    self._patches.pop(name)(module)
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Part of the import system: the specification of a watched module, of the next finder that has it."""
        if self._half_imported:
            self._patch_completed()
        if name not in self._patches:
            return None
        spec = self._spec_of_others(name, path, target)
        if spec is not None and spec.loader is not None:
            self._await_end(name, spec.loader)
        return spec

    def _spec_of_others(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> importlib.machinery.ModuleSpec | None:
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is not self and find is not None:
                spec: importlib.machinery.ModuleSpec | None = find(name, path, target)
                if spec is not None:
                    return spec
        return None

    def _await_end(self, name: str, loader: object) -> None:
        """Patches a module after its loader has executed it; the loader looks as before to the module."""
        execute = getattr(loader, "exec_module", None)

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # type: ignore[attr-defined]
            assert execute is not None
            execute(module)
            patch = self._patches.pop(name, None)
            if patch is not None:
                patch(module)

        try:
            if execute is not None:
                loader.exec_module = exec_module  # type: ignore[attr-defined]
        except AttributeError:  # a loader without room for it: after the import
            self._half_imported.add(name)

    def _patch_completed(self) -> None:
        for name in list(self._half_imported):
            module = sys.modules.get(name)
            if module is None or not is_half_imported(module):
                self._half_imported.discard(name)
                if module is not None and name in self._patches:
                    self._patches.pop(name)(module)
