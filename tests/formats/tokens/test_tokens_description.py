"""Description of files of token ids of unknown origin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlio_torch.errors import DataError
from dlio_torch.formats.core.inspection import answered, inspect_path
from dlio_torch.formats.core.registry import facts, read_content
from dlio_torch.formats.tokens.describe import describe

TOKENS = np.arange(5000)


def with_header(path: Path, dtype: str = "uint16", magic: int = 20240520, version: int = 1) -> Path:
    """A file as llm.c's ``write_datafile`` makes it."""
    header = np.zeros(256, np.int32)
    header[:3] = magic, version, len(TOKENS)
    path.write_bytes(header.tobytes() + TOKENS.astype(dtype).tobytes())
    return path


def test_a_bare_file_asks_for_its_type(tmp_path: Path) -> None:
    TOKENS.astype(np.uint16).tofile(tmp_path / "train.bin")
    inspection = inspect_path(str(tmp_path / "train.bin"))
    assert inspection.format == "tokens"
    assert inspection.description.samples is None
    (question,) = inspection.description.questions
    assert question.setting == "dataset.tokens.dtype=uint16"
    assert inspection.description.notes[0] == "10000 bytes: 5000 tokens of uint16, or 2500 tokens of uint32"
    assert not answered(inspection, {"dataset.tokens.dtype": "uint32"}).description.questions


def test_a_size_that_fits_no_usual_type_is_named(tmp_path: Path) -> None:
    (tmp_path / "odd.bin").write_bytes(bytes(10001))
    assert "no whole number of tokens of uint16 or uint32" in describe(tmp_path / "odd.bin").notes[0]


@pytest.mark.parametrize(("dtype", "magic", "version"), [("uint16", 20240520, 1), ("uint32", 20240801, 7)])
def test_a_header_states_all(tmp_path: Path, dtype: str, magic: int, version: int) -> None:
    """Whatever the name of the file."""
    path = with_header(tmp_path / "fineweb_train_000001", dtype, magic, version)
    inspection = inspect_path(str(path))
    assert inspection.settings() == {"format": "tokens", "tokens": {"dtype": dtype, "header": "llm.c"}}
    assert not inspection.description.questions
    assert inspection.description.samples == 4999 // 1024
    (array,) = inspection.description.arrays
    assert (array.dtype, array.shape) == (dtype, (5000,))
    content: dict[str, object] = {}
    read_content(facts("tokens"), path, content)
    assert content == {"dtype": dtype, "tokens": 5000}
    assert facts("tokens").content_text(content) == f"5000 tokens of {dtype}"


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = with_header(tmp_path / "a.bin")
    whole = path.read_bytes()
    for content, words in [
        (whole[:-1], ["5000 tokens", "11023 bytes"]),
        (whole[:900], ["within its header"]),
        (b"", ["empty"]),
        (whole[:8] + b"\xff\xff\xff\xff" + whole[12:], ["-1 tokens"]),
    ]:
        path.write_bytes(content)
        with pytest.raises(DataError) as caught:
            describe(path)
        assert all(word in str(caught.value) for word in [str(path), *words])


def test_a_folder_of_files(tmp_path: Path) -> None:
    for number in range(3):
        with_header(tmp_path / f"train_{number}.bin")
    inspection = inspect_path(str(tmp_path))
    assert (inspection.format, inspection.files) == ("tokens", 3)
