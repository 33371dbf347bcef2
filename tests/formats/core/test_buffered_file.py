"""Opening a file through Python's buffer: the buffer's size, and no call beyond those of open()."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.formats.core.buffered_file import open_buffered
from dlio_torch.formats.core.registry import create


@contextmanager
def no_fstat() -> Iterator[None]:
    """Lets fail what asks for the state of a file again, which io.FileIO has done in C."""

    def refuse(descriptor: int) -> NoReturn:
        raise AssertionError(f"fstat of {descriptor}")

    with pytest.MonkeyPatch.context() as patch:  # not longer: pytest asks for states, too
        patch.setattr(os, "fstat", refuse)
        yield


@pytest.mark.parametrize("buffer_bytes", [0, 12288])
def test_the_first_read_fills_the_buffer(buffer_bytes: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))
    with no_fstat(), open_buffered(path, buffer_bytes) as file:
        file.read(1)
        filled = file.raw.tell()
    assert filled == (buffer_bytes or path.stat().st_blksize)


def test_an_archive_is_not_asked_for_its_size(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, data=np.ones(8, np.float32))
    config = DatasetConfig(format="npz", samples_per_file=1, fields=[FieldConfig("data", shape=[8])])
    with no_fstat(), closing(create(config, 1).open(path)) as reader:
        samples = reader.num_samples
    assert samples == 1
