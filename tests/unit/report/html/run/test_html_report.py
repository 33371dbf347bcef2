"""The HTML report: one file, whole or with what is missing named, inert whatever the names in it are."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from html_pages import HOSTILE, MIB, Page, check
from real_data import real_input

from dlio_torch import cli
from dlio_torch.errors import DataError, MissingPackageError
from dlio_torch.iotrace.events.event_files import Process
from dlio_torch.iotrace.events.event_table import EventTable, Skipped
from dlio_torch.iotrace.events.recording import COUNTERS, Recording
from dlio_torch.iotrace.figures.call_selection import data_only
from dlio_torch.report.html import report_run, write_report

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

SEES = frozenset({"open", "close", "read", "write"})


def calls(count: int, files: list[str], *, ranks: int = 1, seed: int = 1, span_s: float = 2.0) -> pd.DataFrame:
    """Random reads, one in ten a write, of several ranks and files."""
    random = np.random.default_rng(seed)
    start = np.sort(random.integers(0, int(span_s * 1e9), count)) + 10**12
    size = random.integers(1, 256 << 10, count)
    ops = pd.Categorical.from_codes((random.random(count) < 0.1).astype(np.int8), ["read", "write"])
    return pd.DataFrame(
        {
            "rank": random.integers(0, ranks, count).astype(np.int32),
            "pid": np.int32(100),
            "tid": np.int32(100),
            "layer": pd.Categorical.from_codes(np.zeros(count, np.int8), ["posix"]),
            "op": ops,
            "file": pd.Categorical.from_codes(random.integers(0, len(files), count), pd.Index(files, dtype=object)),
            "offset": random.integers(0, 512 * MIB, count),
            "bytes": size,
            "start_ns": start,
            "end_ns": start + random.integers(1_000, 300_000, count),
            "step": np.int32(-1),
        }
    )


def recording(frame: pd.DataFrame, **more: Any) -> Recording:
    processes = tuple(Process(rank, 100, "trainer", None, "h", "c", 0, 0, {}) for rank in sorted(set(frame["rank"])))
    given: dict[str, Any] = {"kind": "trace", "sees": SEES, "runtime_s": 2.0, **more}
    return Recording(Path("/logs/app"), events=EventTable(frame, processes, ()), **given)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run, with two epochs and checkpoints."""
    folder = tmp_path_factory.mktemp("run")
    options = [f"dataset.root={folder}/data", f"output.dir={folder}/run", "output.progress=false", "train.epochs=2"]
    assert cli.main(["recipe=minimal", "scale=tiny", "checkpoint=torch_save", "scale.max_epochs=0", *options]) == 0
    return folder / "run"


@pytest.fixture
def broken(finished: Path, tmp_path: Path) -> Callable[..., Path]:
    """A copy of the run without some of its parts."""

    def without(*names: str) -> Path:
        target = tmp_path / "broken"
        shutil.copytree(finished, target)
        for name in names:
            part = target / name
            shutil.rmtree(part) if part.is_dir() else part.unlink()
        return target

    return without


def test_a_finished_run(finished: Path) -> None:
    path = report_run(finished)
    assert path == finished / "report.html"
    page = Page(path)
    check(page)
    summary = json.loads((finished / "summary.json").read_text())
    assert "minimal, scale tiny" in page.text
    assert "Time of each training step" in page.text
    assert "Run time of each rank, by phase of the trainer" in page.text
    assert "Compute and I/O over time" in page.text
    assert "Bytes read in each epoch, by origin" in page.section("cache") or summary["io"]["read_bytes"] is None
    assert "epoch 2" in page.section("steps")
    assert "not measured" in page.section("steps")  # no allreduce on one rank: not "0 s"
    assert "hdf5" in page.section("contents")
    assert "dataset.format" in page.section("config")
    assert "conf/dataset/hdf5.yaml" in page.section("config")
    assert "cpu.model" in page.section("environment")
    assert not [name for name in finished.iterdir() if name.name.endswith(".tmp")]


def test_the_first_screen_answers_in_a_picture_four_figures_and_changes(broken: Callable[..., Path]) -> None:
    directory = broken()
    path = directory / "summary.json"
    summary = json.loads(path.read_text())
    item = {"text": "why so", "evidence": [], "predicted": None, "confidence": "low", "also": []}
    changes = [item | {"rule": "more_readers", "key": f"loader.key{number}", "value": "2"} for number in range(4)]
    summary["advice"] = {
        "conclusion": "Steps wait.",
        "items": [item | {"rule": "late_compute", "key": None, "value": None}, *changes],
        "withheld": [], "caveats": [], "model": None,
    }  # fmt: skip
    summary["storage"] |= {"limit_bytes_per_s": 1e6, "cached": "cold"}
    summary["au_limit_of_loader"] |= {"mean": 0.75}
    path.write_text(json.dumps(summary))
    page = Page(report_run(directory))
    check(page)
    first = page.section("overview")
    assert page.source.index('id="overview"') < page.source.index("<nav")
    assert page.source.split("<nav", 1)[0].count('<dd class="value') == 4
    for words in (
        "Mean step of one rank",
        "per step of all ranks at the measured limit",
        "loader: production of a batch",
        "limit of the loader: 75.0 %",
    ):
        assert words in first
    assert "loader.key2=2 no gain predicted why so" in first
    assert "loader.key3" not in first
    assert "late compute" not in first
    advice = page.section("advice")
    assert advice.index("loader.key3=2") < advice.index("What else was noticed") < advice.index("late compute")


