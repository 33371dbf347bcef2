"""The verb launch: what scripts hold, what they start, and what is refused."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks import SUPPORT

from dlio_torch import cli
from dlio_torch.config.resources import find
from dlio_torch.errors import ConfigError
from dlio_torch.launch import template
from dlio_torch.launch.job_request import LAUNCHERS

CLUSTER = SUPPORT / "cluster"
HOW = [(scheduler, launcher) for scheduler, several in LAUNCHERS.items() for launcher in several]
JOB = ("recipe=minimal", "scale=tiny", "time=10min")
SITE = {
    "slurm": ("partition=debug", "#SBATCH --partition=debug", "#SBATCH --mem=2048M", "#SBATCH --time=00:10:00"),
    "pbs": ("queue=debug", "#PBS -q debug", ":ncpus=6:mpiprocs=3:ngpus=1:mem=2048mb", "#PBS -l walltime=00:10:00"),
}


@pytest.fixture(autouse=True)
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and the scheduler's programs of :data:`CLUSTER`, which only record what they are to start."""
    for name in list(os.environ):
        if name.startswith(("SLURM_", "PBS_", "PMI_", "OMPI_", "DLIO_TORCH_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{CLUSTER}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CLUSTER", str(tmp_path))
    monkeypatch.setenv("ONLY_RECORD", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def launched(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[str, str]:
    """What ``launch`` prints to stdout and stderr."""
    assert cli.main(["launch", *arguments]) == code
    return capsys.readouterr()


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)
    return path


# --- scripts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scheduler", "launcher"), HOW)
def test_a_script_is_sound_and_asks_for_what_is_given(
    capsys: pytest.CaptureFixture[str], cluster: Path, scheduler: str, launcher: str
) -> None:
    where, *wanted = SITE[scheduler]
    text, _ = launched(
        capsys,
        *JOB,
        f"scheduler={scheduler}",
        f"launcher={launcher}",
        "nodes=2",
        "ranks_per_node=3",
        "cpus_per_rank=2",
        "gpus_per_node=1",
        "memory=2GiB",
        "account=materials",
        "directives=-l filesystems=home:eagle",
        "local=$TMPDIR/mine",
        where,
        "--dry-run",
    )
    assert list(cluster.iterdir()) == []
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
    if shutil.which("shellcheck"):
        checked = subprocess.run(["shellcheck", "--severity=warning", "-"], input=text, text=True, check=False)
        assert checked.returncode == 0
    head = text[: text.index("\n\n")]
    assert all(one in head for one in (*wanted, "materials", "-l filesystems=home:eagle", "minimal"))
    assert "%{" not in text
    assert "--signal" not in head  # only studies can go on


@pytest.mark.parametrize(("scheduler", "launcher"), HOW)
def test_a_job_generates_copies_and_trains_in_one_folder(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    cluster: Path,
    scheduler: str,
    launcher: str,
) -> None:
    monkeypatch.setenv("NODES", "one,two")
    calls = cluster / "calls"
    python = program(cluster / "python", f'printf "python %s\\n" "$*" >>{calls}')
    kept = (f"python={python}", "stage_in=node", f"local={cluster}/$HOST", "output.dir=here")
    monkeypatch.setenv("HOST", "fast")
    text, _ = launched(
        capsys, *JOB, f"scheduler={scheduler}", f"launcher={launcher}", "nodes=2", "ranks_per_node=3", *kept, "--submit"
    )
    assert f"results: {cluster}/here\n" in text
    assert (cluster / "exit_code").read_text() == "0\n", (cluster / "here.log").read_text()
    generate, train = calls.read_text().splitlines()
    started = {
        "srun": "srun --nodes={nodes} --ntasks={ranks} --ntasks-per-node=3 --cpus-per-task=1 ",
        "mpiexec": "mpiexec -n {ranks} -ppn 3 env MASTER_ADDR=one MASTER_PORT=2",
        "torchrun": "-m torch.distributed.run --nproc-per-node=3 ",
        "horovodrun": "-m horovod.runner.launch -np {ranks} -H {hosts} ",
    }[launcher]
    assert started.format(nodes=1, ranks=3, hosts="localhost:3") in generate
    assert started.format(nodes=2, ranks=6, hosts="one:3,two:3") in train
    if launcher == "torchrun":
        assert "--standalone -m dlio_torch generate" in generate
        assert "--nnodes=2 --rdzv-backend=c10d" in train
        assert "--rdzv-endpoint=one:2" in train
    assert "generate recipe=minimal scale=tiny output.progress=false" in generate
    result = f"stage.dir={cluster}/fast output.dir={cluster}/here output.progress=false"
    assert train.endswith(f" -m dlio_torch train recipe=minimal scale=tiny {result}")


@pytest.mark.parametrize(
    ("mpi", "option"), [("mpiexec (Open MPI) 4.1.5", "--map-by ppr:2:node"), ("mpiexec PALS 1.3", "--ppn 2")]
)
def test_each_mpi_hears_its_own_option(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, cluster: Path, mpi: str, option: str
) -> None:
    monkeypatch.setenv("MPI", mpi)
    launched(capsys, "train", *JOB, "scheduler=pbs", "ranks_per_node=2", "dist.backend=torch", "--submit")
    (train,) = (cluster / "calls").read_text().splitlines()
    assert train.startswith(f"mpiexec -n 2 {option} env ")


def test_data_that_are_there_are_neither_generated_nor_named_otherwise(
    capsys: pytest.CaptureFixture[str], cluster: Path
) -> None:
    there = ("dataset.path=some data.h5", "local=$TMPDIR", "ranks_per_node=2", "scheduler=slurm")
    text, _ = launched(capsys, *JOB, *there, "--dry-run")
    assert " generate " not in text
    assert """arguments+=(stage.dir="${TMPDIR:?is not set in this job}")""" in text
    text, _ = launched(capsys, "recipe=self_test", "scheduler=slurm", "ranks_per_node=2", "time=1h", "--dry-run")
    assert " generate " not in text  # nothing lies in files
    text, _ = launched(capsys, "generate", *JOB, "scheduler=slurm", "ranks_per_node=2", "--dry-run")
    assert " train " not in text


def test_a_job_that_is_started_again_puts_aside_what_is_unfinished(
    capsys: pytest.CaptureFixture[str], cluster: Path
) -> None:
    launched(capsys, *JOB, "scheduler=slurm", "ranks_per_node=2", "output.dir=here")
    for number in (1, 2):
        (cluster / "here").mkdir()
        (cluster / "here" / "config.yaml").write_text(f"start: {number}\n")
        subprocess.run(["sbatch", "here.sh"], check=True, stdout=subprocess.DEVNULL)
        assert (cluster / f"here.unfinished.{number}" / "config.yaml").read_text() == f"start: {number}\n"
    (cluster / "here").mkdir()
    (cluster / "here" / "summary.json").write_text("{}")
    before = (cluster / "calls").read_text()
    subprocess.run(["sbatch", "here.sh"], check=True, stdout=subprocess.DEVNULL)
    assert (cluster / "calls").read_text() == before
    assert "is finished" in (cluster / "here.log").read_text()


def test_two_scripts_of_one_second_have_two_folders(capsys: pytest.CaptureFixture[str], cluster: Path) -> None:
    for _ in range(2):
        launched(capsys, *JOB, "scheduler=slurm", "ranks_per_node=2")
    scripts = list((cluster / "runs" / "minimal").glob("*.sh"))
    assert len(scripts) == 2
    for script in scripts:
        assert f"result={script.with_suffix('')}\n" in script.read_text()
        assert os.access(script, os.X_OK)


# --- checkpoints ---------------------------------------------------------------------------------

SAVED = ("checkpoint", "recipe=minimal", "scale=tiny", "time=1h", "scheduler=slurm")
MODEL = ("model.hidden_size=16", "model.num_layers=2", "model.num_heads=4", "model.ffn_hidden_size=32")
DESCRIBED = (*SAVED, "checkpoint.layout=torch_save", *MODEL, "model.vocab_size=64", "parallel.data=8")


@pytest.mark.parametrize("launcher", LAUNCHERS["slurm"])
def test_a_job_saves_and_loads_without_data(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, cluster: Path, launcher: str
) -> None:
    monkeypatch.setenv("NODES", "one,two")
    calls = cluster / "calls"
    python = program(cluster / "python", f'printf "python %s\\n" "$*" >>{calls}')
    counts = ("saves=3", "loads=2", "nodes=2", f"launcher={launcher}", f"python={python}", "output.dir=here")
    launched(capsys, *DESCRIBED, *counts, "--submit")
    (call,) = calls.read_text().splitlines()[-1:]
    arguments = f"recipe=minimal scale=tiny {' '.join(DESCRIBED[5:])} saves=3 loads=2"
    assert call.endswith(f" checkpoint {arguments} output.dir={cluster}/here output.progress=false")
    assert " generate " not in calls.read_text()


@pytest.mark.parametrize(
    ("given", "nodes", "each"),
    [
        (["nodes=2"], 2, 4),
        (["ranks_per_node=8"], 1, 8),
        (["ranks_per_node=2"], 4, 2),
        (["gpus_per_node=4"], 2, 4),
        (["gpus_per_node=16"], 1, 8),
        (["gpus_per_node=4", "ranks_per_node=2"], 4, 2),
        (["nodes=1", "ranks_per_node=3"], 1, 3),
    ],
)
def test_a_job_has_the_ranks_that_are_described(
    capsys: pytest.CaptureFixture[str], given: list[str], nodes: int, each: int
) -> None:
    text, notes = launched(capsys, *DESCRIBED, *given, "--dry-run")
    assert f"#SBATCH --nodes={nodes}\n" in text
    assert f"#SBATCH --ntasks-per-node={each}\n" in text
    assert "note: saves: 10 of " in notes


def test_checks_know_all_ranks_of_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    whole = ("checkpoint.layout=safetensors", "checkpoint.ranks=all", "checkpoint.consolidate=true")
    described = (*SAVED, *MODEL, "model.vocab_size=64", "parallel.data=4", "parallel.fsdp=full", *whole)
    launched(capsys, *described, "nodes=2", "--dry-run")
    _, error = launched(capsys, *described, "nodes=1", "ranks_per_node=2", "--dry-run", code=2)
    assert "whole files need the parts of the 4 ranks of the job, but 2 were started" in error


def test_threads_that_save_have_cores(capsys: pytest.CaptureFixture[str]) -> None:
    threads = ("checkpoint.layout=dcp", "checkpoint.thread_count=3", "loader.num_workers=7", "parallel.fsdp=full")
    described = (*SAVED, *MODEL, "model.vocab_size=64", "parallel.data=2", "nodes=1", *threads)
    text, _ = launched(capsys, *described, "--dry-run")
    assert "#SBATCH --cpus-per-task=3\n" in text
    text, _ = launched(capsys, "sweep", "verb=checkpoint", *described[1:-5], *threads, "seed=1,2", "--dry-run")
    assert "#SBATCH --cpus-per-task=3\n" in text
    text, _ = launched(capsys, *SAVED, "checkpoint=torch_save", "ranks_per_node=2", "--dry-run")
    assert "#SBATCH --nodes=1\n" in text
    assert "#SBATCH --cpus-per-task=1\n" in text


# --- quoting -------------------------------------------------------------------------------------


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), max_size=4))
@settings(max_examples=40, deadline=None)
def test_a_job_receives_what_was_given(arguments: list[str]) -> None:
    values: dict[str, template.Value] = {"arguments": tuple(arguments), "one": "".join(arguments), "none": None}
    text = template.fill("words=(%{arguments})\n%{none}\nprintf '%s\\0' \"${words[@]}\" %{one}", values, "here")
    done = subprocess.run(["bash"], input=text.encode(), capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == [*(arguments or []), "".join(arguments)] or not arguments


def test_odd_arguments_reach_the_program(capsys: pytest.CaptureFixture[str], cluster: Path) -> None:
    recipe = cluster / 'it\'s "mine" $HOME.yaml'
    shutil.copy(find(cluster, {}).recipes()["minimal"], recipe)
    python = program(cluster / "python", f'printf "%s\\n" "${{@: 4:1}}" "${{@: 5:1}}" >{cluster}/words')
    odd = (f"recipe=./{recipe.name}", "system.name=a `b` \\ 'c'\t*")
    started = ("scheduler=pbs", "launcher=torchrun", "ranks_per_node=1", "time=1h", f"python={python}")
    python.write_text(python.read_text().replace("4:1", "-4:1").replace("5:1", "-3:1"))
    launched(capsys, "train", *odd, *started, "output.dir=a b", "--submit")
    assert (cluster / "words").read_text() == "".join(f"{one}\n" for one in odd)


def test_variables_of_a_word_are_those_of_the_job() -> None:
    word = template.with_variables("$A/it's ${B}/$(no)").text
    done = subprocess.run(
        ["bash", "-c", f"printf %s {word}"], env={"A": "a b", "B": "*"}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "a b/it's */$(no)"
    done = subprocess.run(["bash", "-c", f"x={word}"], env={"A": "a"}, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "B: is not set in this job" in done.stderr


# --- templates -----------------------------------------------------------------------------------


def test_templates_of_a_site_come_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, cluster: Path
) -> None:
    own = cluster / "site" / "conf" / "launch"
    own.mkdir(parents=True)
    (own / "slurm.sh").write_text("#!/bin/bash\n#SBATCH -N %{nodes} %{account}\n# 100%%{x}\n%{steps}\n")
    monkeypatch.setenv("DLIO_TORCH_PATH", "site")
    job = (*JOB, "scheduler=slurm", "ranks_per_node=1", "--dry-run")
    text, _ = launched(capsys, *job)
    assert text.startswith("#!/bin/bash\n# 100%{x}\n# A job that is started again")
    text, _ = launched(capsys, *job, "account=mine")
    assert "#SBATCH -N 1 mine\n" in text
    mine = cluster / "mine.sh"
    mine.write_text("%{nodez}\n")
    _, error = launched(capsys, *job, "template=./mine.sh", code=2)
    assert "mine.sh:1: %{nodez} is not a value of a job script; did you mean nodes?" in error
    _, error = launched(capsys, *job, "template=other", code=2)
    assert "template=other: no such template" in error


def test_a_line_for_the_scheduler_stays_one_line() -> None:
    with pytest.raises(ConfigError, match="cannot stand in a line for the scheduler"):
        template.fill("#PBS -N %{job}", {"job": "a\nrm"}, "here")


# --- studies -------------------------------------------------------------------------------------

PROGRAM = """
# A study: each start records one run more, and has all after three.
echo "$*" >>{calls}
case $* in *--resume*) ;; *) mkdir -p {out} && touch {out}/study.yaml ;; esac
trap 'kill "$run"; exit 143' TERM
{record}
[ "$(wc -l <{out}/trials.jsonl)" -lt 3 ] || exit 0
touch {out}/started.$(wc -l <{calls})
sleep_forever & run=$!
wait
"""
RECORD = "echo a run >>{out}/trials.jsonl"


def study_job(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    cluster: Path,
    scheduler: str,
    *settings: str,
    record: str = RECORD,
) -> tuple[list[str], str]:
    """The calls of a study that each job ends after a run, and the log of its jobs."""
    bin_ = cluster / "bin"
    bin_.mkdir()
    out, calls = cluster / "out", cluster / "calls"
    text = PROGRAM.format(calls=calls, out=out, record=record.format(out=out))
    python = program(cluster / "python", text)
    program(bin_ / "sleep_forever", f"exec {shutil.which('sleep')} 60")
    if scheduler == "pbs":
        # The script itself counts the time, which is up here when a run more is recorded than jobs were before.
        wait = f'n=$(( ${{DLIO_TORCH_RESTARTED:-0}} + 1 )); until [ -e "{out}/started.$n" ]; do'
        program(bin_ / "sleep", f"[ $1 = 480 ] || exit 9; {wait} {shutil.which('sleep')} 0.02; done")
    else:
        monkeypatch.setenv("TIME_UP_WHEN", f"{out}/started.%r")
    monkeypatch.setenv("PATH", f"{bin_}{os.pathsep}{os.environ['PATH']}")
    job = ("recipe=minimal", "scale=tiny", "train.batch_size=1,2", "output=out", f"python={python}", *settings)
    launched(capsys, "sweep", *job, f"scheduler={scheduler}", "time=10min", "--submit", "--remove-data")
    return calls.read_text().splitlines(), (cluster / "out.log").read_text()


@pytest.mark.parametrize("scheduler", ["slurm", "pbs"])
def test_a_study_goes_on_until_it_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, cluster: Path, scheduler: str
) -> None:
    (first, *others), log = study_job(capsys, monkeypatch, cluster, scheduler)
    own = "recipe=minimal scale=tiny train.batch_size=1,2"
    assert first == f"-m dlio_torch sweep {own} output={cluster}/out --remove-data"
    assert others == [f"-m dlio_torch sweep --resume {cluster}/out --remove-data"] * 2
    assert log.count("the study goes on in another job") == 2
    assert "error" not in log
    assert "restarts so far: 2" in log
    assert (cluster / "exit_code").read_text().splitlines()[0] == "0"


@pytest.mark.parametrize("scheduler", ["slurm", "pbs"])
def test_a_study_is_started_again_so_often_and_no_more(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, cluster: Path, scheduler: str
) -> None:
    calls, log = study_job(capsys, monkeypatch, cluster, scheduler, "restarts=1")
    assert len(calls) == 2
    command = {"slurm": "sbatch", "pbs": "qsub"}[scheduler]
    assert f"started again as often as restarts=1 allows; go on with: {command} {cluster}/out.sh" in log


def test_a_study_that_gets_nowhere_is_not_started_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, cluster: Path
) -> None:
    calls, log = study_job(capsys, monkeypatch, cluster, "slurm", record=": >{out}/trials.jsonl")
    assert len(calls) == 1
    assert "no run ended in the time of this job" in log
    assert (cluster / "exit_code").read_text() == "143\n"


