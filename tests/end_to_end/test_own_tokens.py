"""A file of tokens that NumPy's tofile made: inspected, and read in one command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from own_data import command, summary_of, traced_command, training_calls
from strace import READS

TOKENS, WINDOW = 300_000, 1024
SAMPLES = (TOKENS - 1) // WINDOW
PIECE = 2 * (WINDOW + 1)
"""Bytes of a window with its last target."""


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file as nanoGPT's train.bin."""
    path = tmp_path_factory.mktemp("tokens") / "train.bin"
    np.random.default_rng(3).integers(0, 50257, TOKENS).astype(np.uint16).tofile(path)
    return path


def test_inspect_asks_and_the_run_maps_the_file(tokens: Path, tmp_path: Path) -> None:
    shown = command("inspect", str(tokens), cwd=tmp_path)
    setting = "dataset.tokens.dtype=uint16"
    assert "does not state their type" in " ".join(shown.split())
    assert setting in shown
    calls = training_calls(traced_command(tmp_path, f"dataset.path={tokens}", setting, "output.dir=run"), tokens)
    done = summary_of(tmp_path)
    assert done["dataset"]["layout"]["samples"] == SAMPLES
    steps = SAMPLES // 32
    assert done["warmup"]["samples"] + done["train"]["samples"] == steps * 32
    assert done["train"]["bytes"] == done["train"]["samples"] * 2 * 8 * WINDOW
    # The file is opened and mapped for each batch, and no byte of it is read by a call.
    mine = [call for call in calls if call.path == str(tokens)]
    assert sum(call.name == "openat" for call in mine) == steps
    assert not any(call.name in READS for call in mine)
    assert done["io"]["rchar_bytes"] == sum(call.result for call in calls if call.name in READS and call.result > 0)


def test_the_run_reads_the_file(tokens: Path, tmp_path: Path) -> None:
    settings = ["dataset.tokens.dtype=uint16", "dataset.tokens.memory_map=false"]
    calls = training_calls(traced_command(tmp_path, f"dataset.path={tokens}", *settings, "output.dir=run"), tokens)
    done = summary_of(tmp_path)
    assert done["dataset"]["layout"]["samples"] == SAMPLES
    reads = [call for call in calls if call.name in READS and call.result > 0]
    assert done["io"]["rchar_bytes"] == sum(call.result for call in reads)
    opens = [call for call in calls if call.path == str(tokens) and call.name == "openat"]
    assert len(opens) == SAMPLES // 32 * 32
    # numpy.fromfile reads by the blocks of the C library's buffer, so that no sample takes less than its bytes.
    assert sum(call.result for call in reads if call.path == str(tokens)) >= len(opens) * PIECE
