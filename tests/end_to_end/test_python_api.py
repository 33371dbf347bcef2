"""The examples of the Python interface's page and of its notebook work, in a new folder each."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from ranks import REPO, clean_environ
from strace import need_strace

PAGE = REPO / "docs" / "python_api.md"
NOTEBOOK = REPO / "docs" / "python_api.ipynb"
EXECUTE = """
import sys
import nbclient, nbformat
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=100, resources={"metadata": {"path": "."}}).execute()
for cell in notebook.cells:
    for output in cell.get("outputs", ()):
        print(output.get("text") or output.get("data", {}).get("text/plain", ""))
"""


def run(program: str, folder: Path, *arguments: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder, env=clean_environ(), capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_examples_of_the_page_work(tmp_path: Path) -> None:
    need_strace()
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 7
    text = "".join(blocks)
    for name in ("compose", "dataset", "datapipe", "loader", "emulated_step", "run", "iotrace.record", "load_run"):
        assert f"dlio_torch.{name}(" in text
    (tmp_path / "page.py").write_text(text)
    printed = run("import runpy; runpy.run_path('page.py', run_name='__main__')", tmp_path)
    first, samples, *_, last = printed.strip().splitlines()
    assert (first, samples) == ("4 8", "32")
    assert "did you mean loader.num_workers?" in last
    assert (tmp_path / "mine" / "summary.json").exists()


def test_the_notebook_runs(tmp_path: Path) -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)
    printed = run(EXECUTE, tmp_path, NOTEBOOK)
    assert "events.h5: hdf5" in printed
    assert "{'images': (32, 32), 'labels': ()}" in printed
    assert "\n48\n" in printed
    assert "did you mean loader.num_workers?" in printed
    assert list(tmp_path.iterdir()) == []
