"""tune: space, search, confirmation, resuming and what it leaves; runs cost nothing, but for one at the end."""

import functools
import io
import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from ranks import REPO

from dlio_torch.commands import tune as verb
from dlio_torch.commands.command_line import Command
from dlio_torch.config.compose import compose
from dlio_torch.dist.launcher import Launch
from dlio_torch.errors import ConfigError, DataError, PreconditionError, RunFailed, ThresholdMissed
from dlio_torch.study import runner
from dlio_torch.study.model import Point, Trial
from dlio_torch.study.needs import StudyNeeds
from dlio_torch.study.runner import Runner
from dlio_torch.study.store import Store
from dlio_torch.study.strategies.search import search, search_state
from dlio_torch.study.strategies.search import search_space as search_space_module
from dlio_torch.study.strategies.search.costs import Host
from dlio_torch.study.strategies.search.search import Search
from dlio_torch.study.strategies.search.search_console import print_search
from dlio_torch.study.strategies.search.search_request import SearchRequest, check_objective, parse_request
from dlio_torch.study.strategies.search.search_result import SearchResult
from dlio_torch.study.strategies.search.search_space import SearchSpace, given_points, search_space
from dlio_torch.study.strategies.search.search_state import State

ALL = "space=all"
HOST = Host(cores=2, gpus=False, memory_bytes=16 << 30)
ALONE = Launch("single", 0, 1, 0)
Model = Callable[[dict[str, str]], float | None]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@functools.cache
def spaces(*arguments: str) -> SearchSpace:
    """The points of a search; composing their configurations is what most of these tests would spend time with."""
    request = parse_request(["recipe=minimal", "scale=tiny", *arguments])
    return search_space(request, HOST, given_points(request))


def asked(*arguments: str) -> tuple[SearchRequest, SearchSpace]:
    request = parse_request(["recipe=minimal", "scale=tiny", *arguments])
    own = [one for one in arguments if one.partition("=")[0] not in ("objective", "min_au", "trials", "minutes")]
    space = spaces(*own)
    about = {"figures": request.study.figures, "title": request.study.title}
    return request, replace(space, study=replace(space.study, **about))


def test_the_decoupled_engine_is_searched_by_its_own_options() -> None:
    space = spaces("loader=decoupled", "loader.transfer_size=2MiB")
    axes = {axis.key: axis.values for axis in space.study.axes}
    assert axes == {"loader.read_threads": ("1", "2", "4"), "loader.prefetch_bytes": ("0B", "4MiB", "64MiB")}
    assert len(space.points) == 9
    assert {one.composed.config.loader.engine for one in space.points} == {"decoupled"}
    assert {cost.readers for cost in space.costs} == {1, 2, 4}
    several = spaces("loader=decoupled", "loader.num_workers=2")
    assert {cost.readers for cost in several.costs} == {2, 4, 8}


def readers(values: dict[str, str]) -> int:
    count = values.get("loader.num_workers", "-")
    return (
        int(values.get("loader.read_threads", "0") if count == "-" else count)
        if values["loader"] != "main_process"
        else 0
    )


def busy(values: dict[str, str]) -> float:
    """Utilisation that grows with the readers, and a little with what is read ahead."""
    ahead = next(
        (values[key] for key in ("loader.prefetch_factor", "loader.prefetch_batches") if values[key] != "-"), "1"
    )
    return min(0.99, 0.4 + 0.25 * readers(values) + 0.01 * math.log2(float(ahead)))


class Machine:
    """Runs points in no time, with the noise of a real machine."""

    def __init__(self, model: Model, *, noise: float = 0.01, wall_s: float = 1.0, stop_after: int = 10**6) -> None:
        self.model, self.noise, self.wall_s, self.left = model, noise, wall_s, stop_after
        self.random = random.Random(1)
        self.runs: list[tuple[int, int]] = []
        self.clock = 0.0

    def __call__(self, point: Point, directory: Path, *, repeat: int, **about: object) -> Trial:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        self.runs.append((point.number, repeat))
        self.clock += self.wall_s
        au = self.model(dict(point.values))
        known = (point.settings, point.number, repeat, point.values)
        started = f"2026-01-01T00:{len(self.runs) // 60:02}:{len(self.runs) % 60:02}+00:00"
        if au is None:
            return Trial(*known, status="failed", exit_code=3, error="no", started=started)
        au *= math.exp(self.random.gauss(0, self.noise))
        figures = {"train.samples_per_s": 1000 * au, "au.mean": au, "shares.fetch": 1 - au, "trial.wall_s": self.wall_s}
        return Trial(*known, started=started, figures=figures)


