"""The section of the page on checkpoints, and the lane of saves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from html_pages import Page, check

from dlio_torch import cli
from dlio_torch.analysis.checkpoint_figures import checkpoint_figures
from dlio_torch.checkpoint.save_times import RestoreTimes, SaveTimes

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

from background_saver import PATH

from dlio_torch.checkpoint.registry import BUILTIN
from dlio_torch.report.html import report_run
from dlio_torch.report.html.page_blocks import UNKNOWN, Facts, Table
from dlio_torch.report.html.run.section_checkpoints import checkpoint_sections

SAVE = SaveTimes(5, 0, 0.125, 0.5, 100 << 20, plan_s=0.0625, stage_s=0.0625, write_s=0.25)
READ = RestoreTimes(0.25, 50 << 20, read_s=0.125)


def blocks(saves: list[list[SaveTimes]], restores: list[list[RestoreTimes]], **more: Any) -> list[Any]:
    [section] = checkpoint_sections({"checkpoints": {**checkpoint_figures(saves, restores), **more}})
    return list(section.blocks)


def test_parts_rates_and_ranks() -> None:
    found = blocks([[SAVE], [SAVE]], [[READ]], slowdown_why="no reason", peak_host_bytes=1 << 20)
    tables = {block.title: block for block in found if isinstance(block, Table)}
    rows = {row[0]: row[1] for row in tables["Time of a save"].rows}
    assert rows == {
        "training stands still": "125 ms", "plan": "62.5 ms", "stage": "62.5 ms", "write": "250 ms",
        "flush": "not measured", "until durable": "500 ms",
    }  # fmt: skip
    assert "the layout has no such part, or its library does not tell: fsync_s." in tables["Time of a save"].note
    assert tables["Time of a restore"].rows[-1][:2] == ["whole restore", "250 ms"]
    assert [row[0] for row in tables["Saves of each rank"].rows] == ["rank 0", "rank 1"]
    assert tables["Restores of each rank"].rows == [["rank 0", "50 MiB", "250 ms", "200 MiB/s"]]
    [facts] = [dict(block.rows) for block in found if isinstance(block, Facts)]
    assert facts == {
        "a checkpoint": "200 MiB at 400 MiB/s in all, 200 MiB/s per rank",
        "a restore": "50 MiB at 200 MiB/s",
        "steps beside saves": "not measured: no reason",
        "memory that saves hold at most": "1 MiB",
    }


def test_the_flush_stands_apart_in_all_and_of_each_rank() -> None:
    found = blocks([[replace(SAVE, fsync_s=0.25)], [replace(SAVE, fsync_s=0.125)]], [], slowdown_why="no reason")
    [facts] = [dict(block.rows) for block in found if isinstance(block, Facts)]
    assert facts["flush of a checkpoint"] == "250 ms; 533 MiB/s without it"
    [ranks] = [block for block in found if isinstance(block, Table) and block.title == "Saves of each rank"]
    assert ranks.columns == ("<rank", "bytes", "training stands still", "flush", "until durable", "rate")
    assert [row[3] for row in ranks.rows] == ["250 ms", "125 ms"]


def test_the_smallest_time_is_shown_and_may_be_missing() -> None:
    [_, _, times, *_] = blocks([[SAVE, replace(SAVE, step=10, durable_s=1.5)]], [], slowdown_why="no reason")
    assert times.columns == ("<part", "mean", "min", "median", "p95", "max")
    assert times.rows[-1][:3] == ["until durable", "1 s", "500 ms"]
    older = checkpoint_figures([[SAVE]], [])
    del older["save"]["durable_s"]["min"]
    [section] = checkpoint_sections({"checkpoints": {**older, "slowdown_why": "no reason"}})
    [table] = [block for block in section.blocks if isinstance(block, Table) and block.title == "Time of a save"]
    assert table.rows[-1][1:4] == ["500 ms", UNKNOWN, "500 ms"]


def test_the_bars_add_up_to_the_whole() -> None:
    [figure, *_] = blocks([[SAVE]], [[READ]])
    for text in ("save, write: 250 ms", "save, rest: 125 ms", "restore, read: 125 ms", "restore, rest: 125 ms"):
        assert text in figure.svg


def test_no_section_without_saves_and_restores() -> None:
    assert checkpoint_sections(None) == []
    assert checkpoint_sections({"checkpoints": {"measured": 1, "duration_s": None}}) == []
    assert checkpoint_sections({"checkpoints": checkpoint_figures([[]], [[]])}) == []


def test_the_page_of_a_run_with_saves_in_the_background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUILTIN, "torch_save", replace(BUILTIN["torch_save"], target=PATH))
    options = ["checkpoint=torch_save", "checkpoint.state_bytes=64KiB", "checkpoint.every_steps=2", "train.epochs=2"]
    folders = [f"dataset.root={tmp_path}/data", f"output.dir={tmp_path}/run", "output.progress=false"]
    assert cli.main(["recipe=minimal", "scale=tiny", *options, *folders]) == 0
    page = Page(report_run(tmp_path / "run"))
    check(page)
    assert "Parts of a save and of a restore" in page.section("checkpoints")
    assert "save in the background" in page.text
    assert "save of step 2" in page.text
    saves = json.loads((tmp_path / "run/summary.json").read_text())["saved"]["checkpoints"]
    assert saves > 0
