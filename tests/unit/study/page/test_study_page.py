"""The page of a study: its answer, its figures and tables, what is missing named, inert whatever the names are."""

from __future__ import annotations

import dataclasses
import random
import re
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import pytest
from html_pages import HOSTILE, Page, check

from dlio_torch.analysis.repeats import Spread, apart, leaders, noise, spread
from dlio_torch.errors import MissingPackageError
from dlio_torch.report.html.page_blocks import UNKNOWN, Figure, Tiles
from dlio_torch.study.metrics import THROUGHPUT
from dlio_torch.study.model import Axis, Trial
from dlio_torch.study.page.page_data import SearchSummary, StudyData
from dlio_torch.study.page.points import StudyView
from dlio_torch.study.page.ranking_figure import ranking_figure
from dlio_torch.study.page.section_pairs import pair_section
from dlio_torch.study.page.section_points import overview
from dlio_torch.study.page.study_page import write_study
from dlio_torch.study.published.comparison import PublishedFigure, PublishedPoint, Statement
from dlio_torch.study.published.publication import Series
from dlio_torch.study.store import is_study
from dlio_torch.study.strategies.ladder.effects import Effect
from dlio_torch.study.strategies.ladder.gains import Gain
from dlio_torch.study.strategies.ladder.rungs import Rung
from dlio_torch.study.strategies.search.confirmation import PairedGain
from dlio_torch.study.strategies.search.copy_blocks import CopyBlocks

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

WORKERS = Axis("loader.num_workers", ("0", "1", "2", "4"), default="2")
PREFETCH = Axis("loader.prefetch_factor", ("2", "8"), default="2")
CHUNK = Axis("dataset.hdf5.chunk_bytes", ("64KiB", "256KiB", "1MiB", "16MiB"), default="262144")
Settings = Mapping[str, str]


