"""The verb ``checkpoint``: saves and loads without training, their order, bytes, caches and failures."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from figure_checks import check_figures
from ranks import clean_environ, run_ranks
from strace import need_strace, trace

from dlio_torch import cli
from dlio_torch.checkpoint.layouts.plain_files.saver import PlainSaver
from dlio_torch.errors import DataError, PreconditionError
from dlio_torch.report.html.run.gather import gather
from dlio_torch.report.html.run.section_checkpoints import checkpoint_sections
from dlio_torch.report.html.run.section_overview import sentence, title
from dlio_torch.run_directory import run_state
from dlio_torch.run_directory.run_dir import RunDir

VERB = ["checkpoint", "recipe=minimal", "output.dir=run"]
SMALL = [*VERB, "checkpoint=torch_save", "checkpoint.state_bytes=64KiB"]
BYTES = 64 << 10


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Calls of the saver: name, step, and whether a save flushes."""
    made: list[tuple[Any, ...]] = []
    save, restore, discard = PlainSaver.save, PlainSaver.restore, PlainSaver.discard

    def record_save(self: PlainSaver, step: int, kept: Sequence[int], surplus: Sequence[int], *, fsync: bool) -> None:
        made.append(("save", step, fsync))
        save(self, step, kept, surplus, fsync=fsync)

    def record_restore(self: PlainSaver, directory: Path, step: int) -> Any:
        made.append(("load", step))
        return restore(self, directory, step)

    def record_discard(self: PlainSaver, step: int) -> None:
        made.append(("discard", step))
        discard(self, step)

    monkeypatch.setattr(PlainSaver, "save", record_save)
    monkeypatch.setattr(PlainSaver, "restore", record_restore)
    monkeypatch.setattr(PlainSaver, "discard", record_discard)
    return made


def summary() -> dict[str, Any]:
    """The summary of the run, whose numbers are all documented."""
    content: dict[str, Any] = json.loads(Path("run/summary.json").read_text())
    check_figures(content)
    return content


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("dlio_torch: error: ")]
    return line


def test_saves_are_counted_kept_and_read_in_turn(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*SMALL, "saves=3", "loads=4", "-q"]) == 0
    content = summary()
    figures = content["checkpoints"]
    assert (content["world_size"], content["recipe"], figures["layout"]) == (1, "minimal", "torch_save")
    assert (figures["save"]["count"], figures["restore"]["count"], figures["kept"]) == (3, 4, 3)
    files = sorted(Path("run/checkpoints").iterdir())
    assert [path.name for path in files] == [f"checkpoint-{step}.pt" for step in (1, 2, 3)]
    assert figures["save"]["bytes"]["mean"] == figures["restore"]["bytes"]["max"] == files[0].stat().st_size
    assert [load["step"] for load in figures["page_cache"]["loads"]] == [1, 2, 3, 1]
    assert figures["save"]["fsync_s"]["mean"] > 0
    assert figures["save"]["durable_s"]["max"] >= figures["save"]["fsync_s"]["max"]
    rates = figures["save"]["bytes_per_s"]["max"], figures["restore"]["bytes_per_s"]["max"]
    assert all(rate > 0 for rate in rates)
    text = " ".join(capsys.readouterr().out.split())
    assert "A save of " in text
    assert re.search(r"of which flushing takes .* (.*/s without it)", text)
    assert "reading it back takes" in text
    assert (RunDir(Path("run").absolute()).missing()) == ("steps.csv",)


