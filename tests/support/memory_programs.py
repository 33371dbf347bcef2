"""Run under the library that answers reads from memory: reads in every way, and says what it got.

    python memory_programs.py FOLDER [PLACE]

FOLDER holds ``big.bin``, 1 MiB of numbers; PLACE is where a child that begins anew writes what it finds.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path


def read_calls() -> int:
    """Bytes that read calls returned to this process, as the kernel counts them."""
    with open("/proc/self/io", encoding="ascii") as file:
        return int(file.readline().split()[1])


def ways(path: str) -> dict[str, bytes]:
    """The bytes 1000 to 1999 of the file, read in several ways."""
    found: dict[str, bytes] = {}
    descriptor = os.open(path, os.O_RDONLY)
    found["pread"] = os.pread(descriptor, 1000, 1000)
    os.lseek(descriptor, 1000, os.SEEK_SET)
    found["read"] = os.read(descriptor, 400) + os.read(descriptor, 600)
    buffers = [bytearray(300), bytearray(700)]
    os.lseek(descriptor, -1000, os.SEEK_CUR)
    os.readv(descriptor, buffers)
    found["readv"] = b"".join(map(bytes, buffers))
    os.lseek(descriptor, 1000 - (1 << 20), os.SEEK_END)
    # A program that is started meanwhile closes its copies of all descriptors, in the memory of this one.
    subprocess.run(["true"], check=True, close_fds=True)
    found["after a child"] = os.read(descriptor, 500)
    copy = os.dup(descriptor)  # shares the position
    found["after a child"] += os.read(copy, 200) + os.read(descriptor, 300)
    os.close(copy)
    os.lseek(descriptor, 1000, os.SEEK_SET)
    sent, pipe = os.pipe()
    os.sendfile(pipe, descriptor, None, 1000)
    found["sendfile"] = os.read(sent, 1000)
    os.close(sent), os.close(pipe), os.close(descriptor)
    with open(path, "rb") as file:
        file.seek(1000)
        found["file"] = file.read(1000)
    descriptor = os.open(os.path.relpath(path), os.O_RDONLY)
    os.lseek(descriptor, 1000, os.SEEK_SET)
    if not os.fork():
        os._exit(os.read(descriptor, 1000) != found["pread"])
    _, status = os.wait()
    found["fork"] = os.read(descriptor, 1000) if status == 0 else b""
    os.close(descriptor)
    return found


def main(folder: Path, place: Path | None) -> None:
    path, other = folder / "big.bin", folder / "other.bin"
    if place is not None:  # the library knows the files from its environment
        before = read_calls()
        content = path.read_bytes()
        place.write_text(json.dumps({"right": content == other.read_bytes(), "calls": read_calls() - before}))
        return
    from dlio_torch.data.engines.replay_reads import serve

    size = serve([path])
    subprocess.run([sys.executable, __file__, str(folder), str(folder / "child.json")], check=True)
    before = read_calls()
    whole = path.read_bytes()
    served = read_calls() - before
    with other.open("rb") as file:
        file.seek(1000)
        want = file.read(1000)
    found = {way: got == want for way, got in ways(str(path)).items()}
    missing = ctypes.CDLL(None).dlio_memory_serve(b"/nowhere")
    print(json.dumps({"size": size, "calls": served, "whole": len(whole), "ways": found, "missing": missing}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