@pytest.mark.parametrize("verb", ["tune", "headspace"])
def test_other_studies_have_jobs_too(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    text, _ = launched(capsys, verb, *JOB, "ranks=2", "loader.num_workers=1", "scheduler=slurm", "--dry-run")
    assert f"words=({verb} --resume " in text
    assert f"/sweeps/{verb}_minimal/" in text
    assert "#SBATCH --signal=B:USR1@120\n" in text
    assert "#SBATCH --ntasks-per-node=2\n" in text


# --- mistakes ------------------------------------------------------------------------------------

SLURM = ("scheduler=slurm", "ranks_per_node=2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scheduler=slrum", "ranks_per_node=2", "time=1h"], "scheduler=slrum (command line): unknown scheduler"),
        (["ranks_per_node=2", "time=1h"], "no scheduler is given, and both sbatch and qsub are installed"),
        ([*SLURM], "launch (command line): a job needs a time limit"),
        ([*SLURM, "time=30"], "time=30 (command line): neither HH:MM:SS nor a duration with its unit"),
        ([*SLURM, "time=00:30"], "time=00:30 (command line): neither"),
        ([*SLURM, "time=1:75:00"], "time=1:75:00 (command line): neither"),
        ([*SLURM, "time=30m"], "unknown unit 'm', did you mean min?"),
        (["scheduler=slurm", "nodes=2", "time=1h"], "nodes=2 (command line): without ranks_per_node"),
        (["scheduler=slurm", "time=1h"], "launch (command line): no ranks_per_node; write ranks_per_node=4"),
        ([*SLURM, "time=1h", "nodes=0"], "nodes=0 (command line): expected a number from 1"),
        ([*SLURM, "time=1h", "nodse=2"], "did you mean nodes?"),
        ([*SLURM, "time=1h", "walltime=2h"], "did you mean time?"),
        ([*SLURM, "time=1h", "queue=x"], "slurm has no queue; write partition=x"),
        ([*SLURM, "time=1h", "account=a b"], "account='a b' (command line): not one word".replace("'", "")),
        ([*SLURM, "time=1h", "directives=--a\n#SBATCH --b"], "empty, or contains unprintable characters"),
        ([*SLURM, "time=1h", "job=1st"], "job=1st (command line): not a usable name"),
        ([*SLURM, "time=1h", "time=2h"], "time=2h (command line): the key is given twice, first as time=1h; keep one"),
        ([*SLURM, "time=1h", "grace=5min"], "run cannot be resumed"),
        (
            [*SLURM, "time=1h", "repeats=3"],
            "repeats=3 (command line): the verb run has no such key; use the key with sweep",
        ),
        ([*SLURM, "time=1h", "loader.num_worker=2"], "did you mean"),
        (["scheduler=pbs", "ranks_per_node=2", "time=1h", "launcher=srun"], "choices are mpiexec, torchrun"),
        (
            ["scheduler=slurm", "ranks_per_node=3", "time=1h", "train.batch_scope=global"],
            "a global batch of this size cannot be divided equally among 3 ranks",
        ),
        (
            [*SLURM, "time=1h", "launcher=torchrun", "dist.backend=horovod"],
            "dist.backend=horovod does not work with the launcher",
        ),
        ([*SLURM, "time=1h", "dataset=synthetic", "local=/x"], "dataset.format=synthetic has no files"),
        ([*SLURM, "time=1h", "stage.dir=/y", "local=/x"], "stage.dir=/y (command line) copies the data, too"),
        (["train", *SLURM, "time=1h", "stage_in=node"], "train writes no data"),
        (["sweep", *SLURM, "time=1h"], "sweep starts the ranks of its runs itself, on one node; write ranks="),
        (["sweep", "scheduler=slurm", "time=1min", "grace=2min"], "not less than the time of the job"),
        (
            ["headspace", "scheduler=slurm", "time=1h", "train.batch_size=1,2"],
            "headspace measures a single configuration",
        ),
        ([*DESCRIBED], "no ranks_per_node, and the job has 8 ranks; write ranks_per_node=4, or nodes=2"),
        ([*DESCRIBED, "nodes=3"], "nodes=3 (command line): the 8 ranks of the job (parallel.tensor x pipeline x data)"),
        ([*DESCRIBED, "ranks_per_node=7"], "cannot be divided equally; write ranks_per_node=4, or add nodes="),
        ([*DESCRIBED, "nodes=2", "ranks_per_node=8"], "the job has 8 ranks, but 16 were started"),
        ([*DESCRIBED, "nodes=2", "saves=-1"], "saves=-1 (command line): expected a number from 1"),
        (
            [*DESCRIBED, "nodes=2", "writes=3"],
            "neither the verb checkpoint nor a run has such a key; did you mean saves?",
        ),
        ([*DESCRIBED, "nodes=2", "repeats=3"], "repeats=3 (command line): the verb checkpoint has no such key"),
        ([*DESCRIBED, "nodes=2", "local=/x"], "local=/x (command line): checkpoint does not train"),
        ([*DESCRIBED, "nodes=2", "stage_in=node"], "stage_in=node (command line): checkpoint writes no data"),
        ([*DESCRIBED, "nodes=2", "grace=5min"], "checkpoint cannot be resumed"),
        ([*SAVED, "checkpoint=torch_save", "nodes=2"], "nodes=2 (command line): without ranks_per_node"),
        ([*SAVED, "ranks_per_node=2"], "the recipe minimal describes no checkpoints, so there is nothing to save"),
        (["report", *SLURM, "time=1h"], "launch report (command line): expected one verb of a job"),
        ([*SLURM, "time=1h", "--remove-data"], "--remove-data (command line): the verb run does not have this flag"),
        ([*SLURM, "time=1h", "--dry-run", "--submit"], "--dry-run writes no job script, so there is none to submit"),
    ],
)
def test_a_mistake_is_one_line(
    capsys: pytest.CaptureFixture[str], cluster: Path, arguments: list[str], message: str
) -> None:
    recipe = [] if "recipe=minimal" in arguments else ["recipe=minimal"]
    _, error = launched(capsys, *arguments, *recipe, code=2)
    assert error.count("\n") == 1
    assert message in error
    assert list(cluster.iterdir()) == []


