from __future__ import annotations

import io
from pathlib import Path

import pytest

from dlio_torch.report import progress
from dlio_torch.report.progress import Progress
from dlio_torch.train import live_rates, steps
from dlio_torch.train.live_rates import LiveRates
from dlio_torch.train.steps import EVAL, TRAIN, StepLog

SECOND = 1_000_000_000


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """Stands for the module ``time``; moves when it is told."""

    def __init__(self) -> None:
        self.now = 100 * SECOND

    def perf_counter_ns(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


def test_elsewhere_there_is_a_line_every_few_seconds(clock: Clock) -> None:
    stream = io.StringIO()
    with Progress(stream, enabled=True).task("training", "steps") as update:
        for done in range(101):
            update(done, 100)
            clock.now += SECOND // 4
    assert stream.getvalue().splitlines() == [
        "training: 20 of 100 steps, about 20 s left",
        "training: 40 of 100 steps, about 15 s left",
        "training: 60 of 100 steps, about 10 s left",
        "training: 80 of 100 steps, about 5 s left",
        "training: 100 of 100 steps, about 0 s left",
    ]


def test_further_text_follows(clock: Clock) -> None:
    stream = io.StringIO()
    texts = iter(["", "95.2 samples/s"])
    with Progress(stream, enabled=True).task("training", "steps", lambda: next(texts)) as update:
        for done in (1, 2):
            clock.now += 5 * SECOND
            update(done, 4)
    assert stream.getvalue().splitlines() == [
        "training: 1 of 4 steps, about 15 s left",
        "training: 2 of 4 steps, about 10 s left; 95.2 samples/s",
    ]


def test_rates_are_those_of_the_last_seconds_and_of_all_ranks(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "time", clock)
    monkeypatch.setattr(live_rates, "time", clock)
    log = StepLog(tmp_path / "steps.csv")
    rates, none = LiveRates(log, 2, emulates=True), LiveRates(log, 2, emulates=False)
    assert rates.text() == ""
    for seconds, requested_s in ((2, 1.5), (4, 4.0)):
        clock.now += seconds * SECOND
        log.append(
            1, 1, TRAIN, start_ns=0, fetch_ns=0, copy_ns=0, compute_ns=0, requested_ns=round(requested_s * SECOND),
            allreduce_ns=0, checkpoint_ns=0, samples=8, bytes=1 << 20,
        )  # fmt: skip
        log.append(
            1, 1, EVAL, start_ns=0, fetch_ns=0, copy_ns=0, compute_ns=0, requested_ns=SECOND, allreduce_ns=0,
            checkpoint_ns=0, samples=800, bytes=1 << 30,
        )  # fmt: skip
        log.flush()
        expected = {2: "8 samples/s, 1 MiB/s", 4: "4 samples/s, 512 KiB/s"}[seconds]
        assert none.text() == expected
        assert rates.text() == f"{expected}, utilisation {75 if seconds == 2 else 100} %"
        assert rates.text() == f"{expected}, utilisation {75 if seconds == 2 else 100} %"  # nothing new
    log.close()


def test_nothing_done_yet_has_no_time_left(clock: Clock) -> None:
    stream = io.StringIO()
    with Progress(stream, enabled=True).task("generating", "files") as update:
        clock.now += 6 * SECOND
        update(0, 3)
    assert stream.getvalue() == "generating: 0 of 3 files\n"


def test_a_terminal_gets_a_bar_that_goes_away(clock: Clock) -> None:
    stream = Terminal()
    with Progress(stream, enabled=True).task("training", "steps") as update:
        update(0, 10)
        before = stream.getvalue()
        update(1, 10)  # within the same second: nothing is drawn
        assert stream.getvalue() == before
        clock.now += SECOND
        update(7, 10)
        drawn = stream.getvalue()[len(before) :]
        assert "training" in drawn
        assert "7/10" in drawn
    assert stream.getvalue().endswith("\x1b[2K")  # the line is erased


def test_a_bar_is_put_away_when_the_run_fails(clock: Clock) -> None:
    stream = Terminal()
    with pytest.raises(KeyboardInterrupt), Progress(stream, enabled=True).task("training", "steps") as update:  # noqa: PT012
        update(0, 10)
        raise KeyboardInterrupt
    assert "\x1b[?25h" in stream.getvalue()  # the cursor is back


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_the_other_ranks_say_nothing(stream: io.StringIO, clock: Clock) -> None:
    with Progress(stream, enabled=False).task("training", "steps") as update:
        clock.now += 60 * SECOND
        update(1, 2)
    assert stream.getvalue() == ""
