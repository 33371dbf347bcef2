"""Every command of docs/checkpoints.md works, and the page says what a plan says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from page_commands import run_page
from ranks import REPO

from dlio_torch.checkpoint.job.saved_state import bytes_per_parameter, job_bytes, largest_rank_bytes
from dlio_torch.config.compose import compose
from dlio_torch.units import format_size

PAGE = (REPO / "docs/checkpoints.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([\d,]+): [^|]+ \| (\d+) \| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)


@pytest.mark.timeout(600)
def test_the_commands_print_the_lines_of_the_page(tmp_path: Path) -> None:
    printed = run_page(PAGE, tmp_path, 560).stdout
    (shown,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    for line in shown.splitlines():
        assert line in printed
    assert "model: 4 layers" in printed  # the second command


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_table_has_the_jobs_of_the_recipes(row: tuple[str, ...]) -> None:
    recipe, ranks, size, state, largest = row
    config = compose([f"recipe={recipe}", "scale=paper"]).config
    model, parallel = config.model, config.parallel
    assert int(ranks.replace(",", "")) == parallel.world_size == config.system.world_size
    assert int(size) == bytes_per_parameter(model)
    assert (state, largest) == (format_size(job_bytes(model)), format_size(largest_rank_bytes(model, parallel)))


def test_the_table_has_every_recipe_with_a_model() -> None:
    names = {path.stem for path in (REPO / "recipes").glob("*.yaml") if "\nmodel:\n" in path.read_text("utf-8")}
    assert {row[0] for row in ROWS} == names
    assert len(names) == 8
