"""What a user reads at the end of a run: the verdict names the real bottleneck, tables fit, nothing claims too much."""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
import pytest
from run_summaries import COLD, CONFIG, MS, WARM, printed, run, summary_of

from dlio_torch.analysis.step_metrics import summarise
from dlio_torch.config.schema import ComputeConfig, Config, ExpectConfig
from dlio_torch.report.expect import compare, figure_text, lookup
from dlio_torch.report.run_tables import print_report
from dlio_torch.report.run_verdict import cache_state, level, verdict
from dlio_torch.report.scale_text import scale_line
from dlio_torch.train.steps import WARMUP
from dlio_torch.units import percent

SURE = "(± 0.0 points at 95 % confidence, 20 steps)"


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (
            {"fetch": 0.05},
            f"Nothing limits this run: storage and loader keep the emulated accelerator 99.5 % busy {SURE}; a step "
            "waits 50 µs for data.",
        ),
        (
            {"fetch": 6},
            "Waiting for data limits this run: storage and loader keep the emulated accelerator 62.5 % busy "
            f"{SURE}, and a step of 16 ms waits 6 ms for data, 37.5 % of the time.",
        ),
        (
            {"fetch": 1, "allreduce": 9},
            "The allreduce of the gradients limits this run: it takes 45.0 % of the time, and the emulated accelerator "
            f"is 50.0 % busy {SURE}; waiting for data takes 5.0 %.",
        ),
        ({"fetch": 1, "checkpoint": 9}, "Saving checkpoints limits this run: it takes 45.0 % of the time"),
        ({"other": 10}, "The work of dlio_torch itself between the measured parts limits this run: it takes 46.2 %"),
        ({"late": 10}, "Emulated compute that ran longer than requested limits this run: it takes 50.0 % of the time"),
        ({"late": 10}, "; waiting for data takes 0.0 %."),
        ({"fetch": 1}, "Waiting for data is the largest loss of this run: storage and loader keep"),
        ({"checkpoint": 1}, "Saving checkpoints is the largest loss of this run: it takes 9.1 % of the time"),
        ({"fetch": 1, "restart": 200}, "Restarting the loaders between epochs limits this run: it takes 47.6 %"),
    ],
)
def test_the_verdict_names_the_largest_loss(times: dict[str, float], expected: str) -> None:
    sentence = verdict(summary_of(COLD, **times))
    assert expected in sentence
    assert sentence.count(". ") == 0  # one sentence
    assert sentence.endswith(".")


def test_the_verdict_says_where_the_bytes_came_from() -> None:
    assert "page cache and loader keep the emulated accelerator 62.5 %" in verdict(summary_of(WARM, fetch=6))
    half = {"io": [{"rchar": 1000, "read_bytes": 500, "from_device": 500}]}
    assert "storage, page cache and loader keep" in verdict(summary_of(half, fetch=6))


def test_the_verdict_says_how_sure_it_is() -> None:
    steps = run(fetch=6)
    few = summarise([steps[:19]], config=CONFIG, extra=COLD)
    assert few["au"]["ci95"] is None
    assert "62.5 % busy (too few steps to be sure: 19)" in verdict(few)
    # Every other pair of steps waits twice as long.  Batch means of 10 and 4 ms of 16 and 22 ms: t = 2.262 for nine
    # degrees of freedom.
    uneven = steps.copy()
    uneven["fetch_ns"] += np.tile([0, 0, 6 * MS, 6 * MS], 5)
    uneven["start_ns"] += np.concatenate([[0], np.cumsum(np.tile([0, 0, 6 * MS, 6 * MS], 5))[:-1]])
    summary = summarise([uneven], config=CONFIG, extra=COLD)
    low, high = summary["au"]["ci95"]
    half = 2.262 * np.std([10 / 16, 10 / 22] * 5, ddof=1) / np.sqrt(10)
    assert (low + high) / 2 == pytest.approx(summary["au"]["mean"])
    assert high - low == pytest.approx(2 * half, rel=1e-6)
    assert f"(± {100 * half:.1f} points at 95 % confidence, 20 steps)" in verdict(summary)


