"""Goodput of a run: which measured times it takes, on the console and on the page."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from html_pages import Page, check
from ranks import REPO
from run_summaries import CONFIG, printed, summary_of

from dlio_torch import cli
from dlio_torch.analysis.goodput_inputs import goodput_part, measured_inputs
from dlio_torch.checkpoint.goodput import best_interval_s, lost_share
from dlio_torch.config.schema import CheckpointConfig
from dlio_torch.report.html import report_run

OPTIONS = CheckpointConfig(layout="files", every_steps=50, mtbf_s=3600.0, restart_s=30.0)
ASYNC: dict[str, Any] = {
    "save": {"stall_s": {"median": 0.002, "p95": 1.0}, "durable_s": {"mean": 0.04, "median": 0.03}},
    "slowdown": 0.05,
    "restore": {"metadata_s": 0.5, "plan_s": None, "read_s": {"median": 2.0}, "copy_s": 0.25, "bytes_per_s": 7.0},
}


def summary(checkpoints: dict[str, Any] | None = None, *, fsync: bool = True, checkpoint: float = 4) -> dict[str, Any]:
    """A run of 10 ms of compute and 4 ms of saving a step, two epochs; its slower rank restores in 1.5 s."""
    extra = {
        "saved": {"checkpoints": 20 if checkpoint else 0, "bytes": 1, "fsync": fsync},
        "restore": {"seconds": [1.5, None, 0.5], "bytes": [1, None, 1]},
        "epochs": [[{"seconds": 20.0}, {"seconds": 30.0}], [{"seconds": 25.0}, {"seconds": 25.0}]],
    }
    content = summary_of(extra, checkpoint=checkpoint)
    content["checkpoints"].update(checkpoints or {})
    return content


def part_of(content: dict[str, Any], options: CheckpointConfig = OPTIONS) -> dict[str, Any]:
    part = goodput_part(content, replace(CONFIG, checkpoint=options))
    assert part is not None
    return part


def test_a_synchronous_save_is_durable_when_its_stall_ends() -> None:
    inputs = measured_inputs(summary(), OPTIONS)
    assert inputs is not None
    assert (inputs.stall_s, inputs.durable_s, inputs.step_s) == pytest.approx((0.004, 0.004, 0.010))
    assert (inputs.slowdown, inputs.start_s, inputs.read_s) == (None, 30.0, 1.5)
    part = part_of(summary())
    assert part["interval_s"] == pytest.approx(50 * 0.010 + 0.004)
    assert part["best_interval_s"] == best_interval_s(inputs)
    assert part["lost_share_at_interval"] == lost_share(inputs, part["interval_s"])
    assert part["why"] is None


def test_parts_of_an_asynchronous_save_come_first() -> None:
    inputs = measured_inputs(summary(ASYNC), OPTIONS)
    assert inputs is not None
    assert (inputs.stall_s, inputs.durable_s, inputs.slowdown, inputs.read_s) == (0.002, 0.04, 0.05, 2.75)
    whole = {**ASYNC, "undisturbed": {"step_s": {"mean": 0.008}}, "restore": {"duration_s": {"mean": 3.0}}}
    undisturbed = measured_inputs(summary(whole), OPTIONS)
    assert undisturbed is not None
    assert (undisturbed.step_s, undisturbed.read_s) == (0.008, 3.0)
    faster = measured_inputs(summary({**ASYNC, "slowdown": -0.01}), OPTIONS)
    assert faster is not None
    assert faster.slowdown == 0
    without = measured_inputs(summary({"save": None, "slowdown": None, "restore": None}), OPTIONS)
    assert without == measured_inputs(summary(), OPTIONS)


@pytest.mark.parametrize(
    ("steps", "epochs", "interval"), [(0, 2, 50 + 5), (50, 1, 0.504), (10**6, 1, 27.5), (0, 0, None)]
)
def test_the_interval_is_that_of_the_options(steps: int, epochs: int, interval: float | None) -> None:
    part = part_of(summary(), replace(OPTIONS, every_steps=steps, every_epochs=epochs))
    assert part["interval_s"] == (None if interval is None else pytest.approx(interval))
    assert any("the one that saves more often" in each for each in part["assumptions"]) == bool(steps and epochs)


def test_conditions_of_the_run_stand_with_the_assumptions() -> None:
    assert not any("fsync" in each for each in part_of(summary())["assumptions"])
    assert any("no fsync" in each for each in part_of(summary(fsync=False))["assumptions"])
    flushed = {**ASYNC, "save": {**ASYNC["save"], "fsync_s": {"mean": 0.01}}}
    assert not any("fsync" in each for each in part_of(summary(flushed, fsync=False))["assumptions"])
    assert any("fsync" in each for each in part_of(summary(ASYNC, fsync=False))["assumptions"])
    scaled = {**summary(), "scaled": ["checkpoint.every_steps 50 -> 5 (scale=laptop)"]}
    assert any("scale=paper" in each for each in part_of(scaled)["assumptions"])


def test_a_run_without_saves_has_no_goodput_unless_it_is_asked_for() -> None:
    none = summary(checkpoint=0)
    assert goodput_part(none, replace(CONFIG, checkpoint=replace(OPTIONS, mtbf_s=0.0, restart_s=0.0))) is None
    part = part_of(none)
    assert (part["lost_share"], part["inputs"]) == (None, None)
    assert part["why"] == "no checkpoint was saved in a measured step"


def test_the_console_says_it_in_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    def text(content: dict[str, Any]) -> str:
        return " ".join(printed(content, monkeypatch).split())

    content = summary()
    assert "goodput" not in text(content)  # as older runs have it
    line = text({**content, "goodput": part_of(content)})
    assert "goodput with a failure every 1 h 0 min, a save every 5.37 s (536 steps) is best: saves and failures" in line
    assert "of the time; this run's interval, 504 ms, costs 1." in line
    content["restore"]["seconds"] = [None]
    assert "cost at least" in text({**content, "goodput": part_of(content)})
    slow = summary({"save": {"stall_s": 0.002, "durable_s": 0.9}})
    assert "this run saves every 502 ms, which is too often" in text({**slow, "goodput": part_of(slow)})
    none = summary(checkpoint=0)
    assert "goodput not measured: no checkpoint was saved" in text({**none, "goodput": part_of(none)})
    silent = part_of(content, replace(OPTIONS, mtbf_s=0.0, restart_s=0.0))
    assert "goodput" not in text({**content, "goodput": silent})


def test_the_command_of_the_documentation_shows_goodput_on_the_page(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    [command] = re.findall(r"```sh\n(.*?)```", (REPO / "docs/goodput.md").read_text(encoding="utf-8"), re.DOTALL)
    options = [f"dataset.root={tmp_path}/data", f"output.dir={tmp_path}/run", "output.progress=false", "scale=tiny"]
    given = shlex.split(command.replace("\\\n", " "))
    assert given[:3] == ["python", "-m", "dlio_torch"]
    assert cli.main([*given[3:], *options]) == 0
    part = json.loads((tmp_path / "run/summary.json").read_text())["goodput"]
    assert (part["inputs"]["mtbf_s"], part["inputs"]["start_s"], part["why"]) == (3 * 3600, 300, None)
    assert 0 < part["lost_share"] < part["lost_share_at_interval"] < 1
    page = Page(report_run(tmp_path / "run"))
    check(page)
    section = page.section("goodput")
    assert "With a failure every 3 h 0 min, a save every" in section
    assert "5 min 0 s to detect the failure and to start the job (checkpoint.restart_s), and" in section
    assert "Lost time over the interval of saves" in page.text
    assert marked_points(page) == {"best interval", "interval of this run"}


def marked_points(page: Page) -> set[str]:
    """Labels of the marked points of the picture, from their tips."""
    tips = [text for text in page.texts if text.endswith("lost") and ": " in text]
    return {tip.partition(":")[0] for tip in tips}


def test_a_page_without_a_time_between_failures_names_the_option(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    options = [f"dataset.root={tmp_path}/data", f"output.dir={tmp_path}/run", "output.progress=false"]
    assert (
        cli.main(["recipe=minimal", "scale=tiny", "checkpoint=torch_save", "checkpoint.state_bytes=4KiB", *options])
        == 0
    )
    assert "set checkpoint.mtbf_s" in Page(report_run(tmp_path / "run")).section("goodput")


def test_a_restart_without_a_time_between_failures_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["recipe=minimal", "checkpoint=torch_save", "checkpoint.restart_s=1min", "--dry-run"]) == 2
    line = capsys.readouterr().err
    assert "checkpoint.restart_s" in line
    assert "set checkpoint.mtbf_s" in line
    assert cli.main(["recipe=minimal", "checkpoint=torch_save", "checkpoint.mtbf_s=-1", "--dry-run"]) == 2
