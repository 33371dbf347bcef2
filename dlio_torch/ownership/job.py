"""Last line of a job script, which marks the script as written by the verb ``launch`` and names its log."""

from __future__ import annotations

import os
import re
from pathlib import Path

_LINE = "# written by dlio_torch launch (5d0c7d9e-21c4-4a53-8f7e-6a3c1b8e9f10): {script} writes {log}"
_PATTERN = re.compile(re.escape(_LINE).replace(r"\{script\}", "(.+)").replace(r"\{log\}", "(.+)"))
_MOST_BYTES = 1 << 20


def last_line(script: Path, log: Path) -> str:
    """The marker line at the end of a job script, with its newline."""
    return _LINE.format(script=script.name, log=log.name) + "\n"


def files_of_job(script: Path) -> list[Path]:
    """Paths of a script that ``launch`` wrote and of its log if it exists; empty for any other file."""
    try:
        if script.is_symlink() or not script.is_file() or script.stat().st_size > _MOST_BYTES:
            return []
        lines = script.read_bytes().splitlines()
    except OSError:
        return []
    match = _PATTERN.fullmatch(os.fsdecode(lines[-1])) if lines else None
    if match is None or match[1] != script.name or "/" in match[2]:
        return []
    log = script.with_name(match[2])
    return [script, log] if log.exists() else [script]
