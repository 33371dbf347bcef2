"""An archive of logs, as tests of recordings open it."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path


def archive(path: Path, members: dict[str, bytes]) -> Path:
    """A tar file, compressed if its name ends in ``.tgz``; member names may be hostile."""
    with tarfile.open(path, "w:gz" if path.suffix == ".tgz" else "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path
