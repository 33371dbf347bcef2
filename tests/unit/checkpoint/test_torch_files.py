"""Files of torch.save: the system's error of a write that fails, which torch does not tell."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch

from dlio_torch.checkpoint.torch_files import load_torch_file, save_torch_file

CONTENT = {"weights": torch.arange(100_000)}


def test_a_full_device_is_told_with_the_number_of_the_system() -> None:
    with pytest.raises(OSError, match="No space left on device") as caught:
        save_torch_file(CONTENT, Path("/dev/full"))
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "/dev/full")
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_an_error_that_is_not_of_a_write_stays_torch_s(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        save_torch_file(CONTENT, Path("/dev/full"))
    with pytest.raises(RuntimeError, match="Parent directory") as caught:
        save_torch_file(CONTENT, tmp_path / "missing" / "file.pt")  # the number of the write before does not count
    assert not isinstance(caught.value, OSError)


def test_a_file_is_as_torch_writes_it(tmp_path: Path) -> None:
    save_torch_file(CONTENT, tmp_path / "file.pt")
    assert torch.equal(load_torch_file(tmp_path / "file.pt")["weights"], CONTENT["weights"])
