"""Build hook: compile the package's C files into the wheel where there is a C compiler.

A wheel with libraries is tagged for its platform and for any Python 3; without a compiler the wheel
is pure, and the libraries are compiled at first use.  An editable install gets them beside their
sources, since that is where the package is then loaded from.

``DLIO_TORCH_WHEEL_PLATFORM`` asks for the wheel of one platform, ``manylinux_2_28_aarch64`` for example: ``CC`` must
then compile for it, and a C file that does not compile is an error.  ``any`` asks for a pure wheel.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_NATIVE = "dlio_torch/native"
_PLATFORM = "DLIO_TORCH_WHEEL_PLATFORM"


def _load_build_module(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("dlio_torch_native_build", folder / "build.py")
    if spec is None or spec.loader is None:
        raise RuntimeError(f"cannot load {folder / 'build.py'}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _this_platform() -> str:
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def _machine_of(platform: str) -> str:
    match = re.fullmatch(r"manylinux_\d+_\d+_(\w+)", platform)
    if match is None:
        raise ValueError(f"{_PLATFORM}={platform}: give any, or a tag such as manylinux_2_28_x86_64")
    return match[1]


class NativeBuildHook(BuildHookInterface[Any]):
    """Hatchling calls ``initialize`` before it packs the wheel and ``finalize`` after."""

    PLUGIN_NAME = "custom"
    _scratch: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile every library; ``version`` is ``standard`` or ``editable``."""
        editable = version == "editable"
        platform = "" if editable else os.environ.get(_PLATFORM, "")
        if platform == "any":
            return
        machine = _machine_of(platform) if platform else None
        folder = Path(self.root) / _NATIVE
        build = _load_build_module(folder)
        if editable:
            target = folder
        else:
            target = self._scratch = Path(tempfile.mkdtemp(prefix="dlio-torch-build-"))
        for name in build.library_names():
            library = target / build.library_file_name(name, machine=machine)
            try:
                build.compile_library(name, library)
                for other in target.glob(f"{name}-*.so"):
                    if other != library:  # of an earlier state of the sources
                        other.unlink()
            except OSError as error:
                if platform:
                    raise
                self.app.display_warning(f"{name}.c is not compiled: {error}; it will be compiled at first use")
                continue
            if not editable:
                build_data["force_include"][str(library)] = f"{_NATIVE}/{library.name}"
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform or _this_platform()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what :meth:`initialize` compiled for the wheel."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
