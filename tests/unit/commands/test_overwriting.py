"""Commands replace no file that their arguments name, unless ``--force`` allows it."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from dlio_torch import cli

WORKLOAD = """
model: {name: mine}
framework: pytorch
dataset: {format: npz, num_files_train: 8, record_length_bytes: 150000}
reader: {batch_size: 4, read_threads: 2}
"""
RECORDING = '7 1.000000 openat(AT_FDCWD, "/d", O_RDONLY) = 3 <0.1>\n7 1.200000 read(3, ""..., 10) = 10 <0.1>\n'
JOB = ("launch", "recipe=minimal", "scale=tiny", "scheduler=slurm", "nodes=1", "ranks_per_node=1", "time=10min")


@pytest.fixture(autouse=True)
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("workload.yaml").write_text(WORKLOAD)
    Path("log.strace").write_text(RECORDING)
    with h5py.File("mine.h5", "w") as file:
        file["x"] = np.zeros((4, 3), np.float32)


@pytest.mark.parametrize(
    ("words", "option", "name"),
    [
        (("import-dlio", "workload.yaml", "--output", "out.yaml"), "--output out.yaml", "out.yaml"),
        (("inspect", "mine.h5", "--output", "out.yaml"), "--output out.yaml", "out.yaml"),
        (("report", "log.strace", "--json", "--output", "out.json"), "--output out.json", "out.json"),
        ((*JOB, "script=out.sh"), "script=", "out.sh"),
    ],
    ids=["import-dlio", "inspect", "report", "launch"],
)
def test_an_existing_file_stays_without_force(
    words: tuple[str, ...], option: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(name).write_text("of the user")
    assert cli.main(list(words)) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert option in line
    assert name in line
    assert "add --force" in line
    assert Path(name).read_text() == "of the user"
    assert cli.main([*words, "--force"]) == 0
    assert Path(name).read_text() != "of the user"


def test_a_dangling_link_counts_as_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("out.yaml").symlink_to("nowhere.yaml")
    assert cli.main(["inspect", "mine.h5", "--output", "out.yaml"]) == 2
    assert "add --force" in capsys.readouterr().err
    assert not Path("nowhere.yaml").exists()


def test_force_is_a_flag_of_commands_that_write_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "recipe=minimal", "--force"]) == 2
    assert "not a flag of run" in capsys.readouterr().err
