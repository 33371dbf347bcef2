"""Runs the shell commands of a page of the documentation."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from doc_pages import blocks
from forked_commands import folder_of_commands
from ranks import clean_environ


def run_page(page: str, folder: Path, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Runs all commands of a page, see :func:`run_blocks`.

    Args:
        page: text of the page; commands are its blocks of the language ``sh``.
        folder: the folder in which they run.
        timeout_s: longest time of all of them.
    """
    return run_blocks(blocks(page), folder, timeout_s)


def run_blocks(commands: Sequence[str], folder: Path, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Runs commands one after another in one folder; asserts that each ends well and without a traceback."""
    environ = clean_environ()
    path = os.pathsep.join([str(Path(sys.executable).parent), environ["PATH"]])
    with tempfile.TemporaryDirectory() as empty, folder_of_commands(Path(empty), path) as first:
        environ["PATH"] = os.pathsep.join([str(first), path])
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", "\n".join([*commands, ":"])],  # bash does not become the last command
            cwd=folder, env=environ, capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done