def test_a_storage_limit_that_was_not_measured_is_left_out(finished: Path, tmp_path: Path) -> None:
    text = Page(report_run(finished, tmp_path / "page.html")).section("overview")
    assert "the limit of the storage was not measured (set storage.limits=measure)" in text


def test_the_same_input_gives_the_same_page(finished: Path, tmp_path: Path) -> None:
    first, second = (report_run(finished, tmp_path / name).read_text(encoding="utf-8") for name in "ab")
    stamp = re.compile(r"on \d{4}-\d\d-\d\d \d\d:\d\d UTC")
    assert stamp.sub("", first) == stamp.sub("", second)


def test_a_run_that_was_killed_keeps_its_steps_and_names_what_is_missing(broken: Callable[..., Path]) -> None:
    directory = broken("summary.json", "trace.json.gz", "environment.json", "sources.yaml")
    page = Page(report_run(directory))
    check(page)
    for name in ("summary.json", "environment.json", "sources.yaml"):
        assert f"{name} is missing" in page.section("skipped")
    assert "The run did not finish" in page.text
    assert "This run: mean of the training steps before it ended" in page.text
    steps = len(pd.read_csv(directory / "steps.csv").query("phase != 'eval'"))
    assert re.search(rf"training steps before the run ended {steps} all ranks, in .* wait for data per step", page.text)
    assert "Time of each training step" in page.section("steps")
    assert "Not recorded." in page.section("environment")
    assert "page cache was not recorded" in page.section("cache")


def test_damaged_parts_are_left_out_with_the_reason(broken: Callable[..., Path]) -> None:
    directory = broken()
    (directory / "summary.json").write_text("{", encoding="utf-8")
    (directory / "environment.json").write_text('["a list"]', encoding="utf-8")
    (directory / "sources.yaml").write_text("a: [", encoding="utf-8")
    (directory / "config.yaml").write_text("a: [\x00", encoding="utf-8")
    (directory / "steps.csv").write_text("no,columns\n", encoding="utf-8")
    for path in (directory / "events").iterdir():
        path.write_bytes(b"\x00" * 40)
    page = Page(report_run(directory))
    check(page)
    for name in ("summary.json", "environment.json", "sources.yaml", "steps.csv"):
        assert f"{name} is left out" in page.section("skipped")
    assert "Not recorded." in page.section("steps")


def test_a_summary_of_another_version_is_not_misread(broken: Callable[..., Path]) -> None:
    directory = broken()
    summary = json.loads((directory / "summary.json").read_text())
    (directory / "summary.json").write_text(json.dumps({**summary, "version": "99"}), encoding="utf-8")
    assert "version 99" in Page(report_run(directory)).section("skipped")


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        report_run(tmp_path / "nothing")


def test_names_in_a_recording_are_inert(tmp_path: Path) -> None:
    frame = calls(400, [HOSTILE, "/data/b.h5"])
    hostile = recording(frame, notes=("<b>note</b>",), facts={"command": ["a", "<script>alert(2)</script>"]})
    events = replace(hostile.events, skipped=(Skipped(Path("/x/<i>"), "<script>"),))
    page = Page(
        write_report(
            replace(hostile, events=events),
            tmp_path / "page.html",
            config="a: '</pre><script>alert(3)</script>'\nexpect: [{metric: <u>, value: 1}]\n",
            sources={"<script>": "</td>"},
            environment={"host": "<img src=x onerror=alert(4)>"},
        )
    )
    check(page)
    assert not page.of("img")
    assert '/data/<script>alert(1)</script>"' in page.text
    assert page.section("access").count("&lt;script&gt;") >= 2  # in the figure's title and in the caption
    assert "\u202e" not in page.source
    assert "\x1b" not in page.source


def test_counters_only(tmp_path: Path) -> None:
    row = dict.fromkeys(COUNTERS, -1) | {
        "rank": -1, "layer": "posix", "file": "/data/a.h5", "opens": 8, "reads": 100, "writes": 0,
        "bytes_read": 5 * MIB, "bytes_written": 0, "read_s": 1.5, "write_s": 0.0, "meta_s": 0.1,
    }  # fmt: skip
    counted = recording(calls(0, ["-"]), kind="darshan", counters=pd.DataFrame([row]), world_size=8)
    page = Page(write_report(counted, tmp_path / "page.html"))
    check(page)
    assert "The program's counters contain 5 MiB read" in page.text
    assert "/data/a.h5" in page.section("files")
    first = page.section("overview")
    for name in ("read through posix", "written through posix", "time in I/O calls, all ranks", "files"):
        assert name in first
    for key in ("sizes", "rates", "access"):
        assert "Not recorded." in page.section(key)
        assert "DXT_ENABLE_IO_TRACE" in page.section(key)