def tuned(place: Path, machine: Machine, *arguments: str) -> SearchResult:
    """A search in ``place``, begun or resumed."""
    request, space = asked(*arguments)
    digests = {one.point.number: one.digest for one in space.points}
    with Store.open(place) if place.exists() else Store.create(place, space.study, digests=digests) as store:
        state = search_state.load(place) if (place / search_state.FILE).exists() else State(arguments)
        strategy = Search(request, space, state, now=lambda: machine.clock)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runner, "run_trial", machine)
            return strategy.result(Runner(store, strategy, StudyNeeds((), 0.0, {}), lambda line: None).run())


# --- the space -----------------------------------------------------------------------------------


def test_loader_space_holds_what_the_recipe_can_have() -> None:
    _, space = asked(ALL)
    labels = [one.point.label for one in space.points]
    assert labels[0] == "loader=main_process"
    assert space.points[0].composed.config.loader == compose(["recipe=minimal", "scale=tiny"]).config.loader
    assert "loader=workers loader.num_workers=2 loader.prefetch_factor=4" in labels
    assert "loader=threads loader.read_threads=1 loader.prefetch_batches=2" in labels
    assert len({one.digest for one in space.points}) == len(space.points) == 15
    assert [one.point.number for one in space.points] == list(range(1, 16))
    assert not any(one.composed.config.loader.num_workers > 2 for one in space.points)
    assert space.costs[0].readers == 0
    assert sorted({cost.readers for cost in space.costs}) == [0, 1, 2]


def test_options_of_the_dataloader_are_searched_without_axes() -> None:
    _, space = asked("train.epochs=2")
    axes = {axis.key: axis.values for axis in space.study.axes}
    assert axes == {
        "loader.num_workers": ("0", "1", "2"),
        "loader.prefetch_factor": ("1", "2", "4", "8"),
        "loader.persistent_workers": ("false", "true"),
    }
    assert len(space.points) == 1 + 2 * 4 * 2
    assert space.points[0].point.label == "loader.num_workers=0"
    assert {one.composed.config.loader.read_threads for one in space.points} == {0}
    _, once = asked("train.epochs=1")  # workers that persist change nothing in one epoch
    assert [axis.key for axis in once.study.axes] == ["loader.num_workers", "loader.prefetch_factor"]
    request = parse_request(["recipe=minimal", "scale=tiny", "train.epochs=1"])
    pinned = search_space(request, replace(HOST, gpus=True), given_points(request))
    assert {axis.key: axis.values for axis in pinned.study.axes}["loader.pin_memory"] == ("false", "true")
    assert len(pinned.points) == 2 * len(once.points)


def test_the_engine_of_the_recipe_stays_and_threads_give_way_to_workers() -> None:
    _, space = asked("train.epochs=1", "loader.engine=stateful")
    assert {one.composed.config.loader.engine for one in space.points} == {"stateful"}
    _, kept = asked("train.epochs=2", "loader=workers", "loader.persistent_workers=true")
    assert {one.composed.config.loader.num_workers for one in kept.points} == {1, 2}
    assert {one.composed.config.loader.persistent_workers for one in kept.points} == {True}


def test_a_recipe_with_options_of_workers_can_have_none(folder: Path) -> None:
    recipe = (REPO / "recipes/minimal.yaml").read_text(encoding="utf-8")
    lines = "loader: {num_workers: 1, prefetch_factor: 4, persistent_workers: true, read_threads: 0}\n"
    (folder / "mine.yaml").write_text(recipe + lines, encoding="utf-8")
    request = parse_request(["recipe=./mine.yaml", "scale=tiny"])
    space = search_space(request, HOST, given_points(request))
    loaders = [one.composed.config.loader for one in space.points]
    assert (loaders[0].num_workers, loaders[0].prefetch_factor) == (1, 4)
    (none,) = (one for one in space.points if not one.composed.config.loader.num_workers)
    assert none.point.label == "loader.num_workers=0"
    assert not any("persistent_workers" in note for note in space.notes)
    threads = recipe + "loader: {read_threads: 2, prefetch_batches: 4}\n"
    (folder / "mine.yaml").write_text(threads, encoding="utf-8")
    space = search_space(request, HOST, given_points(request))
    assert {(one.num_workers, one.read_threads) for one in (one.composed.config.loader for one in space.points)} == {
        (0, 2), (0, 0), (1, 0), (2, 0),
    }  # fmt: skip


