import json
import subprocess
import sys

import pytest
from ranks import REPO

from benchmarks.advice_check import Outcome, Run, row, take, verdict


def test_benchmark_follows_the_advice_of_its_runs(tmp_path):
    command = [
        sys.executable, "-m", "benchmarks", "advice_check", "--rounds", "1", "--only", "sleeping, no worker",
        "--directory", str(tmp_path), "--output", str(tmp_path / "results"),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=200, check=True)
    record = json.loads((tmp_path / "results" / "advice_check.json").read_text())
    [case] = record["tables"]["advice_check"]
    runs = record["tables"]["runs"]
    assert case["case"] == "sleeping, no worker"
    assert [run["advised"] for run in runs][:1] == ["no"]
    # On a machine whose cores others use there may be no advice.
    assert len(runs) == (1 if case["advised (runs)"] == "none" else 2)
    assert done.stdout.count("\n| sleeping, no worker |") == 1 + len(runs)


def outcome(low, high, after):
    found = Outcome("a case", ("loader.num_workers=2",))
    found.predicted = [{"waits_low": 0.1, "waits_high": None, "gain_low": low, "gain_high": high}]
    found.before = [Run(0.5, rate, 0.02, 0.01) for rate in (99, 100, 101)]
    found.after = [Run(0.2, rate, 0.02, 0.01) for rate in after]
    return found


@pytest.mark.parametrize(
    ("low", "high", "after", "said"),
    [
        (0.4, 0.5, [180], "right"),  # 1.67 to 2 times as much is predicted
        (0.4, 0.5, [160], "worse"),
        (0.4, 0.5, [140, 166, 190], "right"),  # within noise
        (0.4, 0.5, [210], "better"),
        (None, 0.5, [110], "within"),
        (None, 0.5, [210], "better"),
        (None, None, [210], "not predicted"),
    ],
)
def test_a_prediction_is_held_against_the_medians(low, high, after, said):
    found = outcome(low, high, after)
    assert verdict(found)[2] == said
    cells = ["a case", "50 %", "1 %", "+2 %", "loader.num_workers=2 (1 of 3)", "10 % at best", "20 %"]
    assert list(row(found).values())[:7] == cells


def test_the_first_advice_is_followed_and_that_of_later_runs_counted():
    def advice(value):
        predicted = {"figure": "shares.fetch", "low": 0.1, "high": 0.2, "gain_low": 0.4, "gain_high": 0.5}
        item = {"rule": "more_readers", "key": "loader.num_workers", "value": value, "also": [], "text": "do that",
                "confidence": "high", "predicted": predicted}  # fmt: skip
        return {"conclusion": "It waits.", "withheld": ["no"], "items": [item]}

    found = Outcome("a case")
    for value in ("2", "3", "2"):
        take(found, advice(value))
    assert found.advised == ("loader.num_workers=2",)
    assert found.texts == ["do that (high confidence)", "It waits. no", "do that (high confidence)"]
    assert len(found.predicted) == 2
