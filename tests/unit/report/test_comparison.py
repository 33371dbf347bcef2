"""A comparison on the terminal and as JSON."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from io_events import Call, recording, table

from dlio_torch.iotrace.fidelity.compare_recordings import compare
from dlio_torch.iotrace.fidelity.components import Comparison
from dlio_torch.report.comparison_text import print_comparison, to_json


def one(size: int, rank: int = 0) -> list[Call]:
    return [Call(offset=size * place, bytes=size, start=place, end=place + 1, rank=rank) for place in range(200)]


@pytest.fixture
def comparison() -> Comparison:
    a = replace(recording(table(one(10) + one(10, rank=1))), path=Path("/runs/a"), notes=("it was killed",))
    b = replace(recording(table(one(20) + one(20, rank=1))), path=Path("/runs/[b]"))
    return compare(a, b, per_rank=True)


def printed(comparison: Comparison, monkeypatch: pytest.MonkeyPatch, columns: int) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = io.StringIO()
    print_comparison(comparison, stream)
    return stream.getvalue().splitlines()


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_everything_is_said_and_no_line_is_too_wide(
    columns: int, comparison: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = printed(comparison, monkeypatch, columns)
    assert max(map(len, lines)) <= columns
    text = " ".join(" ".join(lines).split())
    assert "A: /runs/a B: /runs/[b]" in text
    assert (
        "files paired: 1 by path; distances are medians over 2 pairs of ranks; noise is the distance between ranks"
        in text
    )
    assert "A: it was killed" in text
    assert "overlap, exposed I/O: A contains no record of compute" in text
    assert "cosine similarity: 0." in text
    assert "options that bring B closer to A:" in text
    assert "read bytes lower train.epochs or train.steps" in text
    assert text.endswith(comparison.headline)
    assert "Not alike: read bytes 0.5 beyond the noise" in text


def test_worst_first(comparison: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(comparison, monkeypatch, 100)
    rows = [line.split() for line in lines if " NO " in line or " yes " in line]
    assert rows[0][:7] == ["read", "bytes", "0.500", "0.000", "0.500", "0.05", "NO"]
    verdicts = ["NO" in row for row in rows]
    assert verdicts == sorted(verdicts, reverse=True)
    assert len(rows) == len(comparison.components)


def test_json(comparison: Comparison) -> None:
    found = json.loads(json.dumps(to_json(comparison), allow_nan=False))
    assert found["schema"] == "dlio_torch.comparison"
    assert found["alike"] is False
    assert found["headline"] == comparison.headline
    first = found["components"][0]
    assert (first["name"], first["distance"], first["alike"]) == ("read bytes", 0.5, False)
    assert first["worst_pair"] == [0, 0, 0.5]
    assert first["values"] == [2000, 4000]
    assert (first["remedy"]["option"], first["remedy"]["direction"]) == ("train.epochs", "lower")
    assert [one["remedy"] is None for one in found["components"]] == [one["alike"] for one in found["components"]]
    assert found["cosine"]["factors"][0][0] == "I/O time (union), s"


def test_utilisations_of_runs_stand_side_by_side(comparison: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    utilisations = {"a": {"au": 0.5, "au_limit_of_loader": 0.9}, "b": {"au": 0.75}}
    monkeypatch.setenv("COLUMNS", "100")
    stream = io.StringIO()
    print_comparison(comparison, stream, utilisations)
    rows = [line.split() for line in stream.getvalue().splitlines()]
    assert ["accelerator", "utilisation", "50.0", "%", "75.0", "%"] in rows
    assert ["limit", "of", "the", "loader", "90.0", "%", "-"] in rows
    assert "limit of the storage" not in stream.getvalue()
    assert to_json(comparison, utilisations)["utilisation"] == utilisations
    assert "accelerator utilisation" not in "".join(printed(comparison, monkeypatch, 100))


def test_figures_on_checkpoints_stand_side_by_side(comparison: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = {"a": {"checkpoints.save.durable_s.mean": 0.5}, "b": {"checkpoints.save.durable_s.mean": 1.0}}
    monkeypatch.setenv("COLUMNS", "100")
    stream = io.StringIO()
    print_comparison(comparison, stream, figures=figures)
    assert ["checkpoints.save.durable_s", "500", "ms", "1", "s", "2"] in [
        line.split() for line in stream.getvalue().splitlines()
    ]
    [pair] = to_json(comparison, figures=figures)["figures"]
    assert (pair["name"], pair["unit"], pair["ratio"]) == ("checkpoints.save.durable_s.mean", "s", 2.0)
    assert to_json(comparison)["figures"] == []
