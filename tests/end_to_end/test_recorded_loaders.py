"""The import hook: what a recorded program asks torch for is in the recording, and the program is as without it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from ranks import clean_environ

from dlio_torch.analysis.run_recording import open_recording
from dlio_torch.iotrace.events.event_table import read_events
from dlio_torch.iotrace.events.torch_calls import TorchCalls, TorchDataset, TorchLoader, read_torch_calls
from dlio_torch.iotrace.recorder.preload import HOOK, environment
from dlio_torch.iotrace.recorder.run_queue import SCHEDSTAT
from dlio_torch.native.build import find_compiler

PROGRAMS = Path(__file__).parents[1] / "support" / "torch_programs.py"
EXPECTED_ORDER = (
    "shuffled", "persistent", "subset", "endless", "testing", "own_batches", "single", "own_loader", "named", "pipe",
    "nodes", "broken", "broken_worker", "left",
)  # fmt: skip
"""Loaders of the program ``many``, in the order of their first use."""

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="the recorder's library cannot be compiled here")


@dataclass
class Recorded:
    """A recorded program.

    Attributes:
        events: its events folder.
        batches: what it says of its batches.
        calls: what was recorded of its loaders.
        spans: what was recorded of their times.
    """

    events: Path
    batches: dict[str, Any]
    calls: TorchCalls
    spans: pd.DataFrame

    def loader(self, name: str) -> TorchLoader:
        """A loader of the program ``many``."""
        return self.calls.loaders[EXPECTED_ORDER.index(name)]

    def dataset(self, name: str) -> TorchDataset:
        """The data set of a loader of the program ``many``."""
        (dataset,) = (entry for entry in self.calls.datasets if entry.id == self.loader(name).dataset)
        return dataset

    def indices(self, loader: int) -> list[list[list[Any]]]:
        """Recorded keys of each batch of each epoch of a loader."""
        rows = self.calls.batches[self.calls.batches["loader"] == loader]
        return [[batch["index"].tolist() for _, batch in epoch.groupby("batch")] for _, epoch in rows.groupby("epoch")]

    def samples(self, loader: TorchLoader) -> pd.DataFrame:
        """Spans of the samples that were read for a loader."""
        workers = [process.pid for process in self.calls.processes if process.loader == loader.id]
        named = self.spans[(self.spans["op"] == "sample") & (self.spans["file"] == f"dataset {loader.dataset}")]
        return named[named["pid"].isin(workers or [loader.pid])]


def run(command: list[str], folder: Path, variables: dict[str, str] | None = None) -> tuple[int, str]:
    """Exit code and standard error of a program that is recorded in ``folder/events``."""
    events = folder / "events"
    events.mkdir(exist_ok=True)
    recorded = environment(events, include=[str(folder)], hook=HOOK)
    done = subprocess.run(
        command, cwd=folder, env=clean_environ() | (variables or {}) | recorded, capture_output=True, text=True,
        timeout=200, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


def recorded(name: str, folder: Path, *options: str, variables: dict[str, str] | None = None) -> Recorded:
    code, error = run([sys.executable, *options, str(PROGRAMS), name, "result"], folder, variables)
    assert code == 3, error
    events = folder / "events"
    table = read_events(events)
    assert table.skipped == ()
    spans = table.frame[table.frame["layer"] == "app"]
    return Recorded(events, json.loads((folder / "result").read_text()), read_torch_calls(events), spans)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return recorded("many", tmp_path_factory.mktemp("many"), "-I")


def test_no_part_of_the_hook_failed(many: Recorded) -> None:
    assert many.calls.notes == ()
    assert len(many.calls.loaders) == len(EXPECTED_ORDER)
    assert many.batches["errors"] == [True, True]


@pytest.mark.parametrize("name", ["shuffled", "persistent", "subset", "testing", "own_batches", "single", "own_loader"])
def test_the_indices_are_those_of_the_batches(name: str, many: Recorded) -> None:
    loader = many.loader(name)
    if name != "subset":
        assert many.indices(loader.id) == many.batches[name]
    epochs = [epoch for epoch in many.calls.epochs if epoch.loader == loader.id]
    assert [(epoch.batches, epoch.exhausted) for epoch in epochs] == [
        (len(epoch), True) for epoch in many.batches[name]
    ]
    assert many.dataset(name).length == {"subset": 8, "single": 3}.get(name, 12)


@pytest.mark.parametrize("name", ["shuffled", "persistent", "subset", "own_batches", "single", "nodes"])
def test_each_sample_is_a_span_of_the_process_that_reads_it(name: str, many: Recorded) -> None:
    loader = many.loader(name)
    samples = many.samples(loader)
    if name == "shuffled":  # one data set of several loaders
        samples = samples[samples["step"] >= 0].head(24)
    keys = [index for epoch in many.indices(loader.id) for batch in epoch for index in batch]
    pids = set(samples["pid"])
    assert (loader.pid in pids) == (loader.num_workers == 0 or loader.start_method == "thread")
    assert set(keys) <= set(samples["offset"])


def test_workers_know_loader_batch_and_index(many: Recorded) -> None:
    loader = many.loader("persistent")
    workers = [process for process in many.calls.processes if process.loader == loader.id]
    assert sorted(process.role for process in workers) == ["loader worker 0", "loader worker 1"]
    assert {process.parent_pid for process in workers} == {loader.pid}
    samples = many.samples(loader).sort_values("start_ns")
    by_batch = samples.groupby("step")["offset"].apply(list).to_dict()
    epochs = many.indices(loader.id)
    assert by_batch == {step: epochs[0][step] + epochs[1][step] for step in range(3)}


def test_options_of_loaders(many: Recorded) -> None:
    loader = many.loader("persistent")
    assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers) == (2, 2, True)
    assert (loader.batch_size, loader.start_method, loader.in_order) == (4, "fork", True)
    assert loader.sampler["class"] == "torch.utils.data.sampler.RandomSampler"
    assert loader.sampler["replacement"] is False
    assert loader.collate == "torch.utils.data._utils.collate.default_collate"
    assert many.loader("own_loader").class_name == "__main__.OwnLoader"
    assert many.loader("own_batches").batch_sampler == "builtins.list"
    nodes = many.loader("nodes")
    assert (nodes.batch_size, nodes.num_workers, nodes.start_method) == (4, 2, "thread")
    styles = {name: many.dataset(name).style for name in EXPECTED_ORDER}
    assert {styles[name] for name in ("shuffled", "subset", "named", "own_loader")} == {"map"}
    assert (styles["endless"], styles["pipe"], styles["nodes"]) == ("iterable", "datapipe", "map")


def test_loaders_of_nodes_have_indices_in_their_batches(many: Recorded) -> None:
    assert many.indices(many.loader("nodes").id) == many.batches["nodes"]


def test_keys_that_are_no_integers(many: Recorded) -> None:
    assert many.indices(many.loader("named").id) == [[["'a'", "'b'"]]]


def test_iterable_data_sets_have_samples_without_index(many: Recorded) -> None:
    loader = many.loader("endless")
    samples = many.samples(loader)
    assert set(samples["offset"]) == {-1}
    assert len(samples) >= 6
    epochs = [epoch for epoch in many.calls.epochs if epoch.loader == loader.id]
    assert [(epoch.batches, epoch.exhausted) for epoch in epochs] == [(3, False)]
    assert len(many.samples(many.loader("pipe"))) == 7


def test_two_loaders_at_once_are_told_apart(many: Recorded) -> None:
    fetches = many.spans[many.spans["op"] == "fetch"].sort_values("start_ns")
    endless, testing = many.loader("endless").id, many.loader("testing").id
    mixed = fetches[fetches["file"].isin([f"loader {endless}", f"loader {testing}"])]
    places = [(str(file), step, epoch) for file, step, epoch in mixed[["file", "step", "offset"]].to_numpy()]
    assert places == [
        place
        for turn in range(3)
        for place in [(f"loader {endless}", turn, 0), (f"loader {testing}", 0, turn), (f"loader {testing}", 1, turn)]
    ]


def test_a_loader_that_is_left_ends_after_its_last_batch(many: Recorded) -> None:
    (epoch,) = [epoch for epoch in many.calls.epochs if epoch.loader == many.loader("left").id]
    # The program ends with os._exit: what came last is known by its fetches.
    assert epoch.exhausted in (False, None)
    fetches = many.spans[many.spans["file"] == f"loader {epoch.loader}"]
    assert (fetches["op"] == "fetch").sum() == 1


def test_compute_lies_between_the_activities_of_the_main_thread(many: Recorded) -> None:
    main = many.spans[many.spans["pid"] == many.calls.loaders[0].pid].sort_values("start_ns")
    steps = main[main["op"].isin(["fetch", "compute", "checkpoint", "load"])]
    assert (steps["start_ns"].to_numpy()[1:] >= steps["end_ns"].to_numpy()[:-1]).all()
    assert steps["op"].iloc[0] == "fetch"
    after_fetch = steps["op"].shift(-1)[(steps["op"] == "fetch").to_numpy()].dropna()
    assert (after_fetch == "compute").mean() > 0.8


@pytest.mark.skipif(not Path(SCHEDSTAT).exists(), reason="the kernel reports no run delays")
def test_each_batch_and_each_step_has_its_wait_for_a_core(many: Recorded) -> None:
    place = ["pid", "tid", "start_ns"]
    timed = many.spans[many.spans["op"].isin(["batch", "compute"])]
    delays = many.spans[many.spans["op"] == "run_delay"]
    joined = timed.merge(delays, on=[*place, "step", "file"], how="left", suffixes=("", "_delay"))
    assert len(joined) == len(timed) == len(delays)
    assert (joined["end_ns_delay"] >= joined["start_ns"]).all()


def test_shapes_of_batches(many: Recorded) -> None:
    arrays = [entry for entry in many.calls.arrays if entry.loader == many.loader("shuffled").id]
    assert [array.shape for array in arrays[0].arrays] == [(5, 3), (5,)]
    assert [array.dtype for array in arrays[0].arrays] == ["float32", "int64"]
    assert [(entry.batch, entry.arrays[0].shape) for entry in arrays[:2]] == [(0, (5, 3)), (2, (2, 3))]


def test_saved_states(many: Recorded) -> None:
    saves = [(state.kind, state.call, state.tensors, state.bytes) for state in many.calls.saves]
    assert saves == [("save", "torch.save", 1, 400), ("save", "torch.save", 1, 12), ("load", "torch.load", 1, 400)]
    path = str(many.events.parent / "state.pt")
    assert [state.path for state in many.calls.saves] == [path, None, path]
    ops = many.spans["op"]
    assert ((ops == "checkpoint").sum(), (ops == "load").sum()) == (2, 1)


def test_figures_of_a_recording_with_spans(many: Recorded) -> None:
    recording = open_recording(many.events)
    assert recording.kind == "trace"
    assert recording.facts == {}


def test_workers_that_are_copies_and_a_cleared_environment(tmp_path: Path) -> None:
    # The program has a sitecustomize of its own, and its first program executes it without any variable.
    (tmp_path / "sitecustomize.py").write_text("open('customized', 'w').close()\n")
    (tmp_path / "first.py").write_text(
        "import os, sys\nos.execve(sys.executable, [sys.executable, *sys.argv[1:]], {'PYTHONPATH': os.getcwd()})\n"
    )
    code, error = run([sys.executable, "-S", "first.py", str(PROGRAMS), "copied", "result"], tmp_path)
    assert code == 3, error
    assert (tmp_path / "customized").exists()
    calls, spans = read_torch_calls(tmp_path / "events"), read_events(tmp_path / "events").frame
    assert calls.notes == ()
    batches = json.loads((tmp_path / "result").read_text())
    assert [loader.start_method for loader in calls.loaders] == list(batches)
    for loader, printed in zip(calls.loaders, batches.values(), strict=True):
        (worker,) = (process for process in calls.processes if process.loader == loader.id)
        assert worker.parent_pid == loader.pid
        samples = spans[(spans["op"] == "sample") & (spans["pid"] == worker.pid)].sort_values("start_ns")
        assert samples.groupby("step")["offset"].apply(list).tolist() == printed[0]
        assert set(samples["file"]) == {f"dataset {loader.dataset}"}


def test_a_program_without_a_loader(tmp_path: Path) -> None:
    calls = recorded("without_loader", tmp_path).calls
    assert [(process.role, process.loader) for process in calls.processes] == [("trainer", None)]
    assert calls.processes[0].torch == metadata.version("torch")
    assert (calls.loaders, calls.notes) == ((), ())


def test_errors_look_as_without_the_hook(tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAMS), "failing", "result"]
    bare = subprocess.run(command, cwd=tmp_path, env=clean_environ(), capture_output=True, text=True, check=False)
    assert bare.stderr.count("Traceback") == 5  # an error of a worker has two
    assert run(command, tmp_path) == (3, bare.stderr)
    calls = read_torch_calls(tmp_path / "events")
    assert calls.notes == ()
    assert len(calls.epochs) == 4
    assert calls.epochs[-1].batches == 2


TORCH = {
    "__init__.py": "class Tensor: ...\nfrom torch.serialization import save\n",
    "serialization.py": "def save(obj, f):\n    return 'saved'\n",
}
"""A library that looks like torch to the hook, and is imported at once."""
USER = """
import os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
path, variables, importlib, threading, thread = list(sys.path), dict(os.environ), None, None, None
names = {"names", "torch", *globals()}
import torch
assert torch.save({}, "x") == "saved"
assert (sys.path, dict(os.environ)) == (path, variables)
assert set(globals()) == names, set(globals()) ^ names
assert not [name for name in sys.modules if name.startswith("dlio_torch")]
"""


def stand_in(folder: Path, **files: str) -> Path:
    """Writes a program that imports the stand-in of torch, and returns its path."""
    (folder / "torch").mkdir()
    for name, text in {**TORCH, **files}.items():
        (folder / "torch" / name).write_text(text)
    program = folder / "user.py"
    program.write_text(USER)
    return program


@pytest.mark.parametrize("options", [["-I"], ["-S", "-E"], ["-X", "dev", "-W", "error"]])
def test_the_program_sees_nothing_of_the_hook(options: list[str], tmp_path: Path) -> None:
    code, error = run([sys.executable, *options, str(stand_in(tmp_path))], tmp_path)
    assert (code, error) == (0, "")
    calls = read_torch_calls(tmp_path / "events")
    assert [state.path for state in calls.saves] == [str(tmp_path / "x")]
    assert calls.notes == ()


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.12", "3.13", "3.14"])
def test_other_versions_of_python(version: str, tmp_path: Path) -> None:
    places = [*Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), shutil.which(f"python{version}")]
    if places[0] is None:
        pytest.skip(f"Python {version} is not installed")
    code, error = run([str(places[0]), str(stand_in(tmp_path))], tmp_path)
    assert (code, error) == (0, "")
    calls = read_torch_calls(tmp_path / "events")
    too_old = int(version.split(".")[1]) < 10
    assert len(calls.saves) == (not too_old)
    assert ["older than 3.10" in note for note in calls.notes] == [True] * too_old


def test_a_hook_that_fails_is_a_note(tmp_path: Path) -> None:
    # torch without the class Tensor: counting the tensors of a state fails.
    program = stand_in(tmp_path, **{"__init__.py": "from torch.serialization import save\n"})
    code, error = run([sys.executable, str(program)], tmp_path)
    assert (code, error) == (0, "")
    (note,) = read_torch_calls(tmp_path / "events").notes
    assert "is recorded in part: AttributeError" in note


def test_torch_that_a_thread_imports(tmp_path: Path) -> None:
    program = stand_in(tmp_path)
    thread = (
        "import importlib, threading",
        "thread = threading.Thread(target=importlib.import_module, args=['torch'])",
        "thread.start(), thread.join()",
        "import torch\n",
    )
    program.write_text(USER.replace("import torch\n", "\n".join(thread)))
    code, error = run([sys.executable, str(program)], tmp_path)
    assert (code, error) == (0, "")
    assert len(read_torch_calls(tmp_path / "events").saves) == 1


def test_a_module_of_the_same_name_stays_the_program_s(tmp_path: Path) -> None:
    program = stand_in(tmp_path)
    (tmp_path / "dlio_torch.py").write_text("mine = True\n")
    lines = program.read_text().splitlines()
    program.write_text(
        "\n".join([*lines[:3], "import dlio_torch, torch", 'torch.save({}, "x")', "import dlio_torch.mine"])
    )
    code, error = run([sys.executable, str(program)], tmp_path)
    assert code == 1
    assert "'dlio_torch' is not a package" in error
    assert len(read_torch_calls(tmp_path / "events").saves) == 1


def test_programs_that_only_read_such_a_file(tmp_path: Path) -> None:
    stand_in(tmp_path)
    code, error = run(["cat", "torch/__init__.py"], tmp_path)
    assert (code, error) == (0, "")
    assert not list((tmp_path / "events").glob("*.torch"))


def test_calls_only(tmp_path: Path) -> None:
    program = stand_in(tmp_path)
    command = [sys.executable, "-m", "dlio_torch", "trace", "--calls-only", "--output", "r", "--", sys.executable]
    done = subprocess.run([*command, str(program)], cwd=tmp_path, env=clean_environ(), check=False)
    assert done.returncode == 0
    assert os.listdir(tmp_path / "r" / "events")
    assert not list((tmp_path / "r" / "events").glob("*.torch"))
