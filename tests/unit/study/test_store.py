"""What a study keeps: trials that survive a crash, the shuffled of trials, tables."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from dlio_torch.errors import DataError, PreconditionError
from dlio_torch.study.model import Axis, Point, Study, Trial, grid
from dlio_torch.study.store import Store, new_directory
from dlio_torch.study.strategies.grid import pending_trials, shuffled
from dlio_torch.study.study_console import draw_points, leading, sentence
from dlio_torch.study.tables import markdown, points_table, trials_table, write_tables

LABELS = Axis("layout", ("a", "b"), {"a": ("seed=1",), "b": ("seed=2", "verify=true")})
STUDY = Study("mine", "a title", ("recipe=minimal",), (Axis("loader.num_workers", ("0", "010")), LABELS), timeout_s=7.5)


def trial(point: int, repeat: int, rate: float | None, **about: object) -> Trial:
    values = (("loader.num_workers", str(point)),)
    return replace(
        Trial((), point, repeat, values, figures={"train.samples_per_s": rate, "extra.s": 1.0}),
        **about,  # type: ignore[arg-type]
    )


def test_a_study_comes_back_as_it_was(tmp_path: Path) -> None:
    kinds = Axis("recipe", ("minimal", "frnn"), compared=False)
    asked = replace(STUDY, definition="title: x\n", axes=(*STUDY.axes, kinds), verb="checkpoint")
    with Store.create(tmp_path / "s", asked, cwd=tmp_path, digests={1: "123456789012", 2: "1e5"}) as store:
        place = store.fresh_directory(1, 1)
        place.mkdir(parents=True)
        kept = store.append(trial(1, 1, 2.5, directory=str(place), warnings=("careful",)))
        store.append(trial(1, 2, None, status="failed", exit_code=3, error="no | 'data'\nä"))
        with pytest.raises(PreconditionError, match="another process is already running the study"):
            Store.open(tmp_path / "s")
        store.save(replace(asked, repeats=9))
    with Store.open(tmp_path / "s") as store:
        assert store.study == replace(asked, repeats=9)
        assert store.study.identity == asked.identity
        assert store.cwd == tmp_path
        assert store.digests == {1: "123456789012", 2: "1e5"}
        assert grid(store.study) == grid(asked)
        first, second = store.trials()
        assert first == kept
        assert first.directory == "trials/001-1"
        assert store.directory(first) == place
        assert (second.status, second.exit_code, second.error) == ("failed", 3, "no | 'data'\nä")
    with pytest.raises(PreconditionError, match="not empty"):
        Store.create(tmp_path / "s", asked)
    with pytest.raises(DataError, match=r"not the folder of a study"):
        Store.open(tmp_path)
    (tmp_path / "s" / "study.yaml").write_text("study: {}\n")
    with pytest.raises(DataError, match=r"study.yaml is damaged"):
        Store.open(tmp_path / "s")


@pytest.mark.parametrize("cut", [1, 20])
def test_a_line_that_was_cut_is_left_out_and_replaced(tmp_path: Path, cut: int) -> None:
    with Store.create(tmp_path / "s", STUDY) as store:
        for repeat in (1, 2):
            store.append(trial(1, repeat, 1.0))
        lines = store.path / "trials.jsonl"
        lines.write_bytes(lines.read_bytes()[:-cut])
        assert [one.repeat for one in store.trials()] == [1]
        store.append(trial(1, 3, 1.0))
        assert [one.repeat for one in store.trials()] == [1, 3]
        assert [json.loads(line)["repeat"] for line in lines.read_text().splitlines()] == [1, 3]
        lines.write_text('{"point": 1}\n' + lines.read_text())
        with pytest.raises(DataError, match=r"trials.jsonl:1 is damaged"):
            store.trials()


def test_half_finished_runs_go_and_failed_ones_stay(tmp_path: Path) -> None:
    with Store.create(tmp_path / "s", STUDY) as store:
        half = store.fresh_directory(2, 1)
        (half / "events").mkdir(parents=True)
        half.with_name("002-1.log").write_text("x")
        assert store.fresh_directory(2, 1) == half
        assert not half.exists()
        assert not half.with_name("002-1.log").exists()
        half.mkdir()
        store.append(trial(2, 1, None, status="failed", exit_code=1, directory=str(half)))
        assert store.fresh_directory(2, 1).name == "002-1.2"
        assert half.is_dir()


def test_two_studies_that_begin_at_once_get_two_folders(tmp_path: Path) -> None:
    first, second = (new_directory(tmp_path, "mine") for _ in range(2))
    assert first != second
    assert first.parent == tmp_path / "sweeps" / "mine"


def points(count: int) -> list[Point]:
    return [Point(number, (), ()) for number in range(1, count + 1)]


@settings(deadline=None)
@given(
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sets(st.integers(1, 6)),
    st.integers(0, 30),
)
def test_every_point_is_run_as_often_as_asked_whenever_it_is_cut(
    count: int, repeats: int, failures: int, broken: set[int], stop: int
) -> None:
    done: list[Trial] = []

    def go_on(limit: int) -> None:
        for _ in range(limit):
            pending = pending_trials(points(count), repeats, done, failures)
            if not pending:
                return
            number, repeat = pending[0].point.number, pending[0].repeat
            done.append(trial(number, repeat, 1.0, status="failed" if number in broken else "done"))

    go_on(stop)
    go_on(1000)
    good = sorted((one.point, one.repeat) for one in done if one.status == "done")
    assert good == [(n, r) for n in range(1, count + 1) if n not in broken for r in range(1, repeats + 1)]
    for number in broken & set(range(1, count + 1)):
        assert sum(one.point == number for one in done) == failures
    assert pending_trials(points(count), repeats, done, failures) == []


def test_repeats_are_interleaved_and_always_in_the_same_order() -> None:
    done: list[Trial] = []
    seen = []
    while pending := pending_trials(points(8), 3, done):
        seen.append((pending[0].repeat, pending[0].point.number))
        done.append(trial(pending[0].point.number, pending[0].repeat, 1.0))
    assert [repeat for repeat, _ in seen] == sorted(repeat for repeat, _ in seen)
    assert [number for _, number in seen[:8]] == [point.number for point in shuffled(points(8), 1)]
    assert seen[:8] != [(1, number) for _, number in seen[8:16]]


def test_tables_hold_medians_and_spread_and_what_failed(tmp_path: Path) -> None:
    rates = {1: [10.0, 11.0, 14.0], 2: [20.0, 22.0, 21.0], 3: [None]}
    done = [trial(point, i, rate) for point, values in rates.items() for i, rate in enumerate(values, 1)]
    done[-1] = replace(done[-1], status="failed", exit_code=4, error="a | b")
    axes = [Axis("loader.num_workers", ("1", "2", "3", "4"))]
    every = [Point(number, (("loader.num_workers", str(number)),), ()) for number in range(1, 5)]
    table = points_table(done, axes, every)
    assert list(table["point"]) == [1, 2, 3, 4]
    assert list(table["loader.num_workers"]) == ["1", "2", "3", "4"]
    assert list(table["n"]) == [3, 3, 0, 0]
    assert list(table["failed"]) == [0, 0, 1, 0]
    row = table.iloc[0]
    name = "train.samples_per_s"
    assert [row[f"{name}{what}"] for what in ("", ".min", ".max", ".mad")] == [11.0, 10.0, 14.0, 1.0]
    assert row["extra.s"] == 1.0
    assert pd.isna(table.iloc[2][name])
    assert pd.isna(row["io.read_bytes"])  # not measured is not 0
    notes = write_tables(tmp_path, trials_table(done, axes), table, axes)
    assert notes == []
    assert list(pd.read_csv(tmp_path / "table.csv")["n"]) == [3, 3, 0, 0]
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "table.parquet"), table)
    assert len(pd.read_parquet(tmp_path / "trials.parquet")) == 7
    lines = markdown(table, axes).splitlines()
    assert lines[0] == "| point | loader.num_workers | n | train.samples_per_s |"
    assert lines[2] == "| 1 | 1 | 3 | 11 (10 .. 14) |"
    assert lines[4] == "| 3 | 3 | 0 | a \\| b |"


def test_the_best_point_is_named_only_beyond_the_noise() -> None:
    def said(rates: dict[int, list[float]]) -> tuple[tuple[int, ...], str]:
        done = [trial(point, i, rate) for point, values in rates.items() for i, rate in enumerate(values, 1)]
        asked = replace(STUDY, axes=(Axis("loader.num_workers", ("1", "2")),))
        table = points_table(done, asked.axes)
        return leading(table, "train.samples_per_s", "higher"), sentence(asked, table)

    first, text = said({1: [10, 11, 12], 2: [13, 14, 15]})
    assert first == (2,)
    assert text.startswith("Best, beyond the noise of the repeats: point 2 (loader.num_workers=2)")
    first, text = said({1: [10, 11, 14], 2: [13, 14, 15], 3: [1, 2, 3]})
    assert first == (2, 1)
    assert "Highest median: point 2" in text
    assert text.endswith("1 other point is as good: 1.")
    assert "Highest of single measurements" in said({1: [10], 2: [13]})[1]


def test_the_best_point_of_each_workload_is_named() -> None:
    workloads = Axis("layout", ("a", "b"), {"a": ("seed=1",), "b": ("seed=2",)}, compared=False)
    asked = replace(STUDY, axes=(workloads, Axis("loader.num_workers", ("1", "2"))))
    done = [
        trial(
            2 * at + workers,
            repeat,
            scale * workers + repeat,
            values=(("layout", name), ("loader.num_workers", str(workers))),
        )
        for at, (name, scale) in enumerate({"a": 1000, "b": 10}.items())
        for workers in (1, 2)
        for repeat in (1, 2, 3)
    ]
    printed = io.StringIO()
    draw_points(Console(file=printed, width=150), asked, points_table(done, asked.axes))
    text = printed.getvalue()
    assert "Best, beyond the noise of the repeats: point 2 (layout=a loader.num_workers=2): throughput 2,002" in text
    assert "Best, beyond the noise of the repeats: point 4 (layout=b loader.num_workers=2): throughput 22" in text
    rows = [line.split()[:2] for line in text.splitlines() if line.strip()[:1].isdigit()]
    assert rows == [["2", "a"], ["1", "a"], ["4", "b"], ["3", "b"]]


def test_marks_are_whole_beside_many_columns() -> None:
    keys = ("dataset.hdf5.compression", "dataset.hdf5.chunk_bytes")
    asked = replace(
        STUDY,
        axes=(Axis(keys[0], ("none", "gzip")), Axis(keys[1], ("64KiB", "4MiB"))),
        figures=("train.samples_per_s", "reads.bytes_per_sample", "step.fetch_s.mean"),
    )
    done = [
        replace(trial(point, repeat, 100.0 + repeat), values=tuple(zip(keys, ("gzip", "64KiB"), strict=True)))
        for point in (1, 2)
        for repeat in (1, 2)
    ]
    for width in (100, 80):
        printed = io.StringIO()
        draw_points(Console(file=printed, width=width), asked, points_table(done, asked.axes))
        rows = [line.split() for line in printed.getvalue().splitlines() if "gzip  " in line]
        assert [row[-1] for row in rows] == ["first", "good"], width


def test_points_are_printed_in_words_and_units() -> None:
    figures = {"reads.bytes_per_sample": 411_648.0, "step.fetch_s.mean": 0.0125, "train.samples_per_s": 80.0}
    done = [replace(trial(point, 1, 80.0), figures=figures | {"step.fetch_s.mean": 0.01 * point}) for point in (1, 2)]
    asked = replace(
        STUDY,
        axes=(Axis("loader.num_workers", ("1", "2")),),
        figures=("step.fetch_s.mean", "reads.bytes_per_sample", "train.samples_per_s"),
        better="lower",
    )
    printed = io.StringIO()
    draw_points(Console(file=printed, width=120), asked, points_table(done, asked.axes))
    text = printed.getvalue()
    assert "Lowest of single measurements: point 1 (loader.num_workers=1): wait for data 10 ms; set repeats=3" in text
    words = text.split()
    assert "402 KiB" in text
    assert {"wait", "(samples/s)", "80"} <= set(words)
    assert not {"step.", "reads.", "train.samples_per_s"} & set(words)
