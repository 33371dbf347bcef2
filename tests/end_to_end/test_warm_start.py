"""Trials that a server process forks: as trials that start by themselves, and without a trace of an earlier one."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from forked_programs import by_itself
from ranks import SUPPORT

from dlio_torch.study.warm_start import WarmStart
from dlio_torch.supervision.run_process import TIMED_OUT, Ended, emulator, run_process

SHORT = ("recipe=minimal", "scale=tiny", "storage.limits=off", "output.progress=false")
LONG = (*SHORT, "train.epochs=100000", "compute.step_s=0.01")
pytestmark = pytest.mark.ranks


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the trials, their data and the states that they leave."""
    return tmp_path_factory.mktemp("warm")


@pytest.fixture(scope="module")
def warm(home: Path) -> Iterator[WarmStart]:
    with pytest.MonkeyPatch.context() as patch, WarmStart() as start:
        (home / "states").mkdir()
        patch.setenv("TRIAL_STATES", str(home / "states"))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(SUPPORT / "trial_state"), os.environ.get("PYTHONPATH", "")]))
        for name in ("LD_PRELOAD", "RANK", "WORLD_SIZE"):
            patch.delenv(name, raising=False)
        yield start


def arguments(home: Path, name: str, *settings: str) -> list[str]:
    return ["run", *(settings or SHORT), f"dataset.root={home / 'data'}", f"output.dir={home / name}"]


def fresh(home: Path, name: str, *settings: str) -> Ended:
    command = emulator(arguments(home, name, *settings))
    with by_itself():
        return run_process(command, home / f"{name}.log", timeout_s=200, cwd=home)


def run(warm: WarmStart, home: Path, name: str, *settings: str, timeout_s: float = 200) -> Ended | None:
    return warm.run(arguments(home, name, *settings), home / f"{name}.log", timeout_s=timeout_s, cwd=home)


