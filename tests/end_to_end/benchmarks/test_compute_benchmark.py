import json
import subprocess
import sys

from ranks import REPO


def test_benchmark_reports_every_case(tmp_path):
    command = [sys.executable, "-m", "benchmarks.compute_error", "--quick", "--output", str(tmp_path)]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=200, check=True)
    tables = json.loads((tmp_path / "compute_error.json").read_text())["tables"]
    cases = {(row["way"], row["busy threads"], row["asked (ms)"]) for row in tables["errors"]}
    assert len(cases) == len(tables["errors"]) == 4 * 3 * 3
    assert all(row["work median (us)"] >= 0 for row in tables["errors"])
    # The caller comes back after the work has ended.
    assert all(row["caller median (us)"] >= row["work median (us)"] for row in tables["errors"])
    ratios = {(row["main thread"], row["busy threads"]): row["of sleep"] for row in tables["rates"]}
    assert ratios[("sleep", 1)] == ratios[("sleep", 2)] == [1.0, 1.0, 1.0]
    assert len(ratios) == 10
    assert done.stdout.count("\n| sleep |") == 9 + 2