def test_a_search_of_before_keeps_its_settings(folder: Path) -> None:
    """A search that began when all options of reading were searched without axes is resumed with all of them."""
    data = {"schema": "dlio_torch.tune", "version": "1", "searched": None, "chosen": None, "stopped": ""}
    for arguments, expected in (
        (["recipe=minimal"], ("recipe=minimal", ALL)),
        (["recipe=minimal", "space=loader"], ("recipe=minimal", ALL)),
        (["recipe=minimal", "loader.num_workers=0,1"], ("recipe=minimal", "loader.num_workers=0,1")),
    ):
        text = json.dumps({**data, "arguments": arguments, "by_budget": False, "result": {}})
        (folder / search_state.FILE).write_text(text, encoding="utf-8")
        state = search_state.load(folder)
        assert state.arguments == expected
        assert state.as_begun(arguments) == expected  # the same command again
        assert search_state.load(folder) == search_state.save(folder, state)
    assert State(("recipe=minimal",)).as_begun(["recipe=minimal"]) == ("recipe=minimal",)


def test_the_blocks_to_copy_are_complete(folder: Path) -> None:
    def rate(values: dict[str, str]) -> float:
        return 0.3 + 0.2 * int(values["loader.num_workers"]) + 0.1 * (values["loader.persistent_workers"] == "true")

    found = tuned(folder / "s", Machine(rate), "train.epochs=2")
    assert found.verdict.recommended
    assert found.copy_blocks is not None
    blocks = dict(found.copy_blocks.blocks)
    assert list(blocks) == ["command line", "YAML", "DataLoader(...)"]
    for key in ("num_workers", "prefetch_factor", "persistent_workers"):
        assert f"loader.{key}=" in blocks["command line"]
        assert f"  {key}: " in blocks["YAML"]
        assert f"{key}=" in blocks["DataLoader(...)"]
    assert "num_workers=2" in blocks["DataLoader(...)"]
    assert "persistent_workers=True" in blocks["DataLoader(...)"]
    assert "pin_memory=" in blocks["DataLoader(...)"]


def test_default_beside_the_grid_of_its_axes() -> None:
    _, space = asked("loader.num_workers=1,2", "loader.prefetch_factor=2,8")
    assert [dict(one.point.values) for one in space.points[:2]] == [
        {"loader.num_workers": "0", "loader.prefetch_factor": "-"},
        {"loader.num_workers": "1", "loader.prefetch_factor": "2"},
    ]
    assert space.study.axes[0].values == ("0", "1", "2")
    _, space = asked("loader.num_workers=0,1", "loader.prefetch_factor=2,8")
    assert [one.point.label for one in space.points] == [
        "loader.num_workers=0",
        "loader.num_workers=1 loader.prefetch_factor=2",
        "loader.num_workers=1 loader.prefetch_factor=8",
    ]


def test_what_the_command_line_sets_stays() -> None:
    _, space = asked("loader.num_workers=2", "space=loader")
    assert {one.composed.config.loader.num_workers for one in space.points} == {2}
    # torch's own prefetch factor is 2, so what is not set is not one more setting.
    assert [dict(one.point.values)["loader.prefetch_factor"] for one in space.points] == ["2", "1", "4", "8"]
    assert space.study.axes[0].values == ("1", "2", "4", "8")


def test_data_change_only_when_asked_and_sizes_of_reads_always(folder: Path) -> None:
    _, space = asked("dataset=tfrecord", "loader=threads", ALL)
    assert {axis.key for axis in space.study.axes} == {
        "dataset.tfrecord.transfer_size", "loader.read_threads", "loader.prefetch_batches",
    }  # fmt: skip
    _, space = asked("dataset.hdf5.chunk_bytes=0,16KiB", "loader=threads", ALL)
    assert len(space.points) == 12
    assert space.study.axes[0].key == "dataset.hdf5.chunk_bytes"