def test_two_runs_are_compared_by_their_figures_where_no_call_was_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2):
        assert cli.main([*SMALL, "saves=1", "loads=1", "-q"]) == 0
        Path("run").rename(f"run{number}")
    capsys.readouterr()
    assert cli.main(["compare", "run1", "run2"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "checkpoints.restore.duration_s" in text
    assert "only figures are compared; repeat runs with trace.posix=true" in text
    assert cli.main(["compare", "run1", "run2", "--json"]) == 0
    pairs = {pair["name"]: pair for pair in json.loads(capsys.readouterr().out)["figures"]}
    size = pairs["checkpoints.save.bytes.mean"]
    assert size["a"] == size["b"] > 0.9 * BYTES
    assert size["ratio"] == 1
    assert cli.main(["compare", "run1", "run2", "--fail", "worst:0.1"]) == 3


def test_loads_follow_all_saves_and_each_save_flushes(calls: list[tuple[Any, ...]]) -> None:
    assert cli.main([*SMALL, "checkpoint.fsync=false", "checkpoint.keep=2", "saves=3", "loads=3", "-q"]) == 0
    saves = [("save", 1, True), ("save", 2, True), ("save", 3, True), ("discard", 1)]
    assert calls == [*saves, ("load", 2), ("load", 3), ("load", 2)]
    assert summary()["checkpoints"]["fsync"] is True
    assert "checkpoint.fsync: the verb checkpoint" in Path("run/sources.yaml").read_text()


def test_without_loads_one_checkpoint_is_kept(calls: list[tuple[Any, ...]]) -> None:
    assert cli.main([*SMALL, "saves=2", "loads=0", "-q"]) == 0
    assert calls == [("save", 1, True), ("save", 2, True), ("discard", 1)]
    figures = summary()["checkpoints"]
    assert figures["restore"] | {"why": ""} == figures["restore"] | {"why": "", "count": 0, "duration_s": None}
    assert figures["page_cache"]["cold"] is None
    assert figures["page_cache"]["device_why"] == "nothing was read"


def test_of_checkpoints_that_share_a_file_the_newest_is_read(calls: list[tuple[Any, ...]]) -> None:
    assert cli.main([*VERB, "checkpoint=dlio", "saves=2", "loads=2", "-q"]) == 0
    assert [call for call in calls if call[0] == "load"] == [("load", 2), ("load", 2)]
    assert summary()["checkpoints"]["kept"] == 1


def test_the_layout_of_tensorflow_is_saved_and_read() -> None:
    layout = ["checkpoint.layout=tensorflow", "checkpoint.state_bytes=64KiB", "checkpoint.tensorflow.graph_bytes=1KiB"]
    assert cli.main([*VERB, *layout, "saves=2", "loads=2", "-q"]) == 0
    figures = summary()["checkpoints"]
    assert figures["start_bytes"] > 2 * 1024
    assert figures["restore"]["bytes"]["mean"] >= BYTES


def test_a_load_reads_the_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*SMALL, "saves=2", "loads=3", "--json"]) == 0
    content = summary()
    assert json.loads(capsys.readouterr().out) == content
    cache = content["checkpoints"]["page_cache"]
    if cache["cold"] is not True:
        pytest.skip(f"checkpoints cannot be dropped from the page cache here: {cache['why']}")
    for load in cache["loads"]:
        assert (load["files"], load["cached_files"], load["cached_share"]) == (2, 0, 0)
    if cache["device_bytes"] is None:
        pytest.skip(cache["device_why"])
    size = content["checkpoints"]["restore"]["bytes"]["mean"]
    assert all(load["device_bytes"] >= size for load in cache["loads"])
    assert cache["device_share"] == 1


def test_a_load_from_memory_is_said_to_be_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dlio_torch.storage.cache_state._PAUSE_S", 0)
    monkeypatch.setattr("dlio_torch.storage.local.cache_process.evict", lambda path: None)
    assert cli.main([*SMALL, "saves=1", "loads=1", "-q"]) == 0
    cache = summary()["checkpoints"]["page_cache"]
    if not cache["loads"][0]["files"]:
        pytest.skip(cache["why"])
    assert cache["cold"] is False
    assert cache["loads"][0]["cached_files"] == 1
    assert "warning: checkpoints could not be dropped from the page cache" in capsys.readouterr().out


def test_checkpoints_lie_below_the_root() -> None:
    assert cli.main([*SMALL, "checkpoint.root=saved", "saves=1", "loads=1", "-q"]) == 0
    assert Path("saved/minimal/run/checkpoint-1.pt").is_file()
    figures = summary()["checkpoints"]
    assert figures["folder"] == str(Path("saved/minimal/run").absolute())
    assert len(figures["page_cache"]["loads"]) == 1
    assert not Path("run/checkpoints").exists()