def summary(home: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((home / name / "summary.json").read_text())
    return found


def leader(home: Path, name: str) -> psutil.Process:
    """The process of a run that trains; waits for that."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with suppress(OSError, ValueError, KeyError):
            record = json.loads((home / name / "state.json").read_text())
            if record["state"] == "running" and any((home / name / "events").iterdir()):
                return psutil.Process(record["pid"])
        time.sleep(0.02)
    raise AssertionError(f"{name} does not train")


def meanwhile(act: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=act)
    thread.start()
    return thread


# What differs from run to run of a fresh process, too.
OWN = {"generators", "arguments", "variables", "modules"}


def test_a_trial_has_the_state_of_a_fresh_process_whatever_the_one_before_it_did(warm: WarmStart, home: Path) -> None:
    ended = {"fresh": fresh(home, "fresh"), **{name: run(warm, home, name) for name in ("first", "second", "third")}}
    assert {name: one and (one.exit_code, one.error) for name, one in ended.items()} == dict.fromkeys(ended, (0, ""))
    pids = {name: json.loads((home / name / "state.json").read_text())["pid"] for name in ended}
    states = {name: json.loads((home / "states" / f"{pid}.json").read_text()) for name, pid in pids.items()}
    expected = states["fresh"]
    for name, state in states.items():
        assert {key: value for key, value in state.items() if key not in OWN} == {
            key: value for key, value in expected.items() if key not in OWN
        }, name
        assert state["variables"] == expected["variables"]
        assert state["arguments"] == [
            (own := arguments(home, name)),
            ["-m", "dlio_torch", *own],
        ]
    for generator in range(3):
        assert len({state["generators"][generator] for state in states.values()}) == len(states)
    # The server imports what the trials import, and has few modules of its own.
    for name in ("second", "third"):
        more = set(states[name]["modules"]) - set(expected["modules"])
        assert {module.partition(".")[0] for module in more} <= {"dlio_torch", "mmap"}
        assert {module for module in more if module.startswith("dlio_torch")} <= {"dlio_torch.study"}
        assert set(expected["modules"]) - set(states[name]["modules"]) == set()


def test_results_are_those_of_a_fresh_process(warm: WarmStart, home: Path) -> None:
    recipe = ("recipe=cosmic_tagger", *SHORT[1:], "verify=true")
    assert fresh(home, "data_of_it", *recipe).exit_code == 0
    one, other = fresh(home, "by_itself", *recipe), run(warm, home, "forked", *recipe)
    assert other is not None
    assert (other.exit_code, other.error) == (one.exit_code, one.error) == (0, "")
    mine, theirs = summary(home, "forked"), summary(home, "by_itself")
    measured = {"advice", "stalls"}  # sentences for what was measured, or none
    assert _keys(mine, measured) == _keys(theirs, measured)
    for key in ("order", "verified_samples", "dataset", "reads.samples", "train.samples", "train.bytes", "saved"):
        first, _, rest = key.partition(".")
        assert (mine[first][rest] if rest else mine[first]) == (theirs[first][rest] if rest else theirs[first])
    counts = [found["epochs"][0][0]["io"] for found in (mine, theirs)]
    # Numbers in /proc have more or fewer digits; imports would add some ten thousand bytes.
    assert abs(counts[0]["rchar"] - counts[1]["rchar"]) < 4096
    assert abs(counts[0]["syscr"] - counts[1]["syscr"]) < 16
    assert sorted(path.name for path in (home / "forked").iterdir()) == sorted(
        path.name for path in (home / "by_itself").iterdir()
    )
    assert 0.3 < other.cpu_s / one.cpu_s < 3  # the imports count
    assert other.peak_rss_bytes is not None
    if one.peak_rss_bytes is not None:  # it is larger than the process of the tests
        assert 0.3 < other.peak_rss_bytes / one.peak_rss_bytes < 3


def _keys(found: Any, without: set[str] = frozenset(), above: str = "") -> set[str]:  # type: ignore[assignment]
    if not isinstance(found, dict):
        return {above}
    return {
        key for name, value in found.items() if name not in without for key in _keys(value, above=f"{above}.{name}")
    }


def test_a_recorded_trial_has_the_recorder_from_its_start(warm: WarmStart, home: Path) -> None:
    settings = (*SHORT, "trace.posix=true")
    one, other = fresh(home, "recorded", *settings), run(warm, home, "recorded_forked", *settings)
    assert other is not None
    assert (one.exit_code, other.exit_code) == (0, 0)
    mine, theirs = (summary(home, name)["posix"]["io"] for name in ("recorded_forked", "recorded"))
    assert _keys(mine) == _keys(theirs)
    counts = [{kind: of["calls"] for kind, of in found["classes"].items()} for found in (mine, theirs)]
    assert counts[0] == counts[1]
    assert counts[0]["read"] > 0
    assert mine["sizes"]["read"]["bytes"] == theirs["sizes"]["read"]["bytes"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_trial_that_a_signal_ends_is_told_as_a_fresh_one(warm: WarmStart, home: Path, number: int) -> None:
    ended: list[Ended | None] = []
    for start in ("fresh", "warm"):
        name = f"{start}_{number}"
        thread = meanwhile(lambda name=name: leader(home, name).send_signal(number))  # type: ignore[misc]
        ended.append(fresh(home, name, *LONG) if start == "fresh" else run(warm, home, name, *LONG))
        thread.join()
    one, other = ended
    assert one is not None
    assert other is not None
    assert other.exit_code == one.exit_code == 128 + number
    errors = [text.error.replace("warm_", "fresh_").partition(":")[0] for text in (one, other)]
    assert errors[0] == errors[1] != ""


def test_the_time_limit_ends_a_trial(warm: WarmStart, home: Path) -> None:
    assert run(warm, home, "before") is not None  # the server is ready
    ended = run(warm, home, "limited", *LONG, timeout_s=5)
    assert ended is not None
    assert (ended.exit_code, ended.error) == (TIMED_OUT, "the run took longer than its time limit, 5 s")
    record = json.loads((home / "limited" / "state.json").read_text())
    assert record["line"] == "interrupted"
    assert not psutil.pid_exists(record["pid"])


def test_an_interrupt_ends_the_trial_and_is_passed_on(warm: WarmStart, home: Path) -> None:
    trials: list[psutil.Process] = []

    def interrupt() -> None:
        trials.append(leader(home, "interrupted"))
        os.kill(os.getpid(), signal.SIGINT)

    thread = meanwhile(interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(warm, home, "interrupted", *LONG)
    thread.join()
    assert not trials[0].is_running()
    assert json.loads((home / "interrupted" / "state.json").read_text())["line"] == "interrupted"
    assert "dlio_torch: interrupted" in (home / "interrupted.log").read_text()
    after = run(warm, home, "after_it")
    assert after is not None
    assert after.exit_code == 0


def test_a_server_that_dies_takes_its_trial_along_and_is_replaced(warm: WarmStart, home: Path) -> None:
    trials: list[psutil.Process] = []

    def kill() -> None:
        trials.append(leader(home, "orphan"))
        trials[0].parent().kill()  # type: ignore[union-attr]

    thread = meanwhile(kill)
    assert run(warm, home, "orphan", *LONG) is None
    thread.join()
    assert not trials[0].is_running()
    ended = run(warm, home, "replaced")
    assert ended is not None
    assert ended.exit_code == 0


def test_another_environment_is_that_of_the_next_trial(
    warm: WarmStart, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THIS_STUDY", "yes")
    assert run(warm, home, "with_variable") is not None
    pid = json.loads((home / "with_variable" / "state.json").read_text())["pid"]
    assert json.loads((home / "states" / f"{pid}.json").read_text())["variables"]["OF_THIS_STUDY"] == "yes"
    monkeypatch.setenv("LD_PRELOAD", "libof_another_tool.so")
    assert run(warm, home, "with_library") is None
    assert not (home / "with_library").exists()


def test_the_server_ends_with_the_study(home: Path) -> None:
    before = set(psutil.Process().children(recursive=True))
    with WarmStart() as start:
        assert run(start, home, "only_one") is not None
        servers = set(psutil.Process().children(recursive=True)) - before
        assert servers
    assert not [server for server in servers if server.is_running()]