def test_the_verdict_ends_with_what_to_change() -> None:
    advice: dict[str, Any] = {"items": [
        {"key": None, "value": None, "also": [], "predicted": None},
        {"key": "loader.num_workers", "value": "4", "also": [["loader.prefetch_factor", "8"]], "predicted": None},
    ]}  # fmt: skip
    summary = {**summary_of(COLD, fetch=6), "advice": advice}
    assert verdict(summary).endswith(" 37.5 % of the time; try loader.num_workers=4 loader.prefetch_factor=8.")
    for low, saved in ((None, "at most 37.5 %"), (0.2, "20.0 % to 37.5 %"), (0.375, "37.5 %")):
        advice["items"][1]["predicted"] = {"gain_low": low, "gain_high": 0.375}
        assert verdict(summary).endswith(f" loader.prefetch_factor=8, which saves {saved} of the time.")
    fine = {**summary_of(COLD, fetch=0.05), "advice": advice}
    assert "try" not in verdict(fine)


def test_no_compute_means_no_utilisation() -> None:
    config = Config(compute=ComputeConfig(mode="none"))
    sentence = verdict(summary_of(COLD, config, compute=0, fetch=6))
    assert sentence == (
        "No compute was emulated, so there is no accelerator utilisation: storage and loader deliver "
        "666.7 samples/s (167 MiB/s), and a step of 6 ms spends most of its time (100.0 %) on waiting for data."
    )


def test_utilisation_is_never_given_without_saying_that_compute_was_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(summary_of(WARM, fetch=6), monkeypatch)
    [line] = [line for line in text.splitlines() if line.startswith("accelerator utilisation")]
    assert line.split("  ")[-1] == "62.5 % of an emulated accelerator (compute.mode=sleep)"
    none = summary_of(COLD, Config(compute=ComputeConfig(mode="none")), compute=0, fetch=6)
    assert "accelerator utilisation  not measured: no compute was emulated" in printed(none, monkeypatch)