def test_a_plan_says_what_is_saved_kept_and_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*SMALL, "checkpoint.keep=2", "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "saves: 10 of 64 KiB by 1 rank, layout torch_save, each flushed" in text
    assert "kept: 2 at a time, up to 192 KiB of disk space in run\n" in text
    assert "loads: 10 by 1 rank, of the kept checkpoints in turn" in text
    assert cli.main([*SMALL, "saves=4", "loads=2", "-n"]) == 0
    assert "kept: 2 at a time" in capsys.readouterr().out
    assert not any(Path.cwd().iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*SMALL, "saves=0"], ["saves=0 (command line)", "from 1", "loads read what the saves have written"]),
        ([*SMALL, "saves=0", "loads=3"], ["saves=0 (command line)"]),
        ([*SMALL, "loads=-1"], ["loads=-1 (command line)", "from 0"]),
        ([*SMALL, "loads=two"], ["loads=two (command line)"]),
        ([*SMALL, "save=3"], ["save=3 (command line)", "did you mean saves?"]),
        ([*SMALL, "writes=3"], ["did you mean saves?"]),
        ([*SMALL, "repeats=3"], ["repeats=3 (command line)", "sweep, tune, headspace"]),
        (VERB, ["checkpoint.layout=none (default)", "minimal describes no checkpoints", "checkpoint=torch_save"]),
        ([*VERB, "checkpoint=none"], ["checkpoint.layout=none", "checkpoint=torch_save"]),
        ([*VERB, "checkpoint.layout=torch_save"], ["checkpoint.state_bytes=0"]),
        (["run", "recipe=minimal", "saves=3"], ["saves=3 (command line)", "use the key with checkpoint"]),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_a_mistake_is_refused_in_one_line(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    line = error_line(capsys)
    for word in words:
        assert word in line
    assert not any(Path.cwd().iterdir())


def test_too_little_space_or_memory_is_refused_before_anything_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    disk = ["checkpoint=dlio", "checkpoint.files=[{name: 'a-{step}', bytes: 1PB, write_bytes: 1MiB}]", "-q"]
    assert cli.main([*VERB, *disk]) == 3
    assert "checkpoint.keep=10: 10 checkpoints of" in error_line(capsys)
    assert cli.main([*VERB, "checkpoint=torch_save", "checkpoint.state_bytes=1PB", "-q"]) == 3
    assert "checkpoint.state_bytes=1000000000000000 (command line)" in error_line(capsys)
    assert not any(Path.cwd().iterdir())
    assert cli.main([*VERB, *disk[:-1], "-n"]) == 0
    assert "not possible on this machine: checkpoint.keep=10" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "error"), [("save", PreconditionError("full")), ("restore", DataError("damaged"))])
def test_a_failure_ends_the_run_with_its_exit_code(
    name: str, error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(PlainSaver, name, fail)
    assert cli.main([*SMALL, "saves=1", "loads=1", "-q"]) == 3
    assert str(error) in error_line(capsys)
    state = run_state.read(Path("run/state.json"))
    assert state is not None
    assert (state.state, state.exit_code) == ("failed", 3)
    assert not Path("run/summary.json").exists()


def test_report_and_compare_say_what_kind_of_run_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*SMALL, "saves=1", "loads=1", "-q"]) == 0
    view = gather(Path("run").absolute())
    assert len(view.missing) == 1
    assert "verb checkpoint" in view.missing[0]
    [section] = checkpoint_sections(view.standalone)
    assert section.title == "Checkpoints"
    assert sentence(view).startswith("A save of ")
    assert title(view) == "minimal, scale laptop"
    assert set(view.recording.events.frame["op"]) >= {"checkpoint", "restore", "write", "fsync", "read"}
    assert cli.main(["compare", "run", "run", "--fail", "worst:0.1"]) == 3
    assert "repeat the run with trace.posix=true" in error_line(capsys)


def test_every_file_and_name_is_flushed_before_the_first_load(tmp_path: Path) -> None:
    need_strace()
    command = [sys.executable, "-m", "dlio_torch", *SMALL, "saves=2", "loads=2", "-q"]
    calls = trace(command, tmp_path / "log", cwd=tmp_path, env=clean_environ(), traced=["fsync"])
    folder = tmp_path / "run" / "checkpoints"
    paths = [path for call in calls if (path := Path(call.path)).is_relative_to(folder)]
    saves, drops = paths[:4], paths[4:]  # dropping a file from the page cache flushes it, too
    assert [path == folder for path in saves] == [False, True, False, True]
    assert [step for step in (1, 2) if f".checkpoint-{step}.pt" in saves[2 * step - 2].name] == [1, 2]
    assert {path.name for path in drops} == {"checkpoint-1.pt", "checkpoint-2.pt"}


@pytest.mark.ranks
def test_two_ranks_save_and_read_together(tmp_path: Path) -> None:
    ended = run_ranks("torch", 2, ["-m", "dlio_torch", *SMALL, "checkpoint.ranks=all", "saves=2", "loads=2", "-q"])
    assert [rank.exit_code for rank in ended] == [0, 0], ended[0].stderr + ended[1].stderr
    figures = summary()["checkpoints"]
    assert figures["saving_ranks"] == 2
    assert [row["rank"] for row in figures["save"]["per_rank"]] == [0, 1]
    assert figures["save"]["bytes"]["mean"] == 2 * figures["save"]["per_rank"][1]["bytes"]
    assert {load["files"] for load in figures["page_cache"]["loads"]} == {4}
    assert "ranks (means)" in ended[0].stdout
    assert ended[1].stdout == ""
