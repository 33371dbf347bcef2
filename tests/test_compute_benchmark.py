import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_benchmark_reports_every_case(tmp_path):
    result = tmp_path / "result.json"
    command = [sys.executable, "-m", "benchmarks.compute_error", "--quick", "--json", str(result)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=True)
    record = json.loads(result.read_text())
    cases = {(row["way"], row["busy_threads"], row["request_ms"]) for row in record["errors"]}
    assert len(cases) == len(record["errors"]) == 4 * 3 * 3
    assert all(row["work_median_us"] >= 0 for row in record["errors"])
    # The caller comes back after the work has ended.
    assert all(row["caller_median_us"] >= row["work_median_us"] for row in record["errors"])
    ratios = {(row["way"], row["busy_threads"]): row["ratio_to_sleep"] for row in record["rates"]}
    assert ratios[("sleep", 1)] == ratios[("sleep", 2)] == 1.0
    assert len(ratios) == 10
    assert done.stdout.count("\n| sleep |") == 9 + 2
