"""The context of a run: how much it prints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlio_torch.config.compose import Detail, compose
from dlio_torch.dist.base import SingleCommunicator
from dlio_torch.execution.context import RunContext
from dlio_torch.execution.outcome import RunOutcome


@pytest.mark.parametrize(("detail", "prints"), [("quiet", False), ("normal", True), ("verbose", True)])
def test_a_quiet_run_prints_no_notes_and_no_progress(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, detail: Detail, prints: bool
) -> None:
    monkeypatch.setattr("dlio_torch.report.progress._LINE_NS", 0)
    composed = replace(compose(["recipe=minimal"], environ={}), detail=detail)
    comm = SingleCommunicator()
    context = RunContext.create(composed, comm, RunOutcome(comm))
    assert context.detail == detail
    context.note("data: written")
    with context.progress.task("training", "steps") as update:
        update(1, 2)
    said = capsys.readouterr()
    assert said.out == ""
    assert ("data: written\n" in said.err) == prints
    assert ("training: 1 of 2 steps" in said.err) == prints


def test_the_configuration_does_not_depend_on_the_detail() -> None:
    composed = compose(["recipe=minimal"], environ={})
    assert composed.detail == "normal"
    assert composed.config == replace(composed, detail="quiet").config