@pytest.mark.parametrize(
    ("fsync", "end"),
    [(True, "flushed to the device"), (False, "not flushed: perhaps still in memory (no fsync)")],
)
def test_the_checkpoints_have_a_size_a_rate_and_the_place_that_they_reached(
    fsync: bool, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = {"saved": {"checkpoints": 40, "bytes": 40 << 20, "fsync": fsync}}
    text = printed({**summary_of(COLD, checkpoint=10), **saved}, monkeypatch, columns=150)
    [line] = [line for line in text.splitlines() if line.startswith("checkpoints")]
    assert line.split("  ")[-1] == f"20, 10 ms each: 1 MiB at 100 MiB/s, {end}"


def test_cache_state() -> None:
    assert cache_state(summary_of(COLD)) == "cold: the device delivered 100.0 % of the 1000 B that were read"
    ahead = {"io": [{"rchar": 1000, "read_bytes": 1312, "from_device": 1000}]}
    assert cache_state(summary_of(ahead)) == (
        "cold: the device delivered 100.0 % of the 1000 B that were read (and 312 B more that no read call requested: "
        "read-ahead of the kernel, or pages of programs)"
    )
    assert cache_state(summary_of(WARM)) == (
        "cached: the device delivered 1.0 % of the 1000 B that were read; "
        "98.0 % of the data were in the page cache before the run"
    )
    assert cache_state(summary_of()) == "not measured"


def test_percent_does_not_round_up_to_all() -> None:
    assert [percent(x) for x in (0.973, 0.9999, 1.0, 0.0)] == ["97.3 %", ">99.9 %", "100.0 %", "0.0 %"]


def test_the_verdict_comes_first_then_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(
        summary_of(WARM, fetch=6, allreduce=3, checkpoint=1, other=0.5), monkeypatch, run_dir="runs/cosmic_tagger/x"
    )
    lines = text.splitlines()
    assert lines[:2] == ["", "cosmic_tagger, scale laptop, 1 rank"]
    assert lines[2].startswith("Waiting for data limits this run: ")
    rows = [line for line in lines if "  " in line.strip()]
    assert [row.split("  ")[0] for row in rows if not row.startswith(" ")] == [
        "accelerator utilisation", "throughput", "measured", "time of a step", "page cache", "checkpoints",
    ]  # fmt: skip
    assert any("20 steps of each rank, 80 samples in 410 ms (0 warm-up steps left out)" in line for line in lines)
    assert any("195.4 samples/s, 48.8 MiB/s of tensors (20 MiB delivered)" in line for line in lines)
    assert any(line.split("  ")[-1] == "20, 1 ms each" for line in lines if line.startswith("checkpoints"))
    joined = " ".join(text.split())
    assert (
        "20.5 ms: emulated compute 48.8 %, waiting for data 29.3 %, allreduce 14.7 %, checkpoints 4.9 %, dlio_torch "
        "itself 2.2 %" in joined
    )
    assert lines[-1] == "Results: runs/cosmic_tagger/x"


def test_all_tables_are_there_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    summary = summary_of(WARM, fetch=6, allreduce=3, checkpoint=1, other=0.5)
    lines = printed(summary, monkeypatch, verbose=True).splitlines()
    cells = {line.split("  ")[1]: line.split() for line in lines if line.endswith("%") and line.startswith("  ")}
    assert cells["waiting for data"][-2:] == ["29.3", "%"]
    assert cells["emulated compute"][-2:] == ["48.8", "%"]
    assert cells["allreduce"][-2:] == ["14.7", "%"]
    assert cells["checkpoints"][-2:] == ["4.9", "%"]
    assert cells["dlio_torch itself"][-2:] == ["2.2", "%"]


def test_parts_that_were_not_done_are_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(summary_of(COLD, Config(), fetch=1), monkeypatch, verbose=True)
    assert "allreduce" not in text
    assert "checkpoint" not in text
    assert "between epochs" not in text
    assert "between epochs" in printed(summary_of(COLD, Config(), fetch=1, restart=5), monkeypatch)


def test_nothing_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(summary_of(COLD, phase=WARMUP), monkeypatch)
    assert "measured                 nothing: all 20 training steps were warm-up" in text
    assert "Nothing was measured: all 20 training steps" in text
    assert "nan" not in text.lower()


def test_ranks_have_a_row_each_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(summary_of(ranks=2, fetch=6), monkeypatch, 120, verbose=True)
    assert "62.5 % of an emulated accelerator (compute.mode=sleep), rank with the lowest 62.5 %" in text
    rows = [line.split() for line in text.splitlines() if line.strip().startswith(("0  ", "1  "))]
    assert [row[:3] for row in rows] == [["0", "20", "250"], ["1", "20", "250"]]
    assert "and 4 more ranks in summary.json" in printed(summary_of(ranks=20), monkeypatch, verbose=True)


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_no_line_is_wider_than_asked(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expect = [ExpectConfig("train.samples_per_s", 100, 0.1, "a source with a long title, section 3, table 4, line 5")]
    summary = summary_of(WARM, ranks=3, fetch=6, allreduce=3, checkpoint=1, other=0.5)
    run_dir = "/a/" + "long/" * 60
    lines = printed(summary, monkeypatch, columns, expect=compare(expect, summary), run_dir=run_dir).splitlines()
    assert max(len(line) for line in lines[:-1]) <= columns
    assert not any(re.match(r"\s*(%|ms|s|samples/s)( |,|:|$)", line) for line in lines)  # units stay with their numbers
    assert lines[-1] == f"Results: {run_dir}"  # a path can be copied in one piece
    assert not any(line.endswith(" ") for line in lines)


def test_plain_text_unless_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" not in printed(summary_of(WARM, fetch=6), monkeypatch)

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    print_report(summary_of(WARM, fetch=6), stream=terminal)
    assert "\x1b[1;33mWaiting for data limits" in terminal.getvalue()  # yellow: the accelerator is busy half the time
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    print_report(summary_of(WARM, fetch=6), stream=terminal)
    assert "\x1b[1mWaiting for data limits" in terminal.getvalue()
    assert "\x1b[1;33m" not in terminal.getvalue()


def test_a_stream_that_knows_ascii_only() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    print_report(summary_of(WARM, fetch=0.05), stream=stream)
    assert "a step waits 50 us for data." in raw.getvalue().decode("ascii").replace("\n", " ")


def test_a_recipe_name_is_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    summary = summary_of(COLD, Config(recipe="[red]mine[/red] :boom:"))
    assert "[red]mine[/red] :boom:, scale" in printed(summary, monkeypatch)


def test_published_beside_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    summary = {
        "train": {"a": 90.0, "none": None, "text": "x", "nan": float("nan"), "yes": True},
        "ranks": [{"au": 0.5}],
    }
    rows = compare(
        [
            ExpectConfig("train.a", 100, 0.1, "paper"),
            ExpectConfig("train.a", 100, 0.09, "paper"),
            ExpectConfig("train.a", -90, 0.5),
            ExpectConfig("ranks.0.au", 0, 0.6),
            *(ExpectConfig(f"train.{name}", 1.0) for name in ("none", "text", "nan", "yes", "missing", "a.b")),
            ExpectConfig("ranks.1.au", 1.0),
        ],
        summary,
    )
    assert [(row.measured, row.ratio, row.alike) for row in rows] == [
        (90.0, -1.0, "no"),  # worst first
        (90.0, 0.9, "no"),
        (90.0, 0.9, "yes"),
        (0.5, None, "yes"),
        *[(None, None, "not measured")] * 7,
    ]
    assert lookup(summary, "train") is None
    text = printed(summary_of(COLD), monkeypatch, expect=rows[2:3] + rows[4:5], verbose=True)
    found = [line.split() for line in text.splitlines() if line.startswith("  train.")]
    assert found == [
        ["train.a", "100", "90", "0.9", "10.0", "%", "yes", "paper"],
        ["train.none", "1", "-", "-", "10.0", "%", "not", "measured"],
    ]
    one_line = " ".join(printed(summary_of(COLD), monkeypatch, expect=rows).split())
    assert (
        "published figures 2 of 4 measured figures as published; different: train.a 90 (published -90), train.a 90 "
        "(published 100); 7 not measured (-v lists all)" in one_line
    )


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("reads.bytes_per_sample", 516900.0, "505 KiB"),
        ("posix.read.median_bytes", 2529.0, "2.47 KiB"),
        ("posix.read.sequential", 0.9571, "95.7 %"),
        ("shares.fetch", 0.2, "20.0 %"),
        ("step.fetch_s.mean", 0.012, "12 ms"),
        ("reads.calls_per_sample", 123.7, "123.7"),
        ("train.samples_per_s", 51690.2, "51,690"),
        ("own.figure", 5.169e-5, "0.00005169"),
        ("au.mean", None, "-"),
    ],
)
def test_figures_have_units_that_people_read(metric: str, value: float | None, text: str) -> None:
    assert figure_text(metric, value) == text


def test_the_scale_is_one_line() -> None:
    notes = [f"train.steps 150 -> {number} (scale=tiny)" for number in (10,)]
    assert scale_line("tiny", notes) == "scale: tiny: train.steps 150 -> 10"
    notes += [f"loader.x{number} 2 -> 1 (scale=tiny)" for number in range(5)]
    notes += ["dataset.num_files 9 -> 2 (scale=tiny)"]
    assert scale_line("tiny", notes) == (
        "scale: tiny changes 7 options (dataset.num_files 9 -> 2, train.steps 150 -> 10, loader.x0 2 -> 1 ...); the "
        "verb show lists all"
    )


def test_the_verdict_has_the_colour_of_the_utilisation(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [level(summary_of(COLD, fetch=fetch)) for fetch in (0.05, 6, 60)] == ["good", "fair", "poor"]
    none = summary_of(COLD, Config(compute=ComputeConfig(mode="none")), compute=0, fetch=6)
    assert level(none) == ""
