"""Build hook: compile the package's C files into the wheel where there is a C compiler.

A wheel with libraries is tagged for its platform and for any Python 3; without a compiler the wheel
is pure, and the libraries are compiled at first use.  An editable install gets them beside their
sources, since that is where the package is then loaded from.
"""

from __future__ import annotations

import importlib.util
import shutil
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_NATIVE = "dlio_torch/native"


def _load_build_module(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("dlio_torch_native_build", folder / "build.py")
    if spec is None or spec.loader is None:
        raise RuntimeError(f"cannot load {folder / 'build.py'}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class NativeBuildHook(BuildHookInterface[Any]):
    """Hatchling calls ``initialize`` before it packs the wheel and ``finalize`` after."""

    PLUGIN_NAME = "custom"
    _scratch: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile every library; ``version`` is ``standard`` or ``editable``."""
        folder = Path(self.root) / _NATIVE
        build = _load_build_module(folder)
        if version == "editable":
            target = folder
        else:
            target = self._scratch = Path(tempfile.mkdtemp(prefix="dlio-torch-build-"))
        for name in build.library_names():
            library = target / build.library_file_name(name)
            try:
                build.compile_library(name, library)
                for other in target.glob(f"{name}-*.so"):
                    if other != library:  # of an earlier state of the sources
                        other.unlink()
            except OSError as error:
                self.app.display_warning(f"{name}.c is not compiled: {error}; it will be compiled at first use")
                continue
            if version != "editable":
                build_data["force_include"][str(library)] = f"{_NATIVE}/{library.name}"
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what :meth:`initialize` compiled for the wheel."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
