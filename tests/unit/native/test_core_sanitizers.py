"""Sanitizers of the compiler over the read core: addresses, undefined behaviour, and races of its threads."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from native_programs import compiled
from rings import REFUSAL

DRIVER = Path(__file__).parents[2] / "support" / "read_core_driver.c"
TIMEOUT_S = 900  # a sanitizer is slow, and the machine may be busy


@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_jobs_touch_only_their_memory_and_do_not_race(sanitizers: str, tmp_path: Path) -> None:
    program = compiled(DRIVER, tmp_path / "driver", f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all")
    probe = subprocess.run([program], capture_output=True, env=environment(), check=False, timeout=TIMEOUT_S)
    if b"unexpected memory mapping" in probe.stderr:
        pytest.skip("the thread sanitizer does not run under this kernel's layout of memory")
    for depth in ("0", "5") if REFUSAL is None else ("0",):
        command = [program, tmp_path / "data", depth]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment(), check=False, timeout=TIMEOUT_S
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "528 jobs\n", "")


def environment() -> dict[str, str]:
    return {**os.environ, "LD_PRELOAD": ""}
