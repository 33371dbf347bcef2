"""Saves of a run: whether there is one at all, and that pages of saved files leave the page cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dlio_torch import cli
from dlio_torch.checkpoint.cached_pages import drop_pages
from dlio_torch.checkpoint.layouts.plain_files.layout import TorchSaveLayout
from dlio_torch.checkpoint.saves import is_saved
from dlio_torch.config.compose import compose
from dlio_torch.storage.local.page_cache import cached_share

SAVED = ("recipe=minimal", "scale=tiny", "checkpoint=torch_save", "checkpoint.state_bytes=64KiB")


@pytest.mark.parametrize(
    ("options", "steps", "saved"),
    [
        ([], 4, True),  # at the end of the epoch
        (["checkpoint.every_epochs=0", "checkpoint.every_steps=5"], 4, False),
        (["checkpoint.every_epochs=0", "checkpoint.every_steps=5"], 5, True),
        (["checkpoint.every_epochs=0", "checkpoint.every_steps=5", "checkpoint.restore=true"], 4, True),
        (["checkpoint.every_epochs=0", "checkpoint.every_steps=5", "checkpoint.after_last=true"], 4, True),
        (["checkpoint=none"], 4, False),
    ],
)
def test_a_run_saves_if_a_checkpoint_is_due_or_restored(options: list[str], steps: int, saved: bool) -> None:
    assert is_saved(compose([*SAVED, *options]).config, steps) == saved


def test_a_run_that_saves_nothing_makes_no_state_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[object] = []
    plain = TorchSaveLayout.open
    monkeypatch.setattr(TorchSaveLayout, "open", lambda self, setup: opened.append(setup) or plain(self, setup))
    words = [*SAVED, "compute=none", f"dataset.root={tmp_path}/data", "output.progress=false"]
    never = ["checkpoint.every_epochs=0", "checkpoint.every_steps=1000", f"output.dir={tmp_path}/never"]
    assert cli.main([*words, *never]) == 0
    assert opened == []
    reasons = [line for line in capsys.readouterr().err.splitlines() if line.startswith("checkpoints: none is due")]
    assert len(reasons) == 1
    assert "with checkpoint.every_steps=1000 (command line); the verb checkpoint saves one" in reasons[0]
    assert cli.main([*words, f"output.dir={tmp_path}/saves"]) == 0
    assert len(opened) == 1
    assert "none is due" not in capsys.readouterr().err


def test_dropped_pages_leave_the_page_cache(tmp_path: Path) -> None:
    path = tmp_path / "saved"
    with path.open("wb") as file:
        file.write(b"x" * (1 << 20))
        os.fsync(file.fileno())
    if cached_share(path) != 1.0:
        pytest.skip("whether a file is cached cannot be measured here")
    os.posix_fadvise(descriptor := os.open(path, os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    if cached_share(path) != 0.0:
        pytest.skip("this file system keeps pages")
    path.read_bytes()
    drop_pages([path])
    assert cached_share(path) == 0.0