def test_large_grids_are_searched_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_space_module, "MOST_POINTS", 8)
    _, space = asked("train.batch_size=1..30", "compute.step_s=1ms..20ms:1ms")
    assert len(space.points) == 9  # the default has a batch of 4 and another step
    assert "8 of 600 combinations" in space.notes[0]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("objective=speed",), "objective=speed (command line): no such objective"),
        (("trials=3",), "trials=3 (command line): expected a number from 8"),
        (
            ("minutes=0",),
            "minutes=0 (command line): expected a number above 0, at most 100000; `explain minutes` describes",
        ),
        (("runs=0",), "runs=0 (command line): neither the verb tune nor a run has such a key; did you mean trials?"),
        (
            ("failures=2",),
            "failures=2 (command line): the verb tune has no such key; use the key with sweep, headspace",
        ),
        (
            ("study=global_shuffle",),
            "study=global_shuffle (command line): the verb tune has no such key; use the key with sweep",
        ),
        (("ranks=1,2",), "a search compares settings of one experiment"),
        (("loader=threads", "loader.read_threads=1", "loader.prefetch_batches=1", ALL), "only one setting"),
        (("loader.num_workers=0,-3",), "loader.num_workers=-3"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        asked(*arguments)
    assert text in str(caught.value)


# --- search and confirmation -----------------------------------------------------------------------


def test_finds_confirms_and_says_what_to_set(folder: Path) -> None:
    machine = Machine(busy)
    found = tuned(folder / "s", machine, "objective=au", ALL)
    assert found.chosen is not None
    assert readers(dict(found.space.points[found.chosen].point.values)) == 2
    assert found.gain is not None
    assert found.gain.gain == pytest.approx(0.9 / 0.4 - 1, rel=0.1)
    assert found.gain.confirmed
    assert len(found.gain.pairs) == 3  # so clear that more would not change it
    said = found.verdict
    assert said.recommended == found.chosen
    assert "95 % interval" in said.sentence
    data = found.data()
    json.dumps(data, allow_nan=False)
    assert data["runs"] == len(machine.runs) <= 22  # half of 15 points of 3 repeats
    assert data["importance"]["loader"] >= 0


def test_no_gain_keeps_the_defaults(folder: Path) -> None:
    machine = Machine(lambda values: 0.5, noise=0.03)
    found = tuned(folder / "s", machine, ALL)
    said = found.verdict
    assert said.recommended == 0
    assert "keep the defaults" in said.sentence
    stream = io.StringIO()
    print_search(found, stream)
    assert "keep the defaults" in stream.getvalue()
    assert "DataLoader" not in stream.getvalue()  # there is nothing to copy
    data = found.page(pd.DataFrame(), StudyNeeds((), 0.0, {}))
    assert data.search is not None
    assert data.recommended == 1  # the default, so the page says that what an option explains may be noise too
    assert found.chosen is not None
    assert data.search.chosen == found.chosen + 1
    assert data.scaled == found.space.study.scaled


def test_fewest_resources(folder: Path) -> None:
    found = tuned(folder / "s", Machine(busy), "objective=resources", "min_au=0.6", ALL)
    assert found.chosen is not None
    assert found.space.costs[found.chosen].readers == 1
    said = found.verdict
    assert said.recommended == found.chosen
    assert "1 worker or reader thread," in said.sentence
    found = tuned(folder / "t", Machine(lambda values: 0.3), "objective=resources", ALL)
    said = found.verdict
    assert said.missed
    assert "reaches an accelerator utilisation of 90" in said.sentence


def test_budgets_leave_room_for_the_confirmation(folder: Path) -> None:
    machine = Machine(busy)
    found = tuned(folder / "s", machine, "objective=au", "trials=9", ALL)
    assert len(machine.runs) == 9
    assert found.state.stopped.startswith("the budget of 10 min, 9 trials has no room for another trial of the search")
    assert found.state.stopped.endswith("6 trials are kept for the confirmation")
    assert found.gain is not None
    assert len(found.gain.pairs) == 3
    slow = Machine(busy, wall_s=60)
    found = tuned(folder / "t", slow, "objective=au", "minutes=10", ALL)
    assert len(slow.runs) == 10
    assert found.finished


def test_interrupted_and_resumed_with_nothing_repeated_or_lost(folder: Path) -> None:
    whole = tuned(folder / "whole", Machine(busy, noise=0), "objective=au", ALL)
    place, runs = folder / "s", []
    for stop_after in (3, 2, 4, 10**6):
        machine = Machine(busy, noise=0, stop_after=stop_after)
        try:
            found = tuned(place, machine, "objective=au", ALL)
        except KeyboardInterrupt:
            assert stop_after < 10
        runs += machine.runs
    with Store.open(place, write=False) as store:
        assert [(trial.point, trial.repeat) for trial in store.trials()] == runs
    assert runs == [(trial.point, trial.repeat) for trial in whole.trials]
    assert found.chosen == whole.chosen
    assert found.gain == whole.gain

    again = tuned(place, Machine(busy, stop_after=0), "objective=au", ALL)
    assert (again.trials, again.state, again.data()) == (found.trials, found.state, found.data())


def test_a_larger_budget_goes_on(folder: Path) -> None:
    first, second = Machine(busy), Machine(busy)
    tuned(folder / "s", first, "objective=au", "trials=9", ALL)
    found = tuned(folder / "s", second, "objective=au", "trials=30", ALL)
    assert second.runs
    assert len(found.trials) == len(first.runs) + len(second.runs)
    assert len(set(first.runs + second.runs)) == len(found.trials)
    assert not found.state.stopped.startswith("the budget")


def test_failed_runs_do_not_end_it(folder: Path) -> None:
    machine = Machine(lambda values: None if values["loader"] == "workers" else busy(values))
    found = tuned(folder / "s", machine, "objective=au", ALL)
    said = found.verdict
    assert said.recommended
    assert dict(found.space.points[said.recommended].point.values)["loader"] == "threads"
    found = tuned(folder / "t", Machine(lambda values: None), ALL)
    assert found.verdict.recommended is None


# --- the verb --------------------------------------------------------------------------------------


def run_verb(*arguments: str, flags: tuple[str, ...] = (), resume: Path | None = None) -> int:
    values = () if resume is None else (("--resume", str(resume)),)
    return verb.main(Command("tune", frozenset(flags), (), arguments, values), ALONE)


def fake(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> None:
    """Replace the process of a run."""
    monkeypatch.setattr(runner, "run_trial", machine)
    monkeypatch.setattr(runner, "generate_data", lambda *a, **b: type("Ended", (), {"exit_code": 0}))
    monkeypatch.setattr(search, "host", lambda: HOST)
    monkeypatch.setattr(search, "search_space", lambda request, host, given, cwd=None: asked(ALL)[1])


def test_verb(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    machine = Machine(busy)
    fake(monkeypatch, machine)
    place = folder / "study"
    arguments = ("recipe=minimal", "scale=tiny", "objective=au", f"output={place}")
    assert run_verb(*arguments, flags=("--dry-run",)) == 0
    assert not place.exists()
    assert run_verb(*arguments) == 0
    shown = capsys.readouterr()
    assert "settings: 15, the default among them: loader=main_process" in shown.err
    assert "scale: compute.step_s 0.05 -> 0.00" in shown.err
    assert "waits for data are a larger share of the time here than in the full-size experiment" in shown.err
    assert "recommended" in shown.out
    assert "DataLoader(...)" in shown.out or "torchdata.nodes" in shown.out
    assert {"tune.json", "trials.jsonl", "table.csv", "report.html"} <= {path.name for path in place.iterdir()}
    page = (place / "report.html").read_text(encoding="utf-8")
    assert "The scale changed these options of the published experiment: " in page
    assert "compute.step_s 0.05 " in page
    assert any("compute is scaled" in line for line in search_state.load(place).result["scaled"])
    runs = len(machine.runs)

    assert run_verb(*arguments, flags=("--json",)) == 0  # the same command again runs nothing
    result = json.loads(capsys.readouterr().out)
    assert len(machine.runs) == runs == result["runs"]
    assert result["recommended"]["dotlist"].count("loader.")
    assert result["gain"]["low"] > 0
    assert run_verb("minutes=20", resume=place) == 0
    with pytest.raises(PreconditionError, match="contains a search with another objective"):
        run_verb("recipe=minimal", "scale=tiny", f"output={place}")
    with pytest.raises(ConfigError, match="cannot be changed while a search is resumed"):
        run_verb("loader=threads", resume=place)
    with pytest.raises(DataError):
        run_verb(resume=folder)


def test_verb_says_what_was_missed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(lambda values: 0.3)
    fake(monkeypatch, machine)
    with pytest.raises(ThresholdMissed, match="reaches an accelerator utilisation"):
        run_verb("recipe=minimal", "scale=tiny", "objective=resources", "output=a")
    machine.model = lambda values: None
    with pytest.raises(RunFailed, match="no run of the search"):
        run_verb("recipe=minimal", "scale=tiny", "output=b")
    with pytest.raises(ConfigError, match="no compute is emulated"):
        check_objective(
            parse_request(["recipe=minimal", "objective=au"]), compose(["recipe=minimal", "compute=none"]).config
        )
    with pytest.raises(ConfigError, match="started this command as 2 ranks"):
        verb.main(Command("tune"), Launch("torchrun", 0, 2, 0))


def test_real_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("recipe=minimal", "scale=tiny", "loader.num_workers=0,1", "objective=resources", "min_au=0.01")
    assert run_verb(*arguments, "minutes=0.01", "output=s", flags=("--json",)) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["recommended"]["default"]
    assert result["runs"] == 2
    trials = [json.loads(line) for line in (folder / "s/trials.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [trial["status"] for trial in trials] == ["done", "done"]
    assert {trial["values"]["loader.num_workers"] for trial in trials} == {"0", "1"}
    assert all(trial["figures"]["train.samples_per_s"] > 0 for trial in trials)
    assert (folder / "s/trials/001-1/summary.json").is_file()
