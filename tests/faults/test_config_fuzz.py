"""Anything on a command line is a run, or one line: a part of the cases of `python -m benchmarks fuzz`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import hypothesis
from hypothesis import given, settings
from ranks import REPO

from benchmarks.fuzzing.cases import Case, broken, huge, plausible
from benchmarks.fuzzing.texts import recipe
from dlio_torch.commands.command_line import parse
from dlio_torch.config.compose import compose
from dlio_torch.errors import LONGEST, ConfigError
from dlio_torch.formats.core.registry import available

DRAWN = {
    "database": None,
    "deadline": None,
    "derandomize": True,
    "suppress_health_check": list(hypothesis.HealthCheck),
}


def composes_or_is_refused(case: Case, folder: Path) -> None:
    for name, content in case.files.items():
        (folder / name).write_bytes(content)
    try:
        command = parse(case.argv)
        made = compose(command.settings, cwd=folder, environ={}, formats=available())
    except ConfigError as error:
        line, hint = str(error), error.hint
    else:
        line, hint = made.config.recipe, "none is needed"
    assert line.isprintable()
    assert len(line) <= LONGEST + 10
    assert hint, line


@settings(max_examples=150, **DRAWN)
@given(broken())
def test_mistakes_of_every_sort(case: Case) -> None:
    composes_or_is_refused(case, Path())


@settings(max_examples=80, **DRAWN)
@given(plausible())
def test_what_someone_might_try(case: Case) -> None:
    composes_or_is_refused(case, Path())


@settings(max_examples=80, **DRAWN)
@given(huge())
def test_numbers_that_no_machine_can_do(case: Case) -> None:
    composes_or_is_refused(case, Path())


def test_recipe_files(tmp_path: Path) -> None:
    @settings(max_examples=80, **DRAWN)
    @given(recipe())
    def check(case: Case) -> None:
        composes_or_is_refused(case, tmp_path)

    check()


def test_what_is_accepted_runs_and_what_is_not_is_refused_before_data_are_written(tmp_path: Path) -> None:
    """Each case in a process of its own; the benchmark ends with 1 where one of them is at fault."""
    kinds = "plausible,environment,verbs,dlio"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "fuzz", "--cases", "32", "--kinds", kinds, "--seed", "11",
         "--limit", "120", "--directory", tmp_path],
        cwd=REPO, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True,
        timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "| plausible | 8 |" in done.stdout
