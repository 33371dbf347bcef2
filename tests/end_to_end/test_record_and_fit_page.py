"""Every command of docs/record_and_fit.md works, and the page names the files and words that fit writes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest
import yaml
from page_commands import run_page
from ranks import REPO

from dlio_torch.fit.finding import Confidence

PAGE = (REPO / "docs/record_and_fit.md").read_text(encoding="utf-8")


def test_every_confidence_is_explained() -> None:
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \|$", PAGE.partition("### Confidence")[2], re.MULTILINE)
    assert tuple(rows[:3]) == get_args(Confidence)


@pytest.mark.ranks
@pytest.mark.timeout(600)
def test_the_commands_make_the_files_of_the_page(tmp_path: Path) -> None:
    printed = run_page(PAGE, tmp_path, 500).stdout
    assert re.search(r"^(Not alike|Alike in all components)[.,] ", printed, re.MULTILINE)
    fitted = yaml.safe_load((tmp_path / "mine/recipe.yaml").read_text(encoding="utf-8"))["train"]
    assert fitted["epochs"] == 2  # of a loader that is made again for each epoch, and no evaluation
    assert not [option for option in fitted if option.startswith("eval")]
    written = {path.name for path in (tmp_path / "mine").iterdir()}
    named = set(re.findall(r"`([\w.]+)/?`", PAGE.partition("| file | content |")[2].partition("\n\n")[0]))
    assert written - {"dlio_torch.json"} <= named
    assert {path.name for path in (tmp_path / "shared").iterdir()} == written - {"emulation", "emulation.log"}
    score = json.loads((tmp_path / "mine/score.json").read_text(encoding="utf-8"))
    assert {"worst", "component", "rerun_noise", "agrees", "unexplained", "components"} <= score.keys()
    assert score["rerun_noise"] is not None
