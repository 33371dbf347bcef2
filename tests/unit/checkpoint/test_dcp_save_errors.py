"""Errors of saves by torch.distributed.checkpoint, which come from other ranks and other processes, too."""

from __future__ import annotations

import errno
from pathlib import Path
from traceback import StackSummary

import pytest
from torch.distributed.checkpoint.api import CheckpointException

from dlio_torch.checkpoint.layouts.dcp.save_errors import save_error

FULL = OSError(errno.ENOSPC, "No space left on device")
BROKEN = RuntimeError("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error: reset by peer. GLHF!")
ENDED = RuntimeError("Checkpoint background process is dead. Exit code: -9")
LOOK = "look for a lack of memory (dmesg)"


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (CheckpointException("write", {1: (FULL, StackSummary())}), 3, "No space left on device; free space on"),
        (
            CheckpointException("write", {1: (BROKEN, StackSummary()), 2: (FULL, StackSummary())}),
            1,
            "another rank's save",
        ),
        (BROKEN, 1, f"that rank was killed, or its process for saves: {LOOK} on its machine"),
        (ENDED, 1, f"the process that writes it was killed; {LOOK}, or set checkpoint.async_save=thread"),
    ],
)
def test_the_cause_is_told_in_one_line(error: Exception, code: int, line: str, tmp_path: Path) -> None:
    told = save_error(tmp_path / "step-6", 1000, error, rank=0)
    assert told.exit_code == code
    assert str(told).startswith(f"checkpoint file {tmp_path}/step-6 cannot be written")
    assert line in str(told)
    assert "\n" not in str(told)
