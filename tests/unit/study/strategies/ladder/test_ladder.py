"""headspace: which rungs a configuration has, what their figures say, and a ladder whose answer is known."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from study_runs import run_here, summary

from dlio_torch.commands.command_line import Command
from dlio_torch.commands.headspace import main
from dlio_torch.config.schema import CheckpointConfig, ComputeConfig, Config, LoaderConfig, TraceConfig
from dlio_torch.dist.launcher import Launch
from dlio_torch.errors import ConfigError
from dlio_torch.study import trial
from dlio_torch.study.strategies.ladder.bottleneck import inconclusive, is_bottleneck
from dlio_torch.study.strategies.ladder.effects import Effect, effects
from dlio_torch.study.strategies.ladder.gains import gain
from dlio_torch.study.strategies.ladder.ladder import plan_ladder
from dlio_torch.study.strategies.ladder.ladder_console import print_ladder
from dlio_torch.study.strategies.ladder.ladder_sentences import sentences
from dlio_torch.study.strategies.ladder.rungs import LADDER, order, rungs
from dlio_torch.study.study_arguments import parse

SLEEP = ComputeConfig(step_s=0.01)


def ladder(
    steps: Mapping[str, Sequence[float]], config: Config | None = None, **changes: Mapping[str, Any]
) -> list[Effect]:
    """The rungs with these times of a step, one for each round."""
    silent = {"reads", "decode", "hand_over", "trainer"}
    runs = {
        name: {
            number: summary(step, **{"rchar": 0 if name in silent else 10_000_000, **changes.get(name, {})})
            for number, step in enumerate(times, 1)
        }
        for name, times in steps.items()
    }
    return effects(rungs(config or Config(compute=SLEEP), True), runs, {})


def by_name(found: Sequence[Effect]) -> dict[str, Effect]:
    return {one.rung.name: one for one in found}


DRIFT = (1.0, 1.3, 0.9, 1.1)  # of the machine, from round to round


def drifting(step: float, wobble: float = 0.01) -> list[float]:
    return [step * drift * (1 + wobble * (-1) ** number) for number, drift in enumerate(DRIFT)]


def test_gain_is_that_of_the_rounds_and_drift_of_the_machine_cancels() -> None:
    found = gain(dict(enumerate(drifting(0.04))), dict(enumerate(drifting(0.02, 0.0))))
    assert found is not None
    assert found.ratio == pytest.approx(2, rel=1e-3)
    assert found.beyond_noise
    assert found.low is not None
    assert found.low < 2 < (found.high or 0) < 2.1
    assert found.seconds == pytest.approx(found.before_s / 2, rel=1e-3)
    # By hand: ratios e and e^3, so m = 2, s = sqrt 2 and t(1) s / sqrt 2 = 12.7062.
    two = gain({1: math.e, 2: math.e**3}, {1: 1.0, 2: 1.0, 3: 1.0})
    assert two is not None
    assert two.ratio == pytest.approx(math.e**2)
    assert two.high == pytest.approx(math.exp(2 + 12.7062), rel=1e-4)
    assert not two.beyond_noise


def test_whoever_looks_twice_is_no_more_often_wrong() -> None:
    """Of rungs that are equal, in studies of three rounds and three more where those cannot tell."""
    random, studies = Random(1), 2000
    wrong = {1: 0, 2: 0}
    for _ in range(studies):
        before, after = ({number: random.lognormvariate(0, 0.2) for number in range(1, 7)} for _ in range(2))
        first = {number: before[number] for number in (1, 2, 3)}
        for looks in wrong:
            found = [gain(rounds, after, looks) for rounds in (first, before)]
            wrong[looks] += any(one is not None and one.beyond_noise for one in found)
    assert wrong[2] <= 0.05 * studies  # of two million studies 4.6 %
    assert wrong[1] > 0.07 * studies  # as if each look were the only one: 8.9 %


def test_an_interval_of_the_first_of_two_looks_is_wider() -> None:
    before, after = {1: 1.0, 2: 1.1, 3: 1.05}, {1: 0.5, 2: 0.52, 3: 0.55}
    once, twice = gain(before, after), gain(before, after, looks=2)
    assert once is not None
    assert twice is not None
    assert once.ratio == twice.ratio
    # Student's quantiles for two degrees of freedom: 4.303 at 97.5 %, 6.205 at 98.75 %.
    assert math.log((twice.high or 0) / twice.ratio) == pytest.approx(
        6.205 / 4.303 * math.log((once.high or 0) / once.ratio), rel=1e-3
    )


def test_one_round_is_never_beyond_noise_and_rounds_must_have_both() -> None:
    single = gain({1: 2.0, 2: 1.0}, {1: 1.0})
    assert single is not None
    assert (single.ratio, single.low, single.beyond_noise, single.interval_s) == (2.0, None, False, None)
    assert gain({1: 2.0}, {2: 1.0}) is None


def test_largest_cost_is_named_with_what_the_whole_loader_costs() -> None:
    times = {"configured": 0.060, "device": 0.058, "reads": 0.056, "decode": 0.016, "hand_over": 0.0102, "loader": 0.05}
    found = ladder({name: drifting(step) for name, step in times.items()})
    rows = by_name(found)
    assert rows["decode"].cost is not None
    assert rows["decode"].cost.ratio == pytest.approx(0.056 / 0.016)
    assert rows["decode"].gain is not None
    assert rows["decode"].gain.ratio == pytest.approx(0.060 / 0.016)
    assert rows["trainer"].step is None
    assert is_bottleneck(found) is True
    said = sentences(found)
    assert said[0].startswith("The loader is the bottleneck")
    assert "5.88 times as high" in said[0]
    assert "decoding and preprocessing gives most" in said[1]
    assert "delivers 75.11 samples/s" in said[2]  # 4 / (0.05 s x geometric mean of the drift)
    assert "loader is the slower one" in said[2]


def test_what_is_printed_adds_up_and_divides() -> None:
    times = {"configured": 0.060, "device": 0.058, "reads": 0.056, "decode": 0.016, "hand_over": 0.0102}
    found = ladder({name: drifting(step, 0.02 * place) for place, (name, step) in enumerate(times.items())})
    rows = by_name(found)
    first, last = rows["configured"], rows["hand_over"]
    owns = [one.cost.seconds for one in found if one.cost is not None]
    assert first.step_s is not None
    assert last.step_s is not None
    assert last.gain is not None
    assert sum(owns) == pytest.approx(first.step_s - last.step_s) == pytest.approx(last.gain.seconds)
    assert last.gain.ratio == pytest.approx(first.step_s / last.step_s)
    assert rows["decode"].rate == pytest.approx(4 / (rows["decode"].step_s or 0))


def test_gains_that_add_to_more_than_the_whole_are_explained() -> None:
    times = {"configured": 0.060, "device": 0.040, "reads": 0.055, "decode": 0.020, "hand_over": 0.0102}
    said = sentences(ladder({name: drifting(step) for name, step in times.items()}))[1]
    # Geometric mean of the drift: 1.0651.
    assert "preprocessing gives most: 37.3 ms of each step, storage device: 21.3 ms, collation and transfer" in said
    assert "That is more than the 53.0 ms of the whole loader, because a step takes 16.0 ms longer without read" in said


def test_a_cost_that_could_not_be_removed_is_named_with_the_next() -> None:
    times = {"configured": 0.060, "device": 0.058, "reads": 0.05, "decode": 0.016, "hand_over": 0.0102}
    runs = {name: drifting(step) for name, step in times.items()}
    said = sentences(ladder(runs, reads={"rchar": 4_000_000}, device={"reached": False}))[1]
    assert said.endswith(" (costs included in the next rung: storage device and read calls).")
    traced = replace(Config(compute=SLEEP), trace=TraceConfig(posix=True))
    assert sentences(ladder(runs, traced))[1].endswith(" (costs included in the next rung: read calls).")
    memory = Config(compute=SLEEP, loader=LoaderConfig(in_memory=True))
    assert "costs included in the next rung" not in sentences(ladder(runs, memory))[1]


def test_what_may_be_large_and_may_be_nothing_is_said_with_what_it_is_at_the_most() -> None:
    found = ladder({
        "configured": [0.060, 0.061, 0.060], "device": [0.055, 0.070, 0.058], "reads": [0.0600, 0.0601, 0.0600],
        "decode": [0.0161, 0.0160, 0.0160], "hand_over": [0.0160, 0.0159, 0.0160],
    })  # fmt: skip
    assert is_bottleneck(found) is True
    device = by_name(found)["device"].cost
    assert device is not None
    assert device.interval_s is not None
    said = sentences(found)
    assert said[2].startswith(
        f"Costs that are within noise when removed alone: storage device (at most {1e3 * device.interval_s[1]:.1f} ms)"
    )
    assert "collation" not in said[2]  # too little to matter
    assert inconclusive(found) == "what storage device and read calls cost"


def test_the_slower_side_is_named_only_beyond_noise() -> None:
    times = {name: [0.02, 0.02] for name in LADDER}
    near = {**times, "hand_over": [0.020, 0.021], "loader": [0.021, 0.0205]}
    assert "the difference of the two is within noise" in sentences(ladder(near))[-1]
    far = {**times, "hand_over": [0.0200, 0.0201], "loader": [0.0100, 0.01005]}
    assert "the trainer is the slower one, by a factor of 2." in sentences(ladder(far))[-1]


def test_a_loader_that_hides_behind_compute_is_not_the_bottleneck() -> None:
    times = {name: [0.0100, 0.0101, 0.0100, 0.0101] for name in LADDER}
    found = ladder({**times, "hand_over": [0.0099, 0.0100, 0.0099, 0.0100]})
    assert is_bottleneck(found) is False
    said = sentences(found)[0]
    assert said.startswith("The loader is not the bottleneck: removing all of its cost gains at most 1")
    assert "the emulated compute" in said


def test_a_step_that_hardly_waits_is_evidence_where_the_gain_is_noise() -> None:
    found = ladder({"configured": [0.01005, 0.0101], "hand_over": [0.0100, 0.0160]})
    assert is_bottleneck(found) is False
    assert "waits for data for 0.7 % of its time" in sentences(found)[0]


def test_a_loader_that_only_takes_cores_from_the_trainer_is_not_acquitted() -> None:
    for rounds in (1, 2):
        found = ladder(
            {"configured": [0.020, 0.020][:rounds], "hand_over": [0.0160, 0.0110][:rounds]},
            configured={"compute_s": 0.0199},
        )
        wait = by_name(found)["configured"].wait
        assert wait is not None
        assert wait.high == pytest.approx(1e-4)
        assert is_bottleneck(found) is None


def test_more_rounds_are_asked_for_only_where_they_could_tell() -> None:
    clear = {"configured": 0.060, "device": 0.058, "reads": 0.056, "decode": 0.016, "hand_over": 0.0102}
    assert inconclusive(ladder({name: drifting(step, 1e-4) for name, step in clear.items()})) == ""
    idle = ladder({name: [0.0100, 0.0101, 0.0100] for name in LADDER})
    assert (is_bottleneck(idle), inconclusive(idle)) == (False, "")
    wild = {"configured": [0.02, 0.05, 0.011], "hand_over": [0.03, 0.011, 0.012]}
    assert inconclusive(ladder(wild)) == "whether the loader is the bottleneck"
    assert inconclusive(ladder({"configured": [0.02, 0.05]})) == ""


@pytest.mark.parametrize("number", range(1, 9))
@pytest.mark.parametrize("names", [(*LADDER, "trainer", "loader"), ("configured", "decode", "hand_over"), LADDER[::4]])
def test_runs_that_are_compared_are_neighbours(names: tuple[str, ...], number: int) -> None:
    found = order(names, number)
    assert sorted(found) == sorted(names)
    ring = [name for name in LADDER if name in names]
    at = {name: place for place, name in enumerate(found)}
    apart = [
        (one, other) for one, other in zip(ring, [*ring[1:], ring[0]], strict=True) if abs(at[one] - at[other]) > 1
    ]
    assert len(apart) == (len(ring) > 2)
    assert ("hand_over", "configured") not in apart
    if "loader" in names:
        assert abs(at["loader"] - at["trainer"]) == 1
    if number == 1:
        assert found[0] == "configured"  # what does not run is found at once
    before = order(names, number + 1)
    assert (at["configured"] < at["hand_over"]) != (before.index("configured") < before.index("hand_over"))


@pytest.mark.parametrize("rounds", [1, 4])
def test_nothing_is_claimed_that_noise_could_have_made(rounds: int) -> None:
    wild = {"configured": [0.02, 0.05, 0.011, 0.03], "hand_over": [0.03, 0.011, 0.012, 0.02]}
    found = ladder({name: times[:rounds] for name, times in wild.items()})
    assert is_bottleneck(found) is None
    assert "Noise hides whether the loader is the bottleneck" in sentences(found)[0]


def test_a_device_that_delivered_nothing_cost_nothing_whatever_the_times_say() -> None:
    times = {"configured": 0.043, "device": 0.0336, "reads": 0.0334, "decode": 0.016, "hand_over": 0.0102}
    runs = {name: drifting(step) for name, step in times.items()}
    for share in (0.0, 0.0004):
        found = ladder(runs, configured={"device_share": share}, device={"device_share": 0.0})
        device = by_name(found)["device"]
        assert device.why == (
            f"nothing to remove: the device delivered {share:.1%} of the bytes that were read as configured"
        ).replace("%", " %")
        assert (device.step, device.gain, device.cost) == (None, None, None)
        assert "storage device" not in " ".join(sentences(found))
        assert "storage device" not in inconclusive(found)
        # The next rung is compared with the run as configured, so that costs still add up.
        owns = [one.cost.seconds for one in found if one.cost is not None]
        assert sum(owns) == pytest.approx(by_name(found)["hand_over"].gain.seconds)  # type: ignore[union-attr]
    # A little from a slow device may take long, and what was not counted may be much.
    for unsure in (0.005, None):
        found = ladder(runs, configured={"device_share": unsure}, device={"device_share": 0.0})
        assert by_name(found)["device"].cost is not None
        assert "storage device: 10.0 ms" in sentences(found)[1]
    # More rounds are without such a rung.
    longer = ladder({**runs, "device": runs["device"][:2]}, configured={"device_share": 0.0})
    assert by_name(longer)["device"].why.startswith("nothing to remove")
    stream = io.StringIO()
    print_ladder(longer, sentences(longer), stream=stream, title="headspace of x", directory="there")
    assert "without storage device: nothing to remove: the device delivered 0.0 %" in stream.getvalue()


def test_what_was_not_removed_is_not_measured() -> None:
    flat = {name: [0.02, 0.02] for name in (*LADDER, "loader")}
    cold = by_name(ladder(flat, device={"reached": False}))["device"]
    assert (cold.step, cold.gain) == (None, None)
    assert "memory is full" in cold.why
    kept = by_name(ladder(flat, reads={"rchar": 4_000_000}))["reads"]
    assert kept.why == "not separable: 40 % of the bytes came by calls that memory cannot answer"
    mapped = by_name(ladder(flat, configured={"rchar": 1000}, reads={"rchar": 1000}))["reads"]
    assert "maps its files" in mapped.why
    answered = by_name(ladder(flat, reads={"rchar": 100_000}))["reads"]
    assert answered.why == ""
    # The next rung is compared with the last one that was measured.
    after = by_name(ladder({**flat, "reads": [0.05, 0.05]}, reads={"rchar": 4_000_000}))["decode"]
    assert after.cost is not None
    assert after.cost.ratio == pytest.approx(1)
    missing = ladder({"configured": [0.02]})
    assert "was not measured" in sentences(missing)[0]


@pytest.mark.parametrize("width", [80, 100])
def test_the_table_fits_a_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    times = {"configured": 0.060, "device": 0.061, "reads": 0.049, "decode": 0.016, "hand_over": 0.0102, "loader": 0.05}
    runs = {name: drifting(step, 0.2 if name == "device" else 0.01) for name, step in times.items()}
    found = ladder(runs, reads={"rchar": 4_000_000})
    stream = io.StringIO()
    print_ladder(found, sentences(found), stream=stream, title="headspace of x", directory="there")
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert lines[1] == "headspace of x, 4 rounds"
    rows = {line[1:28].strip(): line[28:].split("  ") for line in lines[3:14]}
    assert [text.strip() for text in rows["without"] if text][-2:] == ["at most", "itself"]
    assert ("samples/s" in lines[3]) == (width >= 100)
    assert set("".join(rows["read calls"])) <= set(" -")
    assert "without read calls: not measured: not separable: 40 % of the bytes" in stream.getvalue()
    assert [text.strip() for text in rows["collation and transfer"] if text][-2:] == ["x5.88", "6.18 ms"]
    assert [text.strip() for text in rows["storage device"] if text][-1].startswith("~")


def test_rungs_that_make_no_sense_are_left_out_with_the_reason() -> None:
    config = Config(compute=SLEEP, loader=LoaderConfig(in_memory=True))
    skipped = {one.name: one.skipped for one in rungs(config, True)}
    assert {name for name, why in skipped.items() if why} == {"device", "reads", "decode", "trainer"}
    skipped = {one.name: one.skipped for one in rungs(Config(), False)}
    assert skipped["device"] == skipped["reads"] == "no files are read"
    assert skipped["loader"] == skipped["trainer"] == "no compute is emulated"
    saves = replace(
        Config(compute=SLEEP), checkpoint=CheckpointConfig(layout="torch_save", every_steps=1, state_bytes=1)
    )
    assert not {one.name: one.skipped for one in rungs(saves, True)}["trainer"]


def test_the_decoupled_engine_has_no_finished_samples() -> None:
    found = {one.name: one for one in rungs(Config(compute=SLEEP, loader=LoaderConfig(engine="decoupled")), True)}
    assert [name for name in LADDER if found[name].skipped] == ["decode"]
    assert "no decoded samples" in found["decode"].skipped
    assert not found["decode"].costless
    assert "loader.replay=batches" in found["hand_over"].settings
    assert "decoding" in found["hand_over"].removed


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["loader.num_workers=0,2"], "headspace measures a single configuration"),
        (["study=cosmic_tagger_chunk", "scale=tiny"], "headspace measures a single configuration, not a study file"),
        (["ranks=1,2"], "headspace measures a single configuration"),
        (["loader.replay=batches"], "headspace sets loader.replay itself"),
        (["loader.num_worker=0"], "unknown"),
    ],
)
def test_what_it_cannot_do_is_said_before_anything_runs(settings: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan_ladder(parse(["recipe=minimal", *settings])[0])


def test_slow_preprocessing_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trial, "run_process", run_here)
    settings = (
        "recipe=self_test",
        "train.steps=40",
        "loader.read_threads=0",
        "compute.preprocess_s=5ms",
        "repeats=1",
        "start=fresh",
    )
    assert (
        main(Command("headspace", frozenset({"--json"}), (), (*settings, "output=found")), Launch("single", 0, 1, 0))
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads((tmp_path / "found/headspace.json").read_text())
    rungs = {one["rung"]: one for one in found["rungs"]}
    assert rungs["configured"]["step_s"]["median"] > 0.02
    assert rungs["decode"]["own"]["seconds"] > 0.015
    assert rungs["decode"]["own"]["seconds"] > 5 * abs(rungs["hand_over"]["own"]["seconds"])
    assert rungs["loader"]["samples_per_s"]["median"] < 210
    assert rungs["device"]["why"] == rungs["reads"]["why"] == "no files are read"
    assert found["bottleneck"] is None  # one round, and no more where no more are asked for
    assert found["rounds"] == 1
    assert (tmp_path / "found/table.csv").exists()
    # A rung has one name, whatever identifies it in files.
    page = (tmp_path / "found/report.html").read_text()
    assert "without preprocessing" in page
    assert "rung=decode" not in page
    assert f"({rungs['hand_over']['gain']['ratio']:.2f} times as good)" in page
    assert len((tmp_path / "found/trials.jsonl").read_text().splitlines()) == 4
