"""Builds what a release offers: an sdist, a wheel with compiled C files for each platform, and a pure wheel.

``python packaging/build_wheels.py [FOLDER]`` writes to ``FOLDER`` (``dist`` by default). It needs the extra
``packaging`` and no C compiler: Zig's compiles for every platform, against an old glibc, on any machine. All wheels
are built from the sdist. auditwheel, and a look into each wheel, check the result.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
GLIBC = (2, 28)
"""Oldest glibc on which the compiled libraries run; torch's own wheels need the same."""
MACHINES = ("x86_64", "aarch64")
_PACKAGES = ("auditwheel", "hatchling", "ziglang")


def platform_of(machine: str) -> str:
    """Platform tag of the wheel for a type of processor."""
    return f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{machine}"


def compiler_for(machine: str, scratch: Path) -> str:
    """Command line of the C compiler for a type of processor.

    A symbol that no library defines is an error; symbols for debuggers are left out.

    Args:
        machine: type of processor.
        scratch: folder for a file that the command names.
    """
    target = f"{machine}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", target, "-s"]
    # Zig has no libgcc_s, which unwinds the stack of a cancelled thread: the linker needs its name and symbols.
    source, library = scratch / "unwind.c", scratch / "libgcc_s.so.1"
    source.write_text("void _Unwind_Resume(void) {}\nvoid __gcc_personality_v0(void) {}\n")
    options = ["-shared", "-nostdlib", "-fPIC", f"-Wl,-soname,{library.name}", "-o", str(library), str(source)]
    subprocess.run([*compiler, *options], check=True)
    return shlex.join([*compiler, "-Wl,-z,defs", "-Wl,--as-needed", str(library)])


def build_sdist(output: Path, source: Path = REPO) -> Path:
    """Build the sdist of the project in folder ``source``; returns its path."""
    return _build("sdist", source, output, {})


def build_wheel(source: Path, output: Path, machine: str | None) -> Path:
    """Build a wheel of the project in folder ``source``.

    Args:
        source: folder with ``pyproject.toml``.
        output: folder of the wheel.
        machine: type of processor for which the C files are compiled; None: a pure wheel without libraries.

    Returns:
        The wheel's path.
    """
    if machine is None:
        return _build("wheel", source, output, {"DLIO_TORCH_WHEEL_PLATFORM": "any"})
    with tempfile.TemporaryDirectory() as scratch:
        environment = {"DLIO_TORCH_WHEEL_PLATFORM": platform_of(machine), "CC": compiler_for(machine, Path(scratch))}
        return _build("wheel", source, output, environment)


def unpack(sdist: Path, into: Path) -> Path:
    """Unpack an sdist; returns the folder with ``pyproject.toml``."""
    with tarfile.open(sdist) as archive:
        archive.extractall(into, filter="data")
    (project,) = into.iterdir()
    return project


def check_libraries(wheel: Path, machine: str | None) -> None:
    """Check that a wheel holds one library for each C file, or none in a pure wheel.

    Raises:
        RuntimeError: libraries are missing, or there are others.
    """
    with zipfile.ZipFile(wheel) as archive:
        files = [Path(name) for name in archive.namelist()]
    expected = sorted(file.stem for file in files if file.suffix == ".c") if machine else []
    libraries = sorted(file.name.split("-")[0] for file in files if file.suffix == ".so")
    if libraries != expected:
        raise RuntimeError(f"{wheel.name} holds the libraries {libraries}, not {expected}")


def audit(wheel: Path, machine: str) -> None:
    """Check by auditwheel that the libraries need no newer C library, and none but the system's.

    Raises:
        RuntimeError: auditwheel finds that they do.
    """
    command = [sys.executable, "-m", "auditwheel", "show", str(wheel)]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    tag = re.search(rf'platform tag: "manylinux_(\d+)_(\d+)_{machine}"', " ".join(shown.split()))
    if tag is None or (int(tag[1]), int(tag[2])) > GLIBC:
        raise RuntimeError(f"{wheel.name} does not keep to {platform_of(machine)}:\n{shown}")


def main(arguments: list[str] | None = None) -> int:
    """Build and check everything; returns the exit code."""
    parser = argparse.ArgumentParser(description="Build the sdist and the wheels of a release.")
    parser.add_argument("output", nargs="?", type=Path, default=REPO / "dist", help="folder (default: dist)")
    output: Path = parser.parse_args(arguments).output.resolve()
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        parser.error(f"not installed: {', '.join(missing)}; install with: pip install -e '.[packaging]'")
    try:
        build_all(output)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def build_all(output: Path) -> None:
    """Build and check the sdist and the wheels, and print their paths.

    Raises:
        RuntimeError: one of them was not built, or a check failed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        sdist = build_sdist(output)
        print(sdist, flush=True)
        source = unpack(sdist, Path(scratch))
        for machine in (*MACHINES, None):
            wheel = build_wheel(source, output, machine)
            check_libraries(wheel, machine)
            if machine is not None:
                audit(wheel, machine)
            print(wheel, flush=True)


def _build(kind: str, source: Path, output: Path, variables: dict[str, str]) -> Path:
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", scratch]
        done = subprocess.run(
            command, cwd=source, env={**os.environ, **variables}, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"the {kind} of {source} was not built:\n{done.stderr}")
        (built,) = Path(scratch).iterdir()
        output.mkdir(parents=True, exist_ok=True)
        target = output / built.name
        target.write_bytes(built.read_bytes())
    return target


if __name__ == "__main__":
    sys.exit(main())
