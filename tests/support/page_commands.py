"""Runs the shell commands of a page of the documentation."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from ranks import clean_environ


def run_page(page: str, folder: Path, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """All commands of a page, one after another in one folder; asserts that each ends well and without a traceback.

    Args:
        page: text of the page; commands are its blocks of the language ``sh``.
        folder: the folder in which they run.
        timeout_s: longest time of all of them.
    """
    environ = clean_environ()
    environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environ["PATH"]])
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(blocks)],
        cwd=folder, env=environ, capture_output=True, text=True, timeout=timeout_s, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done