def test_what_only_counters_know_is_told_beside_the_calls(tmp_path: Path) -> None:
    row = dict.fromkeys(COUNTERS, -1) | {"rank": 0, "file": "/data/a", "opens": 1, "reads": 0, "writes": 9}
    rows = [row | {"layer": "stdio", "bytes_read": 0, "bytes_written": 3 * MIB}]
    both = recording(calls(50, ["/data/a"]).assign(offset=-1), kind="darshan", counters=pd.DataFrame(rows))
    page = Page(write_report(both, tmp_path / "page.html"))
    check(page)
    assert "by counters without recorded calls 3 MiB written through stdio" in page.text
    assert "known from counters: single calls were not recorded" in page.section("calls")
    assert "1 file in 2 rows, one per layer and file" in page.section("files")
    assert "a further 3 MiB written through stdio, which no row includes" in page.section("ranks")


def test_what_the_order_is_computed_from_is_said(tmp_path: Path) -> None:
    frame = calls(50, ["/a"])
    frame.loc[:9, "offset"] = -1
    page = Page(write_report(recording(frame), tmp_path / "page.html"))
    for key in ("overview", "access"):
        assert "of the 40 of 50 accesses whose offset is known" in page.section(key)


def test_program_files_are_left_out() -> None:
    both = recording(calls(60, ["/data/a", "/env/site-packages/x.py", "<STDERR>"]))
    found = data_only(both)
    assert set(found.events.frame["file"]) == {"/data/a"}
    assert found.notes == (
        f"{60 - len(found.io)} calls on 2 program files (Python modules, libraries, ...) are left out",
    )
    assert data_only(found) is found
    alone = recording(calls(5, ["/etc/hosts"]))
    assert data_only(alone) is alone


def test_the_events_of_a_run_stand_for_it(broken: Callable[..., Path]) -> None:
    directory = broken()
    assert report_run(directory / "events") == directory / "report.html"
    assert not (directory / "events" / "report.html").exists()


def test_the_verb_writes_where_it_is_told(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "x.json"
    assert cli.main(["report", str(finished), "--json", "--output", str(target)]) == 0
    assert json.loads(target.read_text())["schema"] == "dlio_torch.io"
    assert capsys.readouterr().out == f"report: {target}\n"
    for output, told in (
        (tmp_path, "is a folder, and a file is written; give"),
        (tmp_path / "no" / "x", "there is no folder"),
    ):
        assert cli.main(["report", str(finished), "--output", str(output)]) == 2
        assert told in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_nothing_recorded_at_all(tmp_path: Path) -> None:
    page = Page(write_report(recording(calls(0, ["-"])), tmp_path / "page.html"))
    check(page)
    assert not page.captions
    assert "No figures of single ranks were recorded" in page.text
    assert "python -m dlio_torch trace -- CMD" in page.section("sizes")


def test_one_call(tmp_path: Path) -> None:
    page = Page(write_report(recording(calls(1, ["/data/a"])), tmp_path / "page.html"))
    check(page)
    assert "File access map" in page.text


def test_calls_without_offsets_have_sizes_and_no_positions(tmp_path: Path) -> None:
    frame = calls(50, ["/a", "/b"]).assign(offset=-1)
    page = Page(write_report(recording(frame), tmp_path / "page.html"))
    check(page)
    assert "Figure" in page.section("sizes")
    assert "Positions in files are not known: the recording does not contain them" in page.section("access")


def test_many_files_of_many_ranks_stay_small(tmp_path: Path) -> None:
    frame = calls(300_000, [f"/data/part-{number:05d}.npz" for number in range(400)], ranks=40)
    page = Page(write_report(recording(frame, world_size=40), tmp_path / "page.html"))
    check(page)
    assert "all files, end to end by path" in page.section("access")
    assert re.search(r"300,000 accesses are drawn as [\d,]+ marks", page.section("access"))
    assert "400 files, the 20 with most bytes" in page.section("files")
    assert "380 more files" in page.section("files")
    assert "32 more ranks are not shown" in page.section("overlap")


def test_untrusted_times_are_said(tmp_path: Path) -> None:
    slowed = recording(calls(50, ["/a"]), kind="strace", trusted_times=False)
    assert "slowed down by tracing" in Page(write_report(slowed, tmp_path / "page.html")).captions[0]


def test_the_extra_is_named_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingPackageError, match=r"dlio-torch\[report\]"):
        write_report(recording(calls(1, ["/a"])), tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dlio_unet3d_counters.darshan", ("DXT_ENABLE_IO_TRACE", "img_130_of_168.npz")),
        ("nonmpi_dxt.darshan", ("File access map", "Transfer sizes")),
    ],
)
def test_real_logs(name: str, expected: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("darshan")
    monkeypatch.chdir(tmp_path)
    path = report_run(real_input(name))
    assert path == tmp_path / f"{name}.report.html"
    page = Page(path)
    check(page)
    for text in expected:
        assert text in page.text