def test_without_a_scheduler_the_script_is_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, cluster: Path
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    job = ("scheduler=pbs", "ranks_per_node=2", "dist.backend=torch", "output.dir=here")
    _, error = launched(capsys, *JOB, *job, "--submit", code=3)
    hint = f"the script is written; submit it with: qsub {cluster}/here.sh"
    assert error == f"dlio_torch: error: --submit (command line): qsub is not installed here; {hint}\n"
    assert (cluster / "here.sh").is_file()
    text, _ = launched(capsys, *JOB, *job)
    assert text.endswith(f"submit the job with: qsub {cluster}/here-2.sh\n")
    _, error = launched(capsys, *JOB, *job, "script=here.sh", code=2)
    assert f"script={cluster}/here.sh (command line): the file exists; add --force" in error


def test_a_scheduler_that_refuses_is_quoted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, cluster: Path
) -> None:
    program(cluster / "sbatch", "echo 'sbatch: error: invalid partition' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{cluster}{os.pathsep}{os.environ['PATH']}")
    _, error = launched(capsys, *JOB, "scheduler=slurm", "ranks_per_node=2", "partition=x", "--submit", code=1)
    assert "sbatch refused it: sbatch: error: invalid partition; the script is written" in error


def test_schedulers_and_launchers_have_their_templates() -> None:
    places = find(Path.cwd(), {})
    for name in (*LAUNCHERS, *(f"start/{one}" for one in set(itertools.chain(*LAUNCHERS.values())))):
        assert template.find(name, places, "test")[1]
