"""The benchmark of fits: its verdicts, that it runs the programs, and that slow reads are those of the data."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from straced import needs_strace

from benchmarks.fit_check import changes, chosen, score_row, transfer_row
from benchmarks.fitting.programs import (
    PLAIN_PROGRAMS,
    SCRIPTS,
    Change,
    PlainProgram,
    Workbench,
    completed,
    failure,
    figures_of,
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
    assert transfer_row("program", "change", measured)["agree"] == agree


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
    assert change.flags() == ["--workers", "3", "--batch-size", "5"]
    assert change.settings() == ["loader.num_workers=3", "train.batch_size=5"]
    threads = PlainProgram("threads", other_workers=None, other_batch_size=32)
    assert changes(threads, Path("data"), SlowStorage(Path("a.so")))[1].settings() == ["train.batch_size=32"]


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


@needs_strace
def test_only_reads_below_the_folder_are_slowed(tmp_path: Path) -> None:
    data, other = tmp_path / "data", tmp_path / "database"
    for folder in (data, other):
        folder.mkdir()
        (folder / "file").write_bytes(bytes(1 << 20))
    try:
        slow = SlowStorage.compiled(tmp_path)
    except Unavailable as error:
        pytest.skip(str(error))
    variables = slow.variables(data, call_ms=0.01, mib_ms=0.0)
    for folder, sleeps in ((data, 16), (other, 0)):
        log = tmp_path / f"{folder.name}.log"
        copy = ["dd", f"if={folder / 'file'}", f"of={tmp_path / 'copy'}", "bs=64k"]
        trace = ["strace", "-f", "-e", "trace=clock_nanosleep", "-o", str(log)]
        preload = [word for item in variables.items() for word in ("-E", "=".join(item))]
        subprocess.run([*trace, *preload, *copy], check=True, capture_output=True, env=os.environ)
        assert log.read_text().count("clock_nanosleep(") == sleeps
        assert (tmp_path / "copy").read_bytes() == bytes(1 << 20)


def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(Unavailable, match="no such thing"):
        completed(["sh", "-c", "echo no such thing >&2; exit 3"])
