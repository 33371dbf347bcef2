from __future__ import annotations

import json
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pytest

from dlio_torch.errors import DataError, PreconditionError
from dlio_torch.run_directory.run_dir import RunDir

NOON = datetime(2024, 5, 6, 12, 0, 0)


def test_the_path_holds_recipe_and_time(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "runs", "cosmic_tagger", now=NOON)
    assert run.path == tmp_path / "runs" / "cosmic_tagger" / "20240506-120000"
    assert run.path.is_dir()


def test_runs_that_start_at_once_get_their_own_directories(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda _: RunDir.create(tmp_path, "r", now=NOON), range(40)))
    names = {run.path.name for run in runs}
    assert names == {"20240506-120000"} | {f"20240506-120000-{n}" for n in range(2, 41)}


@pytest.mark.parametrize(
    ("recipe", "folder"),
    [("/home/me/my run.yaml", "my_run"), ("sub/climate", "climate"), ("v1.2", "v1.2"), ("", "run")],
)
def test_a_recipe_given_by_path_becomes_a_plain_folder_name(tmp_path: Path, recipe: str, folder: str) -> None:
    assert RunDir.create(tmp_path, recipe, now=NOON).path.parent == tmp_path / folder


def test_dir_is_used_as_it_is_and_must_be_empty(tmp_path: Path) -> None:
    run = RunDir.create("unused", "r", dir=tmp_path / "a" / "b")
    assert run.path == tmp_path / "a" / "b"
    assert RunDir.create("unused", "r", dir=run.path) == run
    run.write_text(run.config, "x")
    with pytest.raises(PreconditionError, match=r"output\.dir=.*b is not empty"):
        RunDir.create("unused", "r", dir=run.path)
    assert not Path("unused").exists()


def test_a_root_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PreconditionError, match=r"Not a directory; .* or set output\.root"):
        RunDir.create(tmp_path / "file", "r")


def test_missing_names_what_is_not_there_or_empty(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "r")
    everything = run.missing()
    assert everything == (
        "config.yaml", "sources.yaml", "environment.json", "summary.json", "steps.csv", "events", "trace.json.gz",
    )  # fmt: skip
    for path in (run.config, run.sources, run.environment, run.summary, run.steps(), run.trace):
        run.write_text(path, "x")
    run.events.mkdir()
    assert run.missing() == ("events",)
    (run.events / "one").write_text("x")
    assert RunDir.open(run.path).missing() == ()
    os.truncate(run.summary, 0)
    assert run.missing() == ("summary.json",)


def test_open_refuses_what_is_no_directory(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a run directory"):
        RunDir.open(tmp_path / "none")


def test_json_comes_back_and_replaces_the_former(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "r")
    run.write_json(run.summary, {"a": 1})
    run.write_json(run.summary, {"schlüssel": [1.5, None, "µs"]})
    assert run.read_json(run.summary) == {"schlüssel": [1.5, None, "µs"]}
    assert sorted(os.listdir(run.path)) == ["dlio_torch.json", "summary.json"]


def test_a_failed_write_leaves_the_former_file_and_no_other(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "r")
    run.write_json(run.summary, {"a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        run.write_json(run.summary, {"a": float("nan")})
    with pytest.raises(UnicodeEncodeError):
        run.write_text(run.summary, "half a file\ud800")
    assert json.loads(run.summary.read_text()) == {"a": 1}
    assert sorted(os.listdir(run.path)) == ["dlio_torch.json", "summary.json"]


def test_nothing_is_written_outside(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "r")
    with pytest.raises(ValueError, match="outside the run directory"):
        run.write_text(tmp_path / "elsewhere", "x")
    assert not (tmp_path / "elsewhere").exists()


def test_written_files_follow_the_umask(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "r")
    plain = run.path / "plain"
    plain.touch()
    run.write_text(run.config, "x")
    assert run.config.stat().st_mode == plain.stat().st_mode


@pytest.mark.parametrize("content", [None, "", '{"a": '])
def test_reading_a_missing_or_damaged_file_names_it(tmp_path: Path, content: str | None) -> None:
    run = RunDir.create(tmp_path, "r")
    if content is not None:
        run.summary.write_text(content)
    with pytest.raises(DataError, match=r"summary\.json"):
        run.read_json(run.summary)


def test_steps_of_a_rank_have_their_own_file(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "r")
    assert len({run.steps(), run.steps(0), run.steps(1)}) == 3


def test_a_run_directory_can_be_sent_to_other_ranks(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "r")
    assert pickle.loads(pickle.dumps(run)) == run
