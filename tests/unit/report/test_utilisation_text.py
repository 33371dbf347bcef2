"""Limits of loader and storage in the verdict and in the tables; unknown limits are not mentioned in the verdict."""

from __future__ import annotations

from typing import Any

import pytest
from run_summaries import COLD, printed, summary_of

from dlio_torch.report.run_verdict import verdict


def limits(
    loader: float | None, storage: float | None, why: str | None = None, hint: str | None = None
) -> dict[str, Any]:
    known = {"mean": loader, "min": loader, "ci95": None, "how": "90 steps"}
    return {
        "au_limit_of_loader": {**known, "why": why, "hint": hint},
        "au_of_storage": {"mean": storage, "min": storage, "ci95": None, "source": "spans", "why": why},
    }


BOTH = "alone, the storage allows {} % utilisation and the loader {} %"
OF_LOADER = "with reads that cost nothing, the loader allows {} % utilisation"
OF_STORAGE = "with a loader that costs nothing, the storage allows {} % utilisation"
WAITS, SAVES = {"fetch": 10.0}, {"fetch": 1.0, "checkpoint": 9.0}  # utilisation 50 %


@pytest.mark.parametrize(
    ("times", "loader", "storage", "expected"),
    [
        (WAITS, 0.95, 0.55, f"Work on the storage: {BOTH.format('55.0', '95.0')}."),
        (WAITS, 0.75, 0.55, f"Work on the storage: {BOTH.format('55.0', '75.0')}."),
        (WAITS, 0.55, 0.95, f"Work on the loader: {BOTH.format('95.0', '55.0')}."),
        (WAITS, 0.55, None, f"Work on the loader: {OF_LOADER.format('55.0')}."),
        (WAITS, 0.95, None, f"Work on the storage, or on more reads in flight: {OF_LOADER.format('95.0')}."),
        (WAITS, None, 0.55, f"Work on the storage: {OF_STORAGE.format('55.0')}."),
        (WAITS, None, 0.95, f"Work on the loader: {OF_STORAGE.format('95.0')}."),
        (
            WAITS,
            0.95,
            0.90,
            "Work on how the loader overlaps the storage, with more workers or a longer prefetch: "
            f"{BOTH.format('90.0', '95.0')}, but not both at once.",
        ),
        (SAVES, 0.95, 0.90, f"Work on the trainer: {BOTH.format('90.0', '95.0')}."),
        (SAVES, None, 0.90, f"Work on the trainer: {OF_STORAGE.format('90.0')}."),
        ({"restart": 200.0}, 0.55, None, f"Work on the loader: {OF_LOADER.format('55.0')}."),
    ],
)
def test_the_verdict_names_the_part_to_work_on(
    times: dict[str, float], loader: float | None, storage: float | None, expected: str
) -> None:
    sentence = verdict(summary_of({**COLD, **limits(loader, storage)}, **times))
    assert sentence.endswith(f". {expected}")
    assert sentence.startswith(verdict(summary_of(COLD, **times)))


@pytest.mark.parametrize("extra", [{}, limits(None, None, "reasons")])
def test_limits_that_are_not_known_are_not_in_the_verdict(extra: dict[str, Any]) -> None:
    assert verdict(summary_of({**COLD, **extra}, fetch=10)) == verdict(summary_of(COLD, fetch=10))


def test_there_is_nothing_to_work_on_if_nothing_limits_the_run() -> None:
    assert "Work on" not in verdict(summary_of({**COLD, **limits(0.995, 0.995)}, fetch=0.05))


HINT = "set loader.limit=measure"


@pytest.mark.parametrize(
    ("extra", "verbose", "expected"),
    [
        (limits(0.95, None), False, "loader 95.0 %"),
        (limits(0.95, 0.9), False, "loader 95.0 %; storage 90.0 %"),
        (limits(0.95, 0.9), True, "loader 95.0 % (90 steps); storage 90.0 % (from recorded spans)"),
        (limits(None, None, "no such run", HINT), False, f"loader not measured ({HINT})"),
        (
            limits(None, None, "no such run", HINT),
            True,
            f"loader not measured (no such run; {HINT}); storage not measured (no such run)",
        ),
        (
            {"au_limit_of_loader": {"mean": None, "why": "no such run"}},  # of an older version
            True,
            "loader not measured (no such run)",
        ),
        (
            {"au_limit_of_loader": {"mean": 0.95, "ci95": [0.94, 0.96], "how": "90 steps"}},
            False,
            "loader 95.0 % ± 1.0 points",
        ),
    ],
)
def test_tables_show_the_limits_and_how_to_measure_them(
    extra: dict[str, Any], verbose: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = printed(summary_of({**COLD, **extra}, fetch=10), monkeypatch, columns=200, verbose=verbose)
    assert f"limits of utilisation    {expected}\n" in text


def test_limits_that_do_not_matter_have_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = {**COLD, **limits(None, None, "no such run", HINT)}
    assert "limits of" not in printed(summary_of(unknown, fetch=0.05), monkeypatch)  # nothing limits the run
    assert "limits of" not in printed(summary_of({**COLD, **limits(None, None, "no files")}, fetch=10), monkeypatch)