def started(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def run(
    point: int,
    repeat: int,
    settings: Settings,
    figures: Mapping[str, float | None] | None = None,
    *,
    start_s: float | None = None,
    **more: object,
) -> Trial:
    """A trial, finished unless it has an error."""
    return Trial(
        point=point,
        repeat=repeat,
        values=tuple(settings.items()),
        figures=figures or {},
        started="" if start_s is None else started(start_s),
        **more,  # type: ignore[arg-type]
    )


def study(
    axes: tuple[Axis, ...],
    throughput: Callable[[Settings], float],
    *,
    repeats: int = 3,
    scatter: float = 0.01,
    failing: Callable[[Settings], bool] = lambda settings: False,
    **more: object,
) -> StudyData:
    """A sweep whose throughput is a function of the settings and some noise."""
    chance = random.Random(7)
    trials: list[Trial] = []
    points: dict[tuple[str, ...], int] = {}
    for repeat in range(1, repeats + 1):
        seen = set()
        for values in product(*(axis.values for axis in axes)):
            settings = dict(zip((axis.key for axis in axes), values, strict=True))
            if settings.get(WORKERS.key) == "0" and PREFETCH.key in settings:
                settings[PREFETCH.key] = "-"
            place = tuple(settings.values())
            if place in seen:
                continue
            seen.add(place)
            number = points.setdefault(place, len(points) + 1)
            start = 8.0 * len(trials)
            if failing(settings):
                trials.append(
                    run(number, repeat, settings, status="failed", error="no space left", exit_code=3, start_s=start)
                )
                continue
            value = throughput(settings) * chance.gauss(1, scatter)
            figures = {
                "train.samples_per_s": value,
                "au.mean": value / 1e4,
                "step.fetch_s.mean": 10 / value,
                "io.device_read_share": 0.97,
                "storage.bytes_per_s": value * 1e5,
                "storage.limit_bytes_per_s": 4e8,
                "trial.wall_s": 7.5,
            }
            trials.append(
                run(
                    number,
                    repeat,
                    settings,
                    figures,
                    start_s=start,
                    directory=f"trials/{number}-{repeat}",
                    cache="cold",
                )
            )
    given: dict[str, object] = {"title": "a study", "path": Path("/runs/a"), "planned": len(trials), **more}
    return StudyData("sweep", axes=axes, trials=tuple(trials), **given)  # type: ignore[arg-type]


def more_workers(settings: Settings) -> float:
    """Workers help; prefetching helps only with four of them."""
    workers = int(settings[WORKERS.key])
    prefetch = settings.get(PREFETCH.key)
    return 300.0 * (1 + workers) * (0.6 if prefetch == "8" and workers == 1 else 1.5 if prefetch == "8" else 1.0)


def page_of(data: StudyData, folder: Path) -> Page:
    target = folder / "report.html"
    assert write_study(data, target) == target
    page = Page(target)
    check(page)
    return page


def test_a_sweep_of_two_options(tmp_path: Path) -> None:
    page = page_of(study((WORKERS, PREFETCH), more_workers), tmp_path)
    assert "num_workers=4 prefetch_factor=8 is best beyond noise" in page.text
    assert "times the default's" in page.text
    options = page.section("options")
    assert "Effect of loader.num_workers" in options
    assert "Effect of loader.prefetch_factor" in options
    assert "num_workers=4 is best beyond noise at every setting of the other options" in options
    # 8 loses at one worker and wins at four.
    assert "The options interact: the best prefetch_factor depends on the others" in options
    assert "2 at num_workers=1" in options
    assert "dashed frame: the default" in page.section("pairs")
    settings = page.section("points")
    assert settings.count("best") >= 2  # the mark and the note
    assert "default" in settings
    assert "97.0 %" in settings
    assert "storage limit" in page.section("storage")
    assert "21 trials in the order of time" in page.section("trials")
    assert "Repeats are interleaved" in page.section("drift")
    assert "loader.num_workers=" not in page.section("points")  # short names where they are clear
    assert "Not recorded." in page.section("environment")


def test_workloads_are_not_compared_with_each_other(tmp_path: Path) -> None:
    workloads = Axis("application", ("FFN", "CANDLE"), compared=False)
    ranks = Axis("ranks", ("1", "2", "4"))

    def rate(settings: Settings) -> float:
        return 100.0 * int(settings["ranks"]) if settings["application"] == "FFN" else 3.0

    page = page_of(study((workloads, ranks), rate), tmp_path)
    answer = page.text.split("Contents")[0]
    assert "application=FFN: ranks=4 is best beyond noise: throughput 40" in answer
    assert "application=CANDLE: ranks=" in answer
    assert "all other settings are as good within the noise of the repeats" in answer
    assert "sweep · 1, 2, 4 ranks" in page.text
    options = page.section("options")
    assert "Effect of ranks" in options
    assert "Effect of application" not in options
    assert "The best value of application" not in page.text
    assert "application against ranks" not in page.text
    rows = page.section("points").split("best FFN 4")[1]
    assert rows.index("FFN 1") < rows.index("CANDLE")  # workload by workload
    assert page.section("overview").count("throughput, samples/s") == 2
    once = page_of(study((workloads, ranks), rate, repeats=1), tmp_path)
    assert "application=CANDLE: ranks=" in once.text
    assert once.text.count("Each setting ran once, so the noise is unknown; set repeats=3 to measure the noise.") == 1


def test_the_first_screen_shows_the_best_settings_and_the_default() -> None:
    figure = ranking_figure(StudyView(study((WORKERS, PREFETCH), more_workers, scatter=0)))
    assert figure is not None
    assert "num_workers=4 prefetch_factor=8: 2,250 samples/s (2,250 to 2,250, 3 repeats)" in figure.svg
    assert "num_workers=2 prefetch_factor=2 (default): 900 samples/s" in figure.svg
    assert "longer bars are better" in figure.method
    many = study((CHUNK, WORKERS), lambda settings: 100.0 if settings[WORKERS.key] == "2" else 200.0, scatter=0)
    figure = ranking_figure(StudyView(many))
    assert figure is not None
    assert figure.title == "The best settings: 8 of 16"
    assert figure.svg.count("(default): 100 samples/s") == 1  # though it is among the worst
    assert figure.svg.count(": 200 samples/s") == 7
    assert ranking_figure(StudyView(study((Axis("ranks", ("1",)),), lambda _: 1.0))) is None  # nothing to compare


def test_bars_of_workloads_are_relative_to_the_best_of_each() -> None:
    workloads = Axis("application", ("FFN", "CANDLE"), compared=False)
    ranks = Axis("ranks", ("1", "4"))
    rates = {("FFN", "1"): 1000.0, ("FFN", "4"): 4000.0, ("CANDLE", "1"): 3.0, ("CANDLE", "4"): 1.5}
    figure = ranking_figure(
        StudyView(study((workloads, ranks), lambda settings: rates[settings["application"], settings["ranks"]]))
    )
    assert figure is not None
    assert "share of the best setting of the same workload" in figure.svg
    order = re.findall(r"application=(\w+) ranks=(\d): ", figure.svg)
    assert list(dict.fromkeys(order)) == [("FFN", "4"), ("FFN", "1"), ("CANDLE", "1"), ("CANDLE", "4")]


def test_the_named_default_does_not_cross_its_neighbour(tmp_path: Path) -> None:
    sizes = Axis("dataset.tfrecord.transfer_size", tuple(f"{2**power}KiB" for power in range(6, 15)), default="256KiB")
    page = page_of(study((sizes,), lambda settings: 500.0), tmp_path)
    assert "256KiB (default)" in page.section("options")  # in one line: slanted texts of two lines cross


def test_without_a_difference_nothing_is_called_best(tmp_path: Path) -> None:
    data = study((WORKERS,), lambda settings: 500.0, scatter=0.03)
    page = page_of(data, tmp_path)
    assert "is best" not in page.text.split("A setting is marked “best”")[0]
    assert "all other settings are as good within the noise" in page.text
    assert "No value of num_workers differs from the best beyond noise" in page.section("options")


def test_single_runs_say_that_the_noise_is_not_known(tmp_path: Path) -> None:
    page = page_of(study((CHUNK,), lambda settings: 500.0 + len(settings[CHUNK.key]), repeats=1), tmp_path)
    assert "the noise is unknown; set repeats=3" in page.text
    settings = page.section("points")
    assert "One run of each setting" in settings
    assert "No setting is marked as best" in settings
    assert "throughput (train.samples_per_s) = samples of all ranks" in settings  # words, and the column of table.csv
    assert "Not measured: no setting ran more than once" in page.section("drift")
    assert "the abscissa is logarithmic" in page.section("options")
    assert "(default)" in page.section("options")  # 262144 is 256KiB


def test_failed_and_missing_trials_are_named(tmp_path: Path) -> None:
    def fails(settings: Settings) -> bool:
        return settings[WORKERS.key] == "4"

    data = study((WORKERS, PREFETCH), more_workers, failing=fails, planned=90, missing=("trials.jsonl: 1 line broken",))
    warned = tuple(
        dataclasses.replace(trial, warnings=(f"RAM was measured: {at} GiB",))
        for at, trial in enumerate(data.trials[:5])
    )
    page = page_of(dataclasses.replace(data, trials=(*warned, *data.trials[5:])), tmp_path)
    top = page.section("overview")
    assert "6 of 21 trials failed" in top
    assert "The study is not finished: 21 of 90 trials" in top
    assert "RAM was measured: 0 GiB (5 of 21 trials; the numbers are of one of these trials)" in top
    assert "trials.jsonl: 1 line broken" in top
    assert page.section("failed").count("no space left") == 6
    assert "RAM was measured" in page.section("storage")
    assert "failed" in page.section("options")


@pytest.mark.parametrize("failing", [True, False])
def test_a_study_without_figures_still_has_a_page(tmp_path: Path, failing: bool) -> None:
    data = study((WORKERS,), more_workers, failing=lambda settings: True)
    page = page_of(data if failing else dataclasses.replace(data, trials=()), tmp_path)
    assert ("None of 12 trials gave a figure: no space left" if failing else "No trial has run yet") in page.text


def test_many_settings_become_small_multiples(tmp_path: Path) -> None:
    formats = Axis("dataset.format", ("hdf5", "npz", "tfrecord"), default="hdf5")
    data = study((WORKERS, CHUNK, formats), more_workers, repeats=2)
    page = page_of(data, tmp_path)
    assert "48 settings" in page.section("overview")
    assert "No value of format differs from the best beyond noise at any setting" in page.section("options")
    assert "the best of all settings of the other options" in page.section("pairs")


def test_page_cache_results_say_so(tmp_path: Path) -> None:
    data = study((WORKERS,), more_workers)
    trials = (dataclasses.replace(one, figures={**one.figures, "io.device_read_share": 0.0}) for one in data.trials)
    page = page_of(dataclasses.replace(data, trials=tuple(trials)), tmp_path)
    assert "the study compares loaders, not storage" in page.text
    source = page.section("storage")
    assert "from the page cache" in source
    assert "from the device storage limit" not in source  # no bar has that colour


def published_series(title: str, quantity: str, source: str = "") -> Series:
    return Series(title, CHUNK.key, (), quantity, "s", "lower", THROUGHPUT.key, "higher", "Theta", source)


def test_published_points_stand_beside_ours(tmp_path: Path) -> None:
    ours = {"64KiB": 200.0, "256KiB": 400.0, "1MiB": 500.0, "16MiB": None}
    theirs = {"64KiB": 36.0, "256KiB": 18.0, "1MiB": 12.0, "16MiB": 13.0}
    points = tuple(
        PublishedPoint(
            value,
            theirs[value],
            None if (mine := ours[value]) is None else Spread(mine, mine - 9, mine + 9, 3),
        )
        for value in ours
    )
    series = published_series("Fig. 9 a: transfer size", "I/O time", source="[paper] figure 9")
    words = ("Both rise up to 1 MiB.", "it has the best median")
    figure = PublishedFigure(series, series.title, points, "256KiB", words)
    gzip = dataclasses.replace(series, name="gzip 4")
    data = study(
        (CHUNK,),
        lambda settings: 400.0,
        published=(figure, dataclasses.replace(figure, series=gzip, points=points[:2])),
        statements=(Statement("1 MB is best", "agrees", "it has the best median", "[paper] V.C.1"),),
        remarks=("The plateau is an identity.",),
    )
    page = page_of(data, tmp_path)
    assert "1 published statement checked: 1 agrees." in page.text
    assert "Published: I/O time (reference / value); measured: median of throughput (value / reference)" in page.text
    section = page.section("published")
    assert "Both rise up to 1 MiB." in section
    assert section.count("it has the best median") == 1  # the statement says it
    assert "1 MB is best agrees it has the best median" in section
    assert "The plateau is an identity." in section
    assert "1MiB 12 s 500 samples/s 491 to 509 1.5 1.25" in section  # 18 / 12, 500 / 400
    assert f"16MiB 13 s {UNKNOWN} {UNKNOWN} 1.38 {UNKNOWN}" in section
    assert "Published for Theta, which is another machine" in section
    assert (
        "I/O time" in page.source.split("<svg")[2].split("</svg>")[0]
    )  # a panel without a name is called by what it shows


def test_a_published_figure_of_single_runs_has_no_ranges(tmp_path: Path) -> None:
    points = tuple(PublishedPoint(value, 2.0, Spread(9.0, 9.0, 9.0)) for value in ("64KiB", "1MiB"))
    series = published_series("Fig. 1", "job time")
    figure = PublishedFigure(series, series.title, points)
    data = study(
        (CHUNK,),
        lambda settings: 400.0,
        repeats=1,
        published=(figure,),
        statements=tuple(
            Statement("said", verdict)
            for verdict in ("cannot be told", "cannot be told", "not measured", "agrees", "so")
        ),
    )
    page = page_of(data, tmp_path)
    section = page.section("published")
    assert "smallest to largest" not in section
    assert "median" not in section
    assert "5 published statements checked: 2 cannot be told, 1 was not measured, 1 agrees, 1 so." in page.text


def test_a_search_with_its_recommendation(tmp_path: Path) -> None:
    chance = random.Random(3)
    axes = (Axis(WORKERS.key, default="2"), Axis(CHUNK.key, default="64KiB"))
    trials = []
    for number in range(1, 31):
        settings = {WORKERS.key: str(chance.randrange(9)), CHUNK.key: f"{2 ** chance.randrange(16)}KiB"}
        settings = {axis.key: str(axis.default) for axis in axes} if number == 1 else settings
        value = 100.0 + 50 * int(settings[WORKERS.key])
        trials.append(
            run(number, 1, settings, {"train.samples_per_s": value, "au.mean": value / 900}, start_s=9.0 * number)
        )
    trials[9] = dataclasses.replace(trials[9], figures={}, status="failed", error="timed out after 60 s")
    data = StudyData(
        "tune",
        "tune: cosmic_tagger",
        Path("/runs/tune"),
        axes,
        tuple(trials),
        answer="num_workers=8: throughput +137.0 %.",
        search=SearchSummary("20 min", "nothing can beat it", {WORKERS.key: 0.9, CHUNK.key: 0.1}, grid_size=144),
        confirmation=PairedGain(((200.0, 480.0), (201.0, 470.0)), 1.37, 1.3, 1.4),
        recommendation=CopyBlocks(
            ((WORKERS.key, "8"),),
            (("On the command line", "loader.num_workers=8"), ("YAML", "loader:\n  num_workers: 8\n")),
        ),
        recommended=4,
    )
    page = page_of(data, tmp_path)
    assert "num_workers=8: throughput +137.0 %." in page.text
    assert "what an option explains here may be noise too" not in page.text
    assert "loader: num_workers: 8" in page.section("recommended")
    assert "2 of 2" in page.section("recommended")
    assert "Importance of the options" in page.section("search")
    assert "nothing can beat it" in page.section("search")
    assert "timed out after 60 s" in page.section("failed")
    unsure = dataclasses.replace(
        data, confirmation=PairedGain(((200.0, 202.0), (201.0, 199.0)), 0.01, -0.02, 0.03), recommended=1
    )
    page = page_of(unsure, tmp_path)
    assert "-2.0 % to 3.0 %" in page.section("recommended")
    assert "what an option explains here may be noise too" in page.section("search")


def test_a_search_shows_the_setting_that_it_chose_and_no_map_of_what_excludes_each_other(tmp_path: Path) -> None:
    ahead = Axis("loader.prefetch_batches", ("1", "2"), default="-")
    axes = (Axis(WORKERS.key, ("1", "2"), default="1"), Axis(PREFETCH.key, ("2", "4"), default="2"), ahead)
    values = {("1", "2", "-"): 100.0, ("1", "4", "-"): 101.0, ("2", "2", "-"): 110.0, ("2", "4", "-"): 111.0}
    values |= {("-", "-", "1"): 90.0, ("-", "-", "2"): 300.0}
    trials = []
    for number, (place, value) in enumerate(values.items(), 1):
        settings = dict(zip((axis.key for axis in axes), place, strict=True))
        runs = [value] if number == 6 else [value, 1.01 * value]  # a single lucky run
        trials += [run(number, at, settings, {THROUGHPUT.key: one}) for at, one in enumerate(runs, 1)]
    data = StudyData(
        "tune",
        "tune: minimal",
        Path("/runs/tune"),
        axes,
        tuple(trials),
        scaled=("compute.step_s 0.05 to 0.005",),
        search=SearchSummary(chosen=4),
        confirmation=PairedGain(((100.0, 101.0), (101.0, 100.0)), 0.0, -0.01, 0.01),
        recommendation=CopyBlocks((), ()),
        recommended=1,
    )
    found = StudyView(data)
    tiles = {tile[1]: tile for block in overview(found).blocks if isinstance(block, Tiles) for tile in block.tiles}
    assert tiles["throughput of the chosen setting, samples/s"][2] == "num_workers=2 prefetch_factor=4"
    assert not any("best" in label for label in tiles)
    assert tiles["chosen over default"][2].startswith("within noise: ")
    section = pair_section(found)
    assert section is not None
    (figure,) = section.blocks
    assert isinstance(figure, Figure)
    assert {WORKERS.key, PREFETCH.key} == set(figure.title.split(" against "))
    expected = "The scale changed these options of the published experiment: compute.step_s 0.05 to 0.005."
    assert expected in page_of(data, tmp_path).text


def test_a_ladder(tmp_path: Path) -> None:
    effects = (
        Effect(
            Rung("configured", "as configured"),
            step=Spread(0.12, 0.115, 0.13, 3),
            shares={"fetch": 2 / 3, "compute": 1 / 3},
        ),
        Effect(
            Rung("decode", "finished samples", "decoding"),
            step=Spread(0.06, 0.058, 0.061, 3),
            note="the largest gain",
            gain=Gain(2.07, None, None, 0.12, 3),  # of runs of the same round, which the medians are not
            cost=Gain(1.94, None, None, 0.12, 3),
        ),
        Effect(Rung("reads", "no messages", "allreduce"), why="one rank"),
    )
    data = StudyData(
        "headspace",
        "headspace: cosmic_tagger",
        Path("/runs/h"),
        answer="The loader is the bottleneck.",
        ladder=effects,
        evidence=("Decoding costs most.", "Nothing else does."),
    )
    page = page_of(data, tmp_path)
    assert "The loader is the bottleneck." in page.text
    section = page.section("ladder")
    assert "Decoding costs most. Nothing else does." in section
    assert "2.07 times" in page.section("overview")
    assert "without decoding finished samples 60 ms 58 ms to 61 ms 1.94 2.07 the largest gain" in section
    assert "(2.07 times as good)" in section
    assert "not measured" in section
    bare = dataclasses.replace(data, ladder=(Effect(Rung("configured", "as configured")),))
    assert "No rung of the ladder was measured" in page_of(bare, tmp_path).text


def test_hostile_names_are_inert(tmp_path: Path) -> None:
    axis = Axis(f"x.{HOSTILE}", (HOSTILE, "b", "<<c"), default=HOSTILE)
    figure = PublishedFigure(
        Series(HOSTILE, HOSTILE, (), HOSTILE, HOSTILE, "higher", HOSTILE, "higher", HOSTILE, HOSTILE, HOSTILE, HOSTILE),
        HOSTILE,
        (PublishedPoint(HOSTILE, 1.0, Spread(1.0, 1.0, 1.0)), PublishedPoint("b", 2.0, None)),
        words=(HOSTILE,),
    )
    data = study(
        (axis,),
        lambda settings: float(len(settings)) + 1,
        failing=lambda settings: settings[axis.key] == "b",
        title=HOSTILE,
        description=HOSTILE,
        settings=(HOSTILE,),
        config=((HOSTILE, HOSTILE),),
        published=(figure,),
        statements=(Statement(HOSTILE, HOSTILE, HOSTILE, HOSTILE),),
        remarks=(HOSTILE,),
        warnings=(HOSTILE,),
        environment={"host": HOSTILE, HOSTILE: HOSTILE},
        ladder=(Effect(Rung(HOSTILE, HOSTILE), step=Spread(1, 1, 1), shares={HOSTILE: 1.0}, note=HOSTILE),),
        evidence=(HOSTILE,),
        answer=HOSTILE,
        recommendation=CopyBlocks(((axis.key, HOSTILE),), ((HOSTILE, HOSTILE),)),
        confirmation=PairedGain(((1.0, 2.0), (1.0, 2.5)), 1.2, 1.0, 1.5),
        search=SearchSummary(HOSTILE, HOSTILE, {HOSTILE: 1.0}),
    )
    trials = tuple(
        dataclasses.replace(one, error=HOSTILE, cache=HOSTILE, directory=HOSTILE, warnings=(HOSTILE,))
        for one in data.trials
    )
    page = page_of(dataclasses.replace(data, trials=trials), tmp_path)
    assert "<script>alert" not in page.source
    for code in (0x1B, 0x202E):
        assert chr(code) not in page.source


def test_which_settings_differ_beyond_noise() -> None:
    low, near, high = (spread(values) for values in ((100, 101, 99), (101, 102, None), (150, 149, 151)))
    assert low == Spread(100, 99, 101, 3)
    assert near is not None
    assert high is not None
    assert not apart(low, near)  # they touch
    assert apart(low, high)
    assert not apart(low, Spread(200, 200, 200))  # a single run tells nothing of noise
    assert leaders({1: low, 2: high, 3: near}, "higher") == (2,)
    assert leaders({1: low, 2: high, 3: near}, "lower") == (1, 3)
    # Ranges that do not touch, but by less than what two runs scatter.
    assert not apart(Spread(100, 95, 105, 2), Spread(111, 106, 116, 2))
    # The more is asked at once, the larger a difference has to be.
    known = noise([low, near, high])
    assert known is not None
    assert apart(low, Spread(104, 103, 105, 3), known)
    assert not apart(low, Spread(104, 103, 105, 3), known, comparisons=1000)
    assert spread([None, float("nan")]) is None


def test_equal_settings_are_seldom_called_different() -> None:
    chance = random.Random(1)
    for settings, repeats in ((2, 2), (2, 3), (6, 3)):
        wrong = 0
        for _ in range(1000):
            drawn = (spread(chance.gauss(100, 3) for _ in range(repeats)) for _ in range(settings))
            wrong += len(leaders({at: one for at, one in enumerate(drawn) if one is not None}, "higher")) == 1
        assert wrong <= 70


def test_a_study_is_told_from_a_run(tmp_path: Path) -> None:
    assert not is_study(tmp_path)
    (tmp_path / "study.yaml").write_text("name: x\n")
    assert is_study(tmp_path)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPackageError, match="matplotlib"):
        write_study(study((WORKERS,), more_workers), tmp_path / "report.html")
    assert not any(tmp_path.iterdir())
