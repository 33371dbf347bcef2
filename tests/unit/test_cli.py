"""Verbs, flags, exit codes, and one line for every error."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dlio_torch
from dlio_torch import cli
from dlio_torch.commands.command_line import FLAGS
from dlio_torch.commands.verbs import VERBS
from dlio_torch.config.compose import Composed
from dlio_torch.config.resources import shipped
from dlio_torch.errors import (
    DEBUG_VARIABLE,
    ConfigError,
    DataError,
    PreconditionError,
    RankFailed,
    RunFailed,
    ThresholdMissed,
)
from dlio_torch.study.verb_keys import KEYS

LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "HOROVOD_RANK", "HOROVOD_SIZE", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
Fake = Callable[..., None]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One rank, in an empty folder, without a user's own recipes."""
    for name in (*LAUNCHERS, "PMI_RANK", "PMI_SIZE", "DLIO_TORCH_PATH", DEBUG_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Stands for the modules that do the work; records how they are called."""
    made: list[Any] = []
    run = types.ModuleType("dlio_torch.execution.pipeline")
    plan = types.ModuleType("dlio_torch.preflight.dry_run")
    doctor = types.ModuleType("dlio_torch.doctor")

    def record(name: str, answer: int) -> Callable[..., int]:
        def call(composed: Composed | None, phases: Any = None, **kwargs: Any) -> int:
            made.append((name, composed, kwargs if phases is None else {"phases": phases, **kwargs}))
            return answer

        return call

    run.run = record("run", 0)  # type: ignore[attr-defined]
    plan.dry_run = record("dry_run", 0)  # type: ignore[attr-defined]
    doctor.doctor = record("doctor", 3)  # type: ignore[attr-defined]
    for module in (run, plan, doctor):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(dlio_torch, "doctor", doctor, raising=False)
    return made


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def run(composed: Composed, **kwargs: Any) -> int:
        raise error

    module = types.ModuleType("dlio_torch.execution.pipeline")
    module.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dlio_torch.execution.pipeline", module)


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """What was printed to stderr: nothing or one line."""
    error = capsys.readouterr().err
    assert error.count("\n") <= 1
    return error


# --- verbs and flags -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "name", "phases"),
    [
        (["recipe=minimal"], "run", ("generate", "train")),
        (["run", "recipe=minimal"], "run", ("generate", "train")),
        (["generate", "recipe=minimal"], "run", ("generate",)),
        (["train", "recipe=minimal"], "run", ("train",)),
        (["recipe=minimal", "--dry-run"], "dry_run", ("generate", "train")),
        (["-n", "train", "recipe=minimal"], "dry_run", ("train",)),
    ],
)
def test_verbs_reach_the_runner(calls: list[Any], arguments: list[str], name: str, phases: object) -> None:
    assert cli.main([*arguments, "train.epochs=7"]) == 0
    ((called, composed, kwargs),) = calls
    assert called == name
    assert composed.config.train.epochs == 7
    assert kwargs.get("phases") == phases


@pytest.mark.parametrize(
    ("arguments", "detail"),
    [
        (["recipe=cdb"], "normal"),
        (["recipe=cdb", "-q"], "quiet"),
        (["--quiet", "generate", "recipe=cdb"], "quiet"),
        (["run", "-v", "recipe=cdb"], "verbose"),
        (["train", "--verbose", "recipe=cdb", "--dry-run"], "verbose"),
    ],
)
def test_how_much_is_printed_reaches_the_runner(
    calls: list[Any], capsys: pytest.CaptureFixture[str], arguments: list[str], detail: str
) -> None:
    assert cli.main([*arguments, "loader=decoupled"]) == 0  # its HDF5 driver is not used then
    assert calls[0][1].detail == detail
    assert capsys.readouterr().err.startswith("adjusted: ") == (detail != "quiet")


def test_doctor_takes_an_optional_recipe_and_its_code_is_the_exit_code(calls: list[Any]) -> None:
    assert cli.main(["doctor"]) == 3
    assert cli.main(["doctor", "recipe=minimal", "--json"]) == 3
    assert cli.main(["doctor", "-q"]) == 3
    assert calls[0] == ("doctor", None, {"json": False, "quiet": False})
    assert calls[1][1].config.recipe == "minimal"
    assert calls[1][2] == {"json": True, "quiet": False}
    assert calls[2][2] == {"json": False, "quiet": True}


def test_show_explain_and_ls_print(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", "recipe=minimal", "seed=7"]) == 0
    assert "seed: 7                                          # command line" in capsys.readouterr().out
    assert cli.main(["show", "recipe=minimal", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["config"]["seed"] == 1
    assert cli.main(["explain", "loader.num_workers"]) == 0
    assert "worker processes of each rank" in capsys.readouterr().out
    assert cli.main(["explain", "loader.num_workers", "recipe=minimal", "loader.num_workers=3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["loader.num_workers"]["value"] == 3
    assert cli.main(["explain"]) == 0
    assert "how batches are loaded: engine, workers, prefetching" in capsys.readouterr().out
    assert cli.main(["ls"]) == 0
    listed = capsys.readouterr().out
    for name in ("minimal", "laptop", "hdf5", "synthetic"):
        assert name in listed
    assert cli.main(["ls", "formats", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["formats"]) >= {"hdf5", "synthetic"}


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["-h"], ["recipe=nonsense", "--help"]):
        assert cli.main(arguments) == 0
        text = capsys.readouterr().out
        assert all(verb in text for verb in VERBS)
        assert all(flag in text for flag in FLAGS)
        assert "DLIO_TORCH_PATH" in text
        assert all(f"{code} " in text for code in (0, 1, 2, 3, 4, 130))
        assert max(map(len, text.splitlines())) <= 100
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"dlio_torch {dlio_torch.__version__}\n"


def test_no_arguments_give_the_first_command_the_verbs_and_the_recipes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main([]) == 0
    text = capsys.readouterr().out
    assert "python -m dlio_torch recipe=minimal " in text
    for name, verb in VERBS.items():
        assert re.search(rf"^  {name} +{re.escape(verb.summary)}$", text, re.MULTILINE)
    assert cli.main(["ls", "recipes", "--json"]) == 0
    for name, line in json.loads(capsys.readouterr().out)["recipes"].items():
        assert f"  {name} " in text
        assert line in re.sub(r"\s+", " ", text)
    assert max(map(len, text.splitlines())) <= 100
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert cli.main([]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("verb", list(KEYS))
def test_the_verbs_of_studies_list_their_own_keys(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    assert cli.main([verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {key}={found.example}" in text for key, found in KEYS[verb].items())
    assert f"python -m dlio_torch {verb} {'runs' if verb == 'predict' else 'recipe='}" in text
    assert ("accelerator utilisation" in text) == (verb == "tune")
    assert ("--dry-run" in text) == (verb != "predict")
    assert "--scale-free" not in text
    assert max(map(len, text.splitlines())) <= 100
    for key, found in KEYS[verb].items():
        assert cli.main(["explain", key]) == 0
        assert found.doc in " ".join(capsys.readouterr().out.split())


def test_explain_knows_the_keys_of_studies(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "output"]) == 0
    text = capsys.readouterr().out
    assert "output (of sweep, tune, headspace): folder of the study" in text
    assert "output.root" in text  # which is a group of options, too
    assert cli.main(["explain", "objective"]) == 0
    assert "resources" in capsys.readouterr().out
    assert cli.main(["explain", "minutes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["minutes"]["verbs"]["tune"]["default"] == "10"
    assert cli.main(["explain"]) == 0
    assert "keys of tune: objective, min_au" in capsys.readouterr().out
    assert cli.main(["explain", "minuts"]) == 2
    assert "did you mean minutes?" in said(capsys)
    assert cli.main(["explain", "samples"]) == 0
    text = capsys.readouterr().out
    assert "samples (of predict): " in text
    assert "summary.train.samples " in text


@pytest.mark.parametrize("verb", ["sweep", "tune", "headspace"])
def test_a_folder_that_cannot_be_used_is_said_first_and_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, verb: str
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    for output, text in (("file", "the path is a file"), ("file/below", "is a file"), ("full", "is not empty")):
        assert cli.main([verb, "recipe=minimal", "scale=tiny", f"output={output}"]) == 3
        line = said(capsys)
        assert line.startswith(f"dlio_torch: error: output={output} (command line): ")
        assert text in line
    assert cli.main([verb, "recipe=minimal", "scale=tiny", "output.root=file/below"]) == 3
    assert "output.root=file/below (command line): the folder cannot be made" in said(capsys)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full"]


def test_a_folder_of_a_run_that_cannot_be_used_is_said_before_it_begins(
    calls: list[Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("x")
    assert cli.main(["recipe=minimal", "output.dir=file"]) == 3
    assert said(capsys).startswith("dlio_torch: error: output.dir=file (command line): the path is a file")
    assert calls == []
    assert cli.main(["recipe=minimal", "output.dir=new"]) == 0
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("verb", ["sweep", "tune", "headspace"])
def test_a_study_that_is_there_hides_no_mistake(capsys: pytest.CaptureFixture[str], tmp_path: Path, verb: str) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "study.yaml").write_text("of another study")
    for wrong, text in (
        ("loader.num_worker=1", "did you mean loader.num_workers?"),
        ("loader.num_workers=-1", "must be at least 0"),
        ("repeats=0", "repeats=0 (command line): expected a number"),
    ):
        assert cli.main([verb, "recipe=minimal", "scale=tiny", wrong, "output=there"]) == 2
        assert text in said(capsys)


def test_nothing_is_left_of_a_study_without_points(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for arguments in (["ranks=999", "output=p"], ["loader.num_workers=", "output=p"], ["ranks=999", "--dry-run"]):
        assert cli.main(["sweep", "recipe=minimal", "scale=tiny", *arguments]) == 2
        assert said(capsys).startswith("dlio_torch: error: no point of the study can be run: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["run"], ["recipe= (command line): missing", "minimal"]),
        (["--dry-run"], ["recipe= (command line): missing", "minimal"]),
        (
            ["recipe=minimal", "repeats=3"],
            ["repeats=3 (command line)", "the verb run has no such key", "sweep, tune, headspace"],
        ),
        (["rnu", "recipe=minimal"], ["rnu (command line)", "did you mean run?", "explain, doctor, clean"]),
        (["minimal"], ["minimal (command line)", "did you mean recipe=minimal?"]),
        (["./x.yaml"], ["./x.yaml (command line)", "did you mean recipe=./x.yaml?"]),
        (["loader.num_workers"], ["'loader.num_workers' (command line)", "loader.num_workers=<int>"]),
        (["--dryrun"], ["--dryrun (command line)", "did you mean --dry-run?"]),
        (["--recipe", "minimal"], ["--recipe (command line)", "did you mean recipe=minimal?"]),
        (["--recipe=minimal"], ["--recipe=minimal (command line)", "did you mean recipe=minimal?"]),
        (["recipe=minimal", "--scale"], ["--scale (command line)", "did you mean scale=...?"]),
        (["--loader.num-workers", "4"], ["--loader.num-workers (command line)", "did you mean loader.num_workers=4?"]),
        (["sweep", "--repeats", "2"], ["--repeats (command line)", "did you mean repeats=2?"]),
        (["--yes", "recipe=minimal"], ["--yes (command line)", "not a flag of run", "clean"]),
        (["recipe=minimal", "--json", "-n"], ["--json (command line)", "a plan is not printed as JSON"]),
        (["recipe=minimal", "--json", "-v"], ["--verbose (command line)", "prints all figures"]),
        (["recipe=minimal", "-q", "-v"], ["--verbose (command line)", "keep one"]),
        (["generate", "recipe=minimal", "-v"], ["--verbose (command line)", "not a flag of generate", "run, train"]),
        (["ls", "-q"], ["--quiet (command line)", "not a flag of ls"]),
        (["recipe=minimal", "generate"], ["'generate' (command line)", "key=value"]),
        (["ls", "nothing"], ["ls nothing", "recipes"]),
        (["ls", "recipe=minimal"], ["'recipe=minimal' (command line)", "show recipe=minimal"]),
        (["explain", "lodaer"], ["explain lodaer", "did you mean loader?"]),
        (["explain", "loader", "train"], ["explain loader train (command line)", "one key"]),
        (["recipe=minimal", "dataset.format=hdf"], ["dataset.format=hdf (command line)", "did you mean hdf5?"]),
        (["recipe=minimal", "loader.num_worker=4"], ["loader.num_worker=4 (command line)", "loader.num_workers?"]),
        (["recipe=minimal", "train.batch_size=513"], ["batch_size=513 (command line)", "samples_per_file=128 (rec"]),
        (["recipe=minimal", "train.batch_size=-1"], ["train.batch_size=-1 (command line)", "at least 1"]),
        (["recipe=minimal", "loader.timeout_s=5 minuts"], ["loader.timeout_s=5 minuts (command line)", "min"]),
        (["recipe=minmal"], ["recipe=minmal (command line)", "did you mean minimal?"]),
        (["recipe=minimal", "loader.prefetch_factor=2"], ["prefetch_factor=2 (command line)", "num_workers=0 (conf/"]),
    ],
)
def test_a_mistake_gives_one_line_and_exit_code_2(
    calls: list[Any], capsys: pytest.CaptureFixture[str], arguments: list[str], named: list[str]
) -> None:
    assert cli.main(arguments) == 2
    line = said(capsys)
    assert line.startswith("dlio_torch: error: ")
    for text in named:
        assert text in line
    assert calls == []


def test_generate_does_not_ask_for_a_fitting_batch(calls: list[Any]) -> None:
    assert cli.main(["generate", "recipe=minimal", "train.batch_size=513"]) == 0


# --- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RunFailed("it broke", hint="mend it"), 1),
        (ConfigError("it broke", hint="mend it"), 2),
        (PreconditionError("it broke", hint="mend it"), 3),
        (DataError("it broke", hint="mend it"), 3),
        (ThresholdMissed("it broke", hint="mend it"), 4),
        (RankFailed("it broke", hint="mend it", exit_code=3), 3),
    ],
)
def test_errors_of_the_tree_give_their_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, code: int
) -> None:
    failing(monkeypatch, error)
    assert cli.main(["recipe=minimal"]) == code
    assert said(capsys) == "dlio_torch: error: it broke; mend it\n"


def test_an_unexpected_exception_is_called_a_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, KeyError("missing\nthing"))
    assert cli.main(["recipe=minimal"]) == 1
    line = said(capsys)
    assert "KeyError" in line
    assert "DLIO_TORCH_DEBUG=1" in line
    monkeypatch.setenv("DLIO_TORCH_DEBUG", "1")
    assert cli.main(["recipe=minimal"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_an_interrupt_is_one_line_and_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    failing(monkeypatch, KeyboardInterrupt())
    assert cli.main(["recipe=minimal"]) == 130
    assert said(capsys) == "dlio_torch: interrupted\n"


def test_the_first_rank_speaks_for_all_where_all_have_the_same_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for error, lines in (
        (ConfigError("alike"), ["error: alike", ""]),
        (RankFailed("rank 1: lost", exit_code=1), ["error: rank 1: lost", ""]),
        (DataError("own"), ["rank 0: error: own", "rank 1: error: own"]),
        (ValueError("odd"), ["rank 0: unexpected ValueError: odd", "rank 1: unexpected ValueError: odd"]),
        (KeyboardInterrupt(), ["interrupted", ""]),
    ):
        failing(monkeypatch, error)
        for rank, text in enumerate(lines):
            monkeypatch.setenv("RANK", str(rank))
            cli.main(["recipe=minimal"])
            line = said(capsys)
            assert line.startswith(f"dlio_torch: {text}") if text else line == ""


def test_the_number_of_ranks_reaches_the_checks(
    monkeypatch: pytest.MonkeyPatch, calls: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "0")
    assert cli.main(["recipe=minimal", "train.batch_size=129"]) == 2
    assert "4 ranks, which has 128" in said(capsys)
    assert cli.main(["recipe=minimal", "train.batch_size=129", "dist.backend=single"]) == 0


# --- as a process --------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in LAUNCHERS}
    return kept | {"PYTHONPATH": str(shipped()), "PYTHONUNBUFFERED": "1"}


def process(tmp_path: Path, code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=tmp_path, env=environment(), text=True, capture_output=True, timeout=120, check=False
    )


OF_CONFIG = ["omegaconf", "yaml", "numpy", "json", "importlib.metadata", "dlio_torch.config", "dlio_torch.storage"]
"""Modules that only reading a configuration needs."""
OF_RUNS = ["numpy", "fcntl", "glob", *(f"dlio_torch.{name}" for name in ("analysis", "environment", "files"))]
"""Modules that only a run or its results need."""


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["--help"], [*OF_CONFIG, "dlio_torch.environment"]),
        ([], OF_RUNS),
        (["--version"], [*OF_CONFIG, "dlio_torch.commands.help_text"]),
        (["ls"], OF_RUNS),
        (["explain", "loader"], ["numpy"]),
        (["show", "recipe=minimal"], [*OF_RUNS, "dlio_torch.storage.base", "dlio_torch.storage.local"]),
        (["recipe=minimal", "loader.num_worker=1"], ["numpy"]),
        (["tune", "--help"], OF_CONFIG),
        (["sweep", "recipe=minimal", "loader.num_worker=1"], ["numpy", "pandas"]),
        (["tune", "recipe=minimal", "loader.num_workers=-1"], ["numpy", "pandas"]),
        (["headspace", "recipe=minimal", "output=/dev/null"], ["numpy", "pandas"]),
        (["launch", "--help"], OF_CONFIG),
        (["launch", "scheduler=pbs", "time=1h", "ranks_per_node=2", "recipe=nonsense"], ["numpy", "pandas"]),
        (["launch", "sweep", "scheduler=slurm", "time=1h", "recipe=minimal", "sead=1,2"], ["numpy", "pandas"]),
    ],
)
def test_nothing_heavy_is_imported_to_answer(tmp_path: Path, arguments: list[str], absent: list[str]) -> None:
    heavy = ["torch", "h5py", "pandas", "horovod", "torchdata", "rich", *absent]
    code = (
        f"import sys; from dlio_torch import cli; cli.main({arguments!r}); "
        f"print('loaded:', sorted(set({heavy!r}) & set(sys.modules)), file=sys.stderr)"
    )
    done = process(tmp_path, code)
    assert done.stderr.endswith("loaded: []\n")


def test_the_module_runs_and_exits_with_the_code(tmp_path: Path) -> None:
    code = "import runpy, sys; sys.argv[1:] = ['recipe=nonsense']; runpy.run_module('dlio_torch', run_name='__main__')"
    done = process(tmp_path, code)
    assert done.returncode == 2
    assert done.stdout == ""


# A shell that starts this test in the background makes its children ignore SIGINT; a terminal does not.
STUCK = """
import signal, sys, time, types
signal.signal(signal.SIGINT, signal.default_int_handler)
module = types.ModuleType("dlio_torch.execution.pipeline")
def run(composed, phases):
    try:
        print("started", flush=True)
        time.sleep(60)
    finally:
        print("cleaned up", flush=True)
module.run = run
sys.modules["dlio_torch.execution.pipeline"] = module
from dlio_torch import cli
sys.exit(cli.main(["recipe=minimal"]))
"""


@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_unwinds_and_gives_its_code(tmp_path: Path, number: int, code: int, word: str) -> None:
    command = [sys.executable, "-c", STUCK]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), text=True, stdout=pipe, stderr=pipe) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "started\n"
        started.send_signal(number)
        out, error = started.communicate(timeout=60)
    assert started.returncode == code
    assert out == "cleaned up\n"
    assert error == f"dlio_torch: {word}\n"


def test_a_forked_child_dies_of_sigterm_as_usual(tmp_path: Path) -> None:
    code = STUCK.replace("time.sleep(60)", "child()").replace(
        "def run(",
        "import os, signal\n"
        "def child():\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        os._exit(0)\n"
        "    print('child:', -os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)\n"
        "def run(",
    )
    assert "child: 15\n" in process(tmp_path, code).stdout


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    code = (
        "import os, sys; read, write = os.pipe(); os.close(read); os.dup2(write, 1); "
        "from dlio_torch import cli; sys.exit(cli.main(['ls']))"
    )
    assert process(tmp_path, code).stderr == ""


def test_an_output_that_takes_nothing_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "dlio_torch", "ls"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=100,
            check=False,
        )
    assert done.returncode == 3
    problem = (
        "the standard output cannot be written: No space left on device; free space on the file system, "
        "or redirect the output to another file"
    )
    assert done.stderr == f"dlio_torch: error: {problem}\n"
