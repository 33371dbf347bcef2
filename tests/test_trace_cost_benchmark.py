import json
import subprocess
import sys
from pathlib import Path

import pytest

from dlio_torch.native.build import find_compiler

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler for the benchmark's loop")
def test_benchmark_reports_every_tool_that_is_here_and_every_one_that_is_not(tmp_path):
    result = tmp_path / "result.json"
    command = [sys.executable, "-m", "benchmarks.trace_cost", "--quick", "--recipe", "minimal", "--json", str(result)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=True)
    record = json.loads(result.read_text())
    calls = {row["tool"]: row for row in record["calls"]}
    runs = {row["tool"]: row for row in record["runs"]}
    assert {"none", "dlio_torch"} <= set(calls)
    assert list(calls) == list(runs)
    assert set(calls) | set(record["missing"]) == {"none", "dlio_torch", "strace", "Darshan DXT", "DFTracer"}
    assert not set(calls) & set(record["missing"])
    # Each figure stands beside what was recorded for it: a tool that misses calls costs less.
    assert calls["dlio_torch"]["share"] == 1.0
    assert runs["dlio_torch"]["reads"] > 100
    if "strace" in runs:
        assert runs["strace"]["reads"] == runs["dlio_torch"]["reads"]
    for rows in (calls, runs):
        assert all((row["recorded_bytes"] > 0) == (name != "none") for name, row in rows.items())
    assert set(calls["none"]["ratios"]) == set(runs["none"]["steps_ratios"]) == {1.0}
    assert done.stdout.count("\n| minimal |") == len(runs)
    assert all(f"\n{name}: not installed; " in done.stdout for name in record["missing"])
