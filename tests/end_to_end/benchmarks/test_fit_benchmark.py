"""The benchmark of fits: its verdicts, that it runs the programs, and that slow reads are those of the data."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pytest
from straced import needs_strace

from benchmarks.fit_check import changes, chosen, score_row, transfer_row
from benchmarks.fitting.programs import (
    AS_RECORDED,
    EPOCHS,
    PLAIN_PROGRAMS,
    SCRIPTS,
    Change,
    PlainProgram,
    Workbench,
    completed,
    failure,
    figures_of,
    rate_of_steps,
)
from benchmarks.fitting.slow_storage import SlowStorage
from benchmarks.harness.rounds import Rounds, Unavailable
from dlio_torch.errors import ConfigError


def score(worst: float, noise: object) -> dict:
    return {"worst": worst, "component": "order", "rerun_noise": noise, "unexplained": {"bytes_share": 0.0}}


@pytest.mark.parametrize(
    ("worst", "noise", "alike"),
    [(0.05, 0.0, "yes"), (0.06, 0.0, "no"), (0.2, 0.1, "yes"), (0.2, {"order": 0.1}, "yes"), (0.2, {}, "no")],
)
def test_a_fit_is_alike_within_the_limit_or_twice_the_noise(worst: float, noise: object, alike: str) -> None:
    assert score_row("program", score(worst, noise))["alike"] == alike


@pytest.mark.parametrize(("rates", "agree"), [([90.0, 100.0, 300.0], "yes"), ([80.0, 89.0, 100.0], "no")])
def test_rates_agree_where_the_median_ratio_is_within_a_tenth(rates: list[float], agree: str) -> None:
    measured = Rounds(["program", "emulation"])
    measured.figures = {
        "program": [{"rate": 100.0}] * len(rates),
        "emulation": [{"rate": rate} for rate in rates],
    }
    assert transfer_row("program", AS_RECORDED, measured)["agree"] == agree


def test_programs_are_chosen_by_name() -> None:
    assert [program.name for program in chosen("npz_volumes,image_folder")] == ["npz_volumes", "image_folder"]
    assert len(chosen("")) == 13
    with pytest.raises(ConfigError, match="--programs nonesuch: there is no such program"):
        chosen("nonesuch")


def test_each_program_of_the_tests_is_compared() -> None:
    scripts = {path.stem for path in SCRIPTS.glob("*.py")} - {"plain_training"}
    assert {program.name for program in PLAIN_PROGRAMS} == scripts


def test_a_change_is_the_same_for_program_and_emulation() -> None:
    change = Change("both", workers=3, batch_size=5)
    epochs = str(EPOCHS)
    assert change.flags() == ["--workers", "3", "--batch-size", "5", "--epochs", epochs]
    assert change.settings() == ["loader.num_workers=3", "train.batch_size=5", f"train.epochs={epochs}"]
    threads = PlainProgram("threads", other_workers=None, other_batch_size=32)
    other = changes(threads, SlowStorage(Path("a.so"), Path("count")))[1]
    assert other.settings() == ["train.batch_size=32", f"train.epochs={epochs}"]


def test_the_rate_of_an_emulation_counts_as_that_of_a_program() -> None:
    """From the end of the first step to the end of the last one, with the evaluation between them."""
    columns = ["rank", "phase", "start_s", "fetch_s", "copy_s", "compute_s", "allreduce_s", "checkpoint_s", "samples"]
    rows = [
        (0, "warmup", 10.0, 1.0, 0.0, 1.0, 0.0, 0.0, 8),  # ends at 12
        (1, "warmup", 10.0, 3.0, 0.0, 1.0, 0.0, 0.0, 8),
        (0, "eval", 12.0, 2.0, 0.0, 0.0, 0.0, 0.0, 100),
        (0, "train", 15.0, 1.0, 0.5, 1.0, 0.5, 0.0, 8),
        (0, "train", 18.0, 0.0, 0.0, 1.0, 0.0, 1.0, 4),  # ends at 20
    ]
    assert rate_of_steps(pd.DataFrame(rows, columns=columns), 2) == 2 * 12 / 8


def test_the_reason_of_a_failure_is_its_error_or_its_last_line() -> None:
    assert failure(["Traceback:", "ValueError: a", ""]) == "ValueError: a"
    assert failure(["dlio_torch: error: a", "hint"]) == "dlio_torch: error: a"
    assert failure([]) == ""


def test_a_program_without_a_rate_is_left_out() -> None:
    assert figures_of('text\n{"samples": 4, "samples_per_s": 2.5}\n') == {"rate": 2.5}
    for output in ("text", '{"samples": 4, "samples_per_s": null}'):
        with pytest.raises(Unavailable, match="no rate"):
            figures_of(output)


def test_a_program_is_made_and_run(tmp_path: Path) -> None:
    bench = Workbench(PLAIN_PROGRAMS[-1], tmp_path)
    bench.make()
    assert bench.script(Change("other batch", batch_size=32))["rate"] > 0
    with pytest.raises(Unavailable, match="nonesuch is not installed"):
        Workbench(PlainProgram("parquet_rows", library="nonesuch"), tmp_path).make()


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> SlowStorage:
    try:
        return SlowStorage.compiled(tmp_path_factory.mktemp("slow"))
    except Unavailable as error:
        pytest.skip(str(error))


@needs_strace
def test_only_reads_below_the_folder_are_slowed_and_counted(slow: SlowStorage, tmp_path: Path) -> None:
    data, other = tmp_path / "data", tmp_path / "database"
    for folder in (data, other):
        folder.mkdir()
        (folder / "file").write_bytes(bytes(1 << 20))
    for folder, sleeps in ((data, 16), (other, 0)):
        variables = slow.variables(data, call_ms=0.01, mib_ms=0.0)
        log = tmp_path / f"{folder.name}.log"
        copy = ["dd", f"if={folder / 'file'}", f"of={tmp_path / 'copy'}", "bs=64k"]
        trace = ["strace", "-f", "-e", "trace=clock_nanosleep", "-o", str(log)]
        preload = [word for item in variables.items() for word in ("-E", "=".join(item))]
        subprocess.run([*trace, *preload, *copy], check=True, capture_output=True, env=os.environ)
        assert log.read_text().count("clock_nanosleep(") == slow.slowed == sleeps
        assert (tmp_path / "copy").read_bytes() == bytes(1 << 20)


def test_slow_reads_are_those_of_the_data_of_program_and_emulation(slow: SlowStorage, tmp_path: Path) -> None:
    program = PlainProgram("npz_volumes", batch_size=2)
    bench = Workbench(program, tmp_path)
    bench.make(samples=4)
    bench.recipe.mkdir()
    fields = "[{name: image, dtype: float32, shape: [48, 48, 48]}, {name: mask, dtype: uint8, shape: [48, 48, 48]}]"
    dataset = f"dataset: {{format: npz, num_files: 4, samples_per_file: 1, fields: {fields}}}"
    loading = "loader: {num_workers: 2, persistent_workers: false}"
    training = "train: {batch_size: 2}\ncompute: {step_s: 0.005}"
    (bench.recipe / "recipe.yaml").write_text("\n".join([dataset, loading, training]))
    change = Change("slow reads", slow=slow)
    assert bench.emulation(AS_RECORDED).keys() == {"rate"}  # writes the data
    figures = [bench.script(change), bench.emulation(change)]
    of_program, of_emulation = (one["slowed"] for one in figures)
    assert of_program >= 2 * 4 * EPOCHS  # two arrays of each sample
    assert abs(of_emulation / of_program - 1) < 0.05
    row = transfer_row(program.name, change, rounds_of_one(*figures))
    assert (row["slowed reads, program"], row["slowed reads, emulation"]) == (of_program, of_emulation)


def test_a_run_without_slow_reads_is_not_compared_as_one(slow: SlowStorage, tmp_path: Path) -> None:
    bench = Workbench(PlainProgram("evaluation_loop"), tmp_path)
    bench.make(samples=4)
    bench.storage = tmp_path / "elsewhere"
    bench.storage.mkdir()
    with pytest.raises(Unavailable, match="no read of its data was slowed"):
        bench.script(Change("slow reads", slow=slow))


def rounds_of_one(program: Mapping[str, float], emulation: Mapping[str, float]) -> Rounds:
    measured = Rounds(["program", "emulation"])
    measured.figures = {"program": [program], "emulation": [emulation]}
    return measured


def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(Unavailable, match="no such thing"):
        completed(["sh", "-c", "echo no such thing >&2; exit 3"])
