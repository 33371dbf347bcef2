"""A recipe beside its recorded requests: other amounts, the calls that the recording implies, and inspection."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_data import command, summary_of
from recorded_requests import CLOSE, OPEN, PREAD, READ, SEEK, requests_of

from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.formats.extents.requests_file import write_requests

RECIPE = """
dataset:
  format: extents
  samples_per_file: 40
  extents: {requests: requests.npz}
train: {batch_size: 4, epochs: 2}
loader: {num_workers: 2, persistent_workers: true}
verify: true
trace: {posix: true}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a recipe of 40 samples, each in one of four files and in an index, and a folder to run in."""
    samples = [
        [(OPEN, 1 + i % 4, 0, 0), (SEEK, 1 + i % 4, 5000 * (i // 4), 0), (READ, 1 + i % 4, 5000 * (i // 4), 5000 - i),
         (CLOSE, 1 + i % 4, 0, 0), (PREAD, 0, 4000 * (i % 5), 400)]
        for i in range(40)
    ]  # fmt: skip
    start = [(OPEN, 0, 0, 0), (READ, 0, 0, 4096)]
    (tmp_path / "mine").mkdir()
    write_requests(tmp_path / "mine" / "requests.npz", requests_of([20_000, *[50_000] * 4], samples, start))
    (tmp_path / "mine" / "recipe.yaml").write_text(RECIPE)
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def test_a_recipe_beside_its_requests_runs_with_more_samples_than_recorded(folder: Path) -> None:
    samples = 52  # the recording, and a part of it that needs all files
    command("recipe=../mine/recipe.yaml", f"dataset.samples_per_file={samples}", "output.dir=run", cwd=folder)
    summary = summary_of(folder)
    (rank,) = summary["posix"]["ranks"]
    starts = 2 * 2  # of both copies, by each worker
    assert rank["reads"] == 2 * 2 * samples + starts
    read = sum(5000 - sample % 40 + 400 for sample in range(samples))
    assert rank["bytes_read"] == 2 * read + 4096 * starts
    assert (rank["opens"], rank["seeks"]) == (2 * samples + starts, 2 * samples)
    assert rank["calls"] == rank["opens"] + rank["reads"] + rank["seeks"] + 2 * samples  # closes
    (data,) = folder.glob("data/*/train/*.extents")
    assert sum(path.is_file() for path in (data / "files").rglob("*")) == 10
    shown = inspect_path(str(data))
    assert (shown.format, shown.description.samples, shown.description.questions) == ("extents", samples, ())
    assert shown.description.details["raw_files"] == 10
