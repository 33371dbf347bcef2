"""A command with ``output.dir`` can be repeated: the ranks agree on the folder, and the earlier run is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from ranks import run_ranks

from dlio_torch.run_directory.run_dir import RunDir

OPTIONS = (
    *(
        "recipe=minimal",
        "scale=tiny",
        "train.allreduce_bytes=1KiB",
        "checkpoint=torch_save",
        "checkpoint.every_steps=2",
    ),
    *("output.dir=mine", "output.progress=false", "storage.limits=off"),
)


@pytest.mark.ranks
def test_a_repeated_run_of_two_ranks_keeps_the_earlier_one(tmp_path: Path) -> None:
    for repeat in range(2):
        ended = run_ranks("torch", 2, ["-m", "dlio_torch", *OPTIONS], cwd=tmp_path)
        assert [rank.exit_code for rank in ended] == [0, 0], ended[0].stderr + ended[1].stderr
        lines = [line for rank in ended for line in rank.stderr.splitlines() if "are kept as" in line]
        kept = [f"output.dir=mine: the earlier results there are kept as {tmp_path}/mine.1"]
        assert lines == (kept if repeat else [])
    for name in ("mine", "mine.1"):
        assert RunDir(tmp_path / name).missing() == ()
    resume = ("train.resume=mine", "train.epochs=2")
    ended = run_ranks("torch", 2, ["-m", "dlio_torch", *OPTIONS, *resume], cwd=tmp_path)
    assert [rank.exit_code for rank in ended] == [3, 3]
    assert "train.resume=mine lies in it" in ended[0].stderr + ended[1].stderr
    assert RunDir(tmp_path / "mine").missing() == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "mine", "mine.1"]
