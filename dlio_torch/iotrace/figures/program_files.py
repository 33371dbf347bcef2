"""Separates files of the program and of the system from data files."""

from __future__ import annotations

import re

PROGRAM = re.compile(
    r"^/(proc|sys|dev(?!/shm/)|etc|usr|boot|s?bin|lib(64)?)/"
    r"|/(site-packages|dist-packages|__pycache__)/"
    r"|\.(py|pyc|pyo|pyi|pyd|pth|egg-link)$"
    r"|\.so(\.\d+)*$"
    r"|^(<.*>|\w*:\[.*\])$"
)
"""Paths of program and system files, which are not data and which sources record to different extents."""


def is_program(path: str) -> bool:
    """Whether a file belongs to the program or the system, see :data:`PROGRAM`."""
    return PROGRAM.search(path) is not None
