"""Recordings from which no recipe follows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fitted_trainings import passes, recorded

from dlio_torch.errors import ConfigError, DataError
from dlio_torch.fit.unusable_recordings import refuse_incomplete, refuse_other_program, refuse_without_training
from dlio_torch.iotrace.events.torch_calls import read_torch_calls

NO_TORCH = read_torch_calls(Path("/nowhere"))


def test_a_rerun_reads_the_same_files() -> None:
    files = [f"/d/{number}" for number in range(10)]
    refuse_other_program(Path("a"), files, Path("b"), files[:6])  # of an epoch that was cut
    with pytest.raises(ConfigError, match=r"--rerun b .*: not a recording of the program of a: of 10 .* both read 4"):
        refuse_other_program(Path("a"), files, Path("b"), files[:4])


def test_a_run_of_this_tool_has_a_recipe() -> None:
    with pytest.raises(DataError, match=r"is a run of dlio_torch, whose recipe is known: x/config\.yaml"):
        refuse_incomplete(replace(recorded(passes(["/d/a"])), kind="run"))


def test_programs_without_torch_train_if_they_read_twice() -> None:
    once, twice = (recorded(passes(["/d/a"], count)) for count in (1, 2))
    refuse_without_training(twice, NO_TORCH, twice.io)
    with pytest.raises(DataError, match="no training in it"):
        refuse_without_training(once, NO_TORCH, once.io)


def test_logs_of_other_tools_know_nothing_of_torch() -> None:
    log = replace(recorded(passes(["/d/a"], 1)), kind="darshan")
    refuse_without_training(log, NO_TORCH, log.io)
