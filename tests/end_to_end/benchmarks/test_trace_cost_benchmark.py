import json
import subprocess
import sys

import pytest
from ranks import REPO

from dlio_torch.native.build import find_compiler


@pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler for the benchmark's loop")
def test_benchmark_reports_every_tool_that_is_here_and_every_one_that_is_not(tmp_path):
    command = [
        sys.executable, "-m", "benchmarks.trace_cost", "--quick", "--recipe", "minimal", "--output", str(tmp_path),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=200, check=True)
    record = json.loads((tmp_path / "trace_cost.json").read_text())
    calls = {row["tool"]: row for row in record["tables"]["calls"]}
    runs = {row["tool"]: row for row in record["tables"]["recipes"]}
    assert {"none", "dlio_torch"} <= set(calls)
    assert list(calls) == list(runs)
    missing = {one["way"] for one in record["missing"]}
    assert set(calls) | missing == {"none", "dlio_torch", "strace", "Darshan DXT", "DFTracer"}
    assert not set(calls) & missing
    # Each figure stands beside what was recorded for it: a tool that misses calls costs less.
    assert calls["dlio_torch"]["share of reads recorded"] == 1.0
    assert runs["dlio_torch"]["reads"] > 20
    if "strace" in runs:
        assert runs["strace"]["reads"] == runs["dlio_torch"]["reads"]
    loader = {row["recorded"]: row for row in record["tables"]["loader"]}
    assert list(loader) == ["none", "calls", "calls and loader"]
    assert loader["calls and loader"]["log (bytes)"] > loader["calls"]["log (bytes)"] > 0
    for rows in (calls, runs):
        assert all((row["log (bytes)"] > 0) == (name != "none") for name, row in rows.items())
    assert calls["none"]["ratio"] == runs["none"]["ratio"] == [1.0, 1.0, 1.0]
    assert done.stdout.count("\n| minimal |") == len(runs)
    assert all(f"\n- {name}: not measured; " in done.stdout for name in missing)
