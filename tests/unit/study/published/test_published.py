"""Published points and sentences against made-up points: verdicts, their words, and what a malformed file says."""

from __future__ import annotations

from typing import Literal

import pandas as pd
import pytest

from dlio_torch.config.yamlfile import parse_document
from dlio_torch.errors import ConfigError
from dlio_torch.study.published.comparison import Agreement, Statement, compare, place, precautions
from dlio_torch.study.published.publication import Claim, Published, Series
from dlio_torch.study.published.publication import parse as parse_published
from dlio_torch.study.published.trends import Trend

RATE = "train.samples_per_s"


def table(rates: dict[str, float | list[float]], *, axis: str = "size", **others: str) -> pd.DataFrame:
    """Points as a study has them; a list holds the repeats of a point, a number is one measurement."""
    rows = []
    for value, given in rates.items():
        repeats = given if isinstance(given, list) else [given]
        middle = sorted(repeats)[len(repeats) // 2]
        rows.append(
            {axis: value, **others, "n": len(repeats), RATE: middle}
            | {f"{RATE}.min": min(repeats), f"{RATE}.max": max(repeats)}
        )
    return pd.DataFrame(rows)


def around(rate: float, noise: float = 0.01) -> list[float]:
    return [rate * (1 - noise), rate, rate * (1 + noise)]


def series(points: dict[str, float], **options: str) -> Published:
    return Published(
        series=(
            Series(
                title="Fig. 1",
                axis="size",
                points=tuple(points.items()),
                quantity="job time",
                unit="s",
                better="lower",
                measured=RATE,
                measured_better="higher",
                system="Theta, 8 ranks",
                source="a table",
                **options,  # type: ignore[arg-type]
            ),
        )
    )


def only(found: list[Agreement]) -> Agreement:
    assert len(found) == 1
    return found[0]


TIMES = {"4KB": 40.0, "16KB": 20.0, "64KB": 10.0}


@pytest.mark.parametrize(
    ("rates", "verdict", "words"),
    [
        ((1.0, 2.0, 4.0), "agrees", "Rank correlation of the 3 common points: 1.00."),
        (
            (4.0, 2.0, 1.0),
            "contradicts",
            "The published figure is best at 64KB, 4x better than at 4KB; the measured figure is best at 4KB, "
            "4x better",
        ),
        ((2.0, 1.0, 4.0), "partly", "Rank correlation of the 3 common points: 0.50."),
        ((1.0, 1.2, 1.5), "partly", "The direction is the same, the size is not."),
        ((1.0, 1.02, 1.04), "contradicts", "The measured line is flat: within 10 %."),
    ],
)
def test_a_series_of_points(rates: tuple[float, ...], verdict: str, words: str) -> None:
    points = table(dict(zip(TIMES, map(around, rates), strict=True)))
    found = only(compare(points, series(TIMES), axes=["size"], here="ext4, 2 cores"))
    assert found.statement.verdict == verdict
    assert words in found.statement.words
    assert found.statement.words.endswith("Published for: Theta, 8 ranks. Measured on: ext4, 2 cores.")
    assert found.figure is not None
    assert [point.published for point in found.figure.points] == list(TIMES.values())
    assert found.figure.reference == "4KB"


@pytest.mark.parametrize(
    ("theirs", "ours", "both"),
    [
        ("1KB 2KB 64KB 1MB", "1KB 64KB 1MB 4MB", "1KB 2KB 64KB 1MB 4MB"),
        ("1 8 32", "1 2 4 8", "1 2 4 8 32"),
        ("none gzip", "lzf none zstd gzip all", "lzf none zstd gzip all"),
        ("1 2 3", "3 9 1", "9 1 2 3"),
        ("1 2", "", "1 2"),
    ],
)
def test_points_of_both_sides_stand_in_one_order(theirs: str, ours: str, both: str) -> None:
    published = series(dict.fromkeys(theirs.split(), 1.0))
    figure = only(compare(table({name: around(1.0) for name in ours.split()} or {"x": float("nan")}), published)).figure
    assert figure is not None
    assert " ".join(point.value for point in figure.points) == both


def test_points_that_do_not_differ_beyond_their_noise_decide_nothing() -> None:
    noisy = table({value: around(rate, 0.5) for value, rate in zip(TIMES, (1.0, 1.2, 1.3), strict=True)})
    found = only(compare(noisy, series(TIMES))).statement
    assert found.verdict == "within noise"
    assert "do not differ beyond the noise of the repeats" in found.words
    level = series(dict.fromkeys(TIMES, 7.0))
    assert only(compare(noisy, level)).statement.verdict == "within noise"  # they may be 3x apart
    flat = only(compare(table({value: around(1.0) for value in TIMES}), level)).statement
    assert flat.verdict == "agrees"
    assert "The published figure is best at 4KB, 16KB and 64KB" in flat.words
    assert "Both lines are flat" in flat.words
    uneven = only(compare(table(dict(zip(TIMES, map(around, (1.0, 2.0, 4.0)), strict=True))), level)).statement
    assert uneven.verdict == "contradicts"


def test_small_factors_that_are_alike_agree() -> None:
    points = table({"1": around(1.0), "64": around(1.08)})
    assert only(compare(points, series({"1": 159.0, "64": 142.0}))).statement.verdict == "agrees"  # 1.12x


@pytest.mark.parametrize("theirs", [TIMES, dict.fromkeys(("4KB", "16KB", "64KB"), 7.0)])
def test_points_that_were_measured_once_decide_nothing_and_say_what_would(theirs: dict[str, float]) -> None:
    found = only(compare(table(dict(zip(TIMES, (1.0, 2.0, 4.0), strict=True))), series(theirs))).statement
    assert found.verdict == "cannot be told"
    expected = (
        "The differences of the measured points are of single runs, whose noise is unknown: repeats=3 "
        "measures the noise."
    )
    assert expected in found.words


def test_two_points_tell_a_direction_and_one_tells_nothing() -> None:
    two = {"4KB": 40.0, "64KB": 10.0}
    both = table({"4KB": around(1.0), "64KB": around(2.5)})
    assert only(compare(both, series(two))).statement.verdict == "agrees"
    assert only(compare(both, series({"4KB": 1.0, "64KB": 4.0}))).statement.verdict == "contradicts"
    assert only(compare(both, series({"4KB": 10.0, "64KB": 10.2}))).statement.verdict == "contradicts"
    assert only(compare(both.iloc[:1], series(two))).statement.verdict == "not measured"
    failed = both.assign(**{RATE: [1.0, float("nan")]})
    found = only(compare(failed, series(two)))
    assert found.statement.verdict == "not measured"
    assert found.figure is not None
    assert found.figure.points[1].measured is None


def claim(kind: str, **options: object) -> Published:
    trend = Trend(kind, **options)  # type: ignore[arg-type]
    return Published(claims=(Claim("said", "somewhere", "size", trend, RATE, "higher"),))


UP = {"1": around(1.0), "2": around(2.0), "4": around(3.9), "8": around(4.0)}
DOWN = dict(zip(UP, reversed(UP.values()), strict=True))
HILL = {"1": around(1.0), "2": around(4.0), "4": around(2.0), "8": around(1.5)}
NOISE = {value: [0.8, 1.0, 1.3] for value in UP}
UNSURE = {"1": [0.5, 1.0, 1.6], "2": [0.9, 1.6, 2.2], "4": [1.0, 1.9, 2.2]}
ONCE = {"1": 1.0, "2": 2.0, "4": 4.0}


@pytest.mark.parametrize(
    ("published", "rates", "verdict"),
    [
        (claim("improves"), UP, "agrees"),
        (claim("improves"), DOWN, "contradicts"),
        (claim("improves"), HILL, "partly"),
        (claim("improves"), NOISE, "within noise"),
        (claim("worsens"), DOWN, "agrees"),
        (claim("worsens"), UP, "contradicts"),
        (claim("worsens", start="2"), HILL, "agrees"),
        (claim("improves", end="2"), HILL, "agrees"),
        (claim("flat"), NOISE, "agrees"),
        (claim("flat"), UNSURE, "within noise"),
        (claim("flat", start="4", end="8"), UP, "agrees"),
        (claim("flat", start="1", end="4"), UP, "contradicts"),
        (claim("optimum", value="2"), HILL, "agrees"),
        (claim("optimum", value="4"), HILL, "contradicts"),
        (claim("optimum", value="4"), NOISE, "within noise"),
        (claim("optimum", value="16"), HILL, "not measured"),
        (claim("plateau", value="4"), {**UP, "8": around(3.95)}, "agrees"),
        (claim("plateau", value="2"), UP, "contradicts"),
        (claim("plateau", value="2"), NOISE, "within noise"),
        (claim("factor", start="1", end="2", factor=2.1), UP, "agrees"),
        (claim("factor", start="1", end="2", factor=96), UP, "partly"),
        (claim("factor", start="1", end="2", factor=0.5), UP, "contradicts"),
        (claim("factor", start="1", end="2", factor=1.35), NOISE, "within noise"),
        (claim("factor", start="1", end="2", factor=1.04), NOISE, "agrees"),
        (claim("factor", start="1", end="2", factor=1.04), UNSURE, "within noise"),
        (claim("worsens", start="8"), HILL, "not measured"),
        (claim("scales"), {"1": around(1.0), "2": around(1.9)}, "agrees"),
        (claim("scales"), {"1": around(1.0), "2": around(1.6, 0.05)}, "within noise"),
        (claim("falls_short", factor=0.5), {"1": around(1.0), "2": around(1.6, 0.05)}, "contradicts"),
        (claim("scales"), {"1": around(1.0), "2": around(1.1)}, "contradicts"),
        (claim("falls_short"), {"1": around(1.0), "2": around(1.1)}, "agrees"),
    ],
)
def test_a_sentence_as_a_trend(published: Published, rates: dict[str, list[float]], verdict: str) -> None:
    found = only(compare(table(rates), published, axes=["size"])).statement
    assert found.verdict == verdict, found.words


def test_the_scatter_of_all_points_decides_as_in_the_table_of_settings() -> None:
    calm = {"1KB": [585.0, 637.0, 857.0], "64KB": [1128.0, 1255.0, 1798.0]}
    step = claim("factor", start="1KB", end="64KB", factor=2)
    assert only(compare(table(calm), step)).statement.verdict == "agrees"
    wild = table({**calm, "1MB": [578.0, 1198.0, 1982.0]})
    assert only(compare(wild, step)).statement.verdict == "within noise"
    assert only(compare(wild, claim("plateau", value="64KB"))).statement.verdict == "within noise"
    assert only(compare(wild, series({"1KB": 10.0, "64KB": 7.0, "1MB": 7.0}))).statement.verdict == "within noise"


@pytest.mark.parametrize("better", ["higher", "lower"])
@pytest.mark.parametrize(
    "trend",
    [
        Trend("improves"),
        Trend("worsens"),
        Trend("flat"),
        Trend("optimum", value="1"),
        Trend("optimum", value="4"),
        Trend("plateau", value="4"),
        Trend("factor", factor=2.0),
        Trend("factor", factor=1.0),
        Trend("scales"),
        Trend("falls_short"),
    ],
)
def test_no_sentence_can_be_told_by_single_runs(trend: Trend, better: Literal["higher", "lower"]) -> None:
    published = Published(claims=(Claim("said", "somewhere", "size", trend, RATE, better),))
    found = only(compare(table(ONCE), published)).statement
    assert found.verdict == "cannot be told"
    assert "repeats=3 measures the noise" in found.words
    half = table({**ONCE, "2": around(2.0)})
    assert only(compare(half, published)).statement.verdict == "cannot be told"


def test_a_single_run_among_repeated_ones_hides_no_verdict_of_the_others() -> None:
    points = table({"1": around(1.0), "2": around(4.0), "4": 3.0})
    assert only(compare(points, claim("factor", start="1", end="2", factor=4))).statement.verdict == "agrees"
    assert only(compare(points, claim("optimum", value="1"))).statement.verdict == "contradicts"
    assert only(compare(points, claim("optimum", value="4"))).statement.verdict == "cannot be told"


def test_a_count_is_told_by_one_run() -> None:
    name = "reads.bytes_per_sample"
    points = table({"64KB": 329_290.0, "1MB": 329_249.0, "4 samples": 900_000.0}).rename(
        columns=lambda column: column.replace(RATE, name)
    )

    def said(end: str) -> Statement:
        trend = Trend("flat", start="64KB", end=end)
        return only(compare(points, Published(claims=(Claim("", "", "size", trend, name, "lower"),)))).statement

    assert said("1MB").verdict == "agrees"
    assert said("1MB").words.endswith("(bytes read per sample)")
    assert said("4 samples").verdict == "contradicts"


def test_what_was_not_measured_says_how_it_can_be() -> None:
    found = only(compare(table(UP), claim("optimum", value="16"))).statement
    assert found.words == (
        "No point at 16 was measured. Add all values that the statement needs to the axis size, or choose a "
        "scale that contains them. "
        "(throughput)"
    )
    absent = Published(claims=(Claim("", "", "size", Trend("improves"), RATE, "higher", {"layout": "c"}),))
    found = only(compare(table(UP, layout="a"), absent, axes=["layout", "size"])).statement
    assert found.words == (
        "No point at layout=c was measured. Add it to the values of the axis, or choose a scale that contains "
        "it. (throughput)"
    )
    failed = table(UP)
    failed.loc[1, RATE] = float("nan")
    found = only(compare(failed, claim("optimum", value="2"))).statement
    assert found.words == "No point at 2 was measured. The runs of this point failed. (throughput)"
    few = only(compare(table({"4KB": around(1.0)}), series(TIMES))).statement
    assert few.words.startswith("This study measured only 1 of the published points (4KB, 16KB and 64KB).")


def test_words_carry_the_figures() -> None:
    found = only(compare(table(UP), claim("factor", start="1", end="4", factor=6.7))).statement
    assert found.words == (
        "From 1 to 4 the figure gets 3.9x better in the measurement, 6.7x better in the publication: the same "
        "direction. (throughput)"
    )
    tied = only(compare(table({**UP, "8": around(3.95)}), claim("optimum", value="4"))).statement
    assert tied.words == "4 is among the best, tied with 8. (throughput)"
    scaled = only(compare(table({"1": around(1.0), "2": around(1.6, 0.05)}), claim("scales"))).statement
    assert scaled.words == (
        "2 ranks are 1.6x as fast as 1, an efficiency of 80 %; an efficiency of 80 % or more is called close to ideal. "
        "By the repeats, an efficiency of 75 % to 85 % is possible. (throughput)"
    )


def test_other_axes_give_one_verdict_for_each_of_their_values() -> None:
    points = pd.concat([table(UP, layout="a"), table(DOWN, layout="b")])
    found = compare(points, claim("improves"), axes=["layout", "size"])
    assert [(one.statement.verdict, one.statement.words[:8]) for one in found] == [
        ("agrees", "layout=a"),
        ("contradicts", "layout=b"),
    ]
    at = Published(claims=(Claim("", "", "size", Trend("improves"), RATE, "higher", {"layout": "b"}),))
    assert only(compare(points, at, axes=["layout", "size"])).statement.verdict == "contradicts"


# --- the file, the circumstances -----------------------------------------------------------------

FILE = "axes: [{key: size, values: [1, 2]}]\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "statements: [{text: a, source: b, axis: size, trend: grows}]",
            "statements.0.trend (x:2): grows: no such trend",
        ),
        ("statements: [{text: a, axis: size, trend: flat}]", "source is missing"),
        ("statements: [{text: a, source: b, axis: sizes, trend: flat}]", "no axis sizes"),
        ("statements: [{text: a, source: b, axis: size, trend: optimum}]", "optimum needs value"),
        (
            "statements: [{text: a, source: b, axis: size, trend: flat, form: 1}]",
            "statements.0.form (x:2): unknown key",
        ),
        ("larger_than_memory: yes", "expected true or false"),
        ("published: {title: a}", "expected a list"),
        (
            "published: [{title: a, axis: size, what: t, unit: s, better: lower, system: s, source: s, "
            "points: {1: x}}]",
            "published.0.points.1 (x:2): x: expected a number above 0",
        ),
    ],
)
def test_a_malformed_publication_names_the_line(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_published(parse_document(FILE + text, "x"))
    assert problem in str(caught.value)


def test_data_that_fit_into_memory_are_said_to() -> None:
    large = Published(larger_than_memory=True)
    assert precautions(Published(), 1e9, 1e10) == ()
    assert "The data set (18.6 GiB) is larger than memory (9.31 GiB)" in precautions(large, 2e10, 1e10)[0]
    expected = "The data of this study (954 MiB) fit into memory of 9.31 GiB, so each epoch begins with"
    assert expected in precautions(large, 1e9, 1e10)[0]


def test_the_place_of_a_run() -> None:
    environment = {"mounts": {"data": {"file_system": "ext4"}}, "cpu": {"cores_usable": 2}, "memory": None}
    assert place(environment, "cold: verified") == "ext4, 2 cores, page cache cold: verified"
    assert place({}) == ""
