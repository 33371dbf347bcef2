"""Pages in a browser: nothing overflows, the first screen holds the answer, and the script reads and zooms."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from io_events import Call, recording, table
from optional_parts import chromium

from dlio_torch.report.html import report_run, write_report

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")
pytestmark = pytest.mark.needs("chromium")

_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--virtual-time-budget=5000", "--dump-dom"),
)
_FIRST = """
const problems = [];
addEventListener("error", event => problems.push(event.message));
addEventListener("securitypolicyviolation", event => problems.push(`refused: ${event.violatedDirective}`));
"""
_LAST = """
const overview = document.querySelector("#overview"), root = document.documentElement;
const facts = {
  width: innerWidth, needed: root.scrollWidth,
  wide: [...document.querySelectorAll("body *")].filter(element => !element.closest("svg, .table") &&
    element.getBoundingClientRect().right > innerWidth + 1).map(element => element.outerHTML.slice(0, 80)),
  tiles: overview.querySelectorAll(".tiles > div").length,
  columns: new Set([...overview.querySelectorAll(".tiles > div")].map(tile => tile.getBoundingClientRect().left)).size,
  picture: overview.querySelector("figure svg")?.getBoundingClientRect().bottom,
  changes: overview.querySelector(".changes")?.getBoundingClientRect().bottom,
  menu: document.querySelector("nav").getBoundingClientRect().top,
};
const svg = document.querySelector('svg[data-plots*="lanes-plot"]');
if (svg) {
  const matrix = svg.getScreenCTM(), [x, y, width, height] = JSON.parse(svg.dataset.plots)[0].box;
  const point = share => ({ clientX: (x + share * width) * matrix.a + matrix.e,
    clientY: (y + height / 2) * matrix.d + matrix.f });
  const send = (type, share) => svg.dispatchEvent(new PointerEvent(type, { bubbles: true, ...point(share) }));
  const reset = document.querySelector("#reset"), label = document.querySelector("#moment");
  const boxes = () => [...document.querySelectorAll("svg[data-plots] svg")].map(
    element => element.getAttribute("viewBox").split(" ").map(Number));
  send("pointermove", 0.5);
  facts.moment = label.innerText;
  facts.lines = [...document.querySelectorAll("line.moment")].filter(
    line => line.getAttribute("visibility") === "visible").length;
  facts.plots = [...document.querySelectorAll("svg[data-plots]")].flatMap(svg => JSON.parse(svg.dataset.plots)).length;
  facts.hidden_before = reset.hidden;
  send("pointerdown", 0.25); send("pointermove", 0.6); send("pointerup", 0.75);
  facts.zoomed = boxes();
  facts.hidden_zoomed = reset.hidden;
  document.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
  facts.hidden_after = reset.hidden;
  facts.whole = boxes();
  send("pointerdown", 0.25); send("pointerup", 0.75);
  reset.focus();
  facts.focused = document.activeElement === reset;
  reset.click();
  facts.hidden_last = reset.hidden;
}
facts.problems = problems;
parent.postMessage(facts, "*");
"""
_OUTER = """<!DOCTYPE html><pre id="facts"></pre>{frames}<script>
const facts = {{}}, frames = [...document.querySelectorAll("iframe")];
addEventListener("message", event => {{
  facts[frames.find(frame => frame.contentWindow === event.source).id] = event.data;
  document.querySelector("#facts").textContent = JSON.stringify(facts);
}});
</script>"""


def facts_of(pages: Mapping[str, Path], folder: Path) -> dict[str, dict[str, Any]]:
    """What a browser of two sizes finds in pages, whose policy for scripts stays in force; by ``name-width``."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
                      for text in (_FIRST, _LAST))  # fmt: skip
    frames = []
    for name, page in pages.items():
        source = page.read_text(encoding="utf-8").replace("script-src ", f"script-src {hashes} ", 1)
        source = source.replace("<style>", f"<script>{_FIRST}</script><style>", 1)
        (folder / f"{name}.html").write_text(source.replace("</body>", f"<script>{_LAST}</script></body>"), "utf-8")
        # A window is at least 500 wide, a frame is not.
        frames += [f'<iframe id="{name}-{width}" src="{name}.html" width="{width}" height="{height}" style="border:0">'
                   "</iframe>" for width, height in ((1366, 900), (390, 844))]  # fmt: skip
    outer = folder / "outer.html"
    outer.write_text(_OUTER.format(frames="".join(frames)), encoding="utf-8")
    program = chromium()
    assert program is not None
    where = (f"--user-data-dir={folder / 'profile'}", "--window-size=1600,1000", outer.as_uri())
    done = subprocess.run([program, *_FLAGS, *where], capture_output=True, text=True, timeout=120, check=True)
    match = re.search(r'<pre id="facts">(.*?)</pre>', done.stdout, re.DOTALL)
    assert match is not None, done.stderr[-2000:]
    facts: dict[str, dict[str, Any]] = json.loads(html.unescape(match[1]))
    assert len(facts) == len(frames)
    return facts


def run_page(folder: Path) -> Path:
    options = [f"dataset.root={folder}/data", f"output.dir={folder}/run", "output.progress=false", "trace.posix=true"]
    command = [sys.executable, "-m", "dlio_torch", "recipe=minimal", "dataset.samples_per_file=32", *options]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return report_run(folder / "run")


def recording_page(folder: Path) -> Path:
    """The page about small reads of many files with long names, by two ranks."""
    files = [f"/data/{'a_long_folder_name/' * 6}file_{number}.bin" for number in range(40)]
    calls = [
        Call(
            "read", number * 4000 % 79190, 100, number * 10**6, number * 10**6 + 500_000, files[number % 40], number % 2
        )
        for number in range(400)
    ]
    return write_report(recording(table(calls), runtime_s=1.0), folder / "recording.html")


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("pages")
    return facts_of({"run": run_page(folder), "recording": recording_page(folder)}, folder)


@pytest.mark.parametrize("page", ["run-1366", "run-390", "recording-1366", "recording-390"])
def test_nothing_overflows_and_no_script_fails(page: str, facts: dict[str, dict[str, Any]]) -> None:
    seen, width = facts[page], int(page.rpartition("-")[2])
    assert seen["problems"] == []
    assert seen["needed"] <= seen["width"] == width
    assert seen["wide"] == []
    assert (seen["tiles"], seen["columns"]) == (4, 4 if width > 1000 else 2)


@pytest.mark.parametrize("page", ["run-1366", "recording-1366"])
def test_the_first_screen_holds_picture_figures_and_changes(page: str, facts: dict[str, dict[str, Any]]) -> None:
    seen = facts[page]
    assert seen["picture"] < seen["changes"] <= 900
    assert seen["menu"] >= seen["changes"]


def test_the_script_marks_a_moment_in_all_figures_and_zooms_them(facts: dict[str, dict[str, Any]]) -> None:
    seen = facts["run-1366"]
    assert re.match(r"[\d.]+ m?s", seen["moment"])
    assert seen["lines"] == seen["plots"] >= 4
    # A drag over half of one time axis zooms every figure; Escape and the button show the whole again.
    assert seen["hidden_before"] is seen["hidden_after"] is seen["hidden_last"] is True
    assert seen["hidden_zoomed"] is False
    assert len(seen["zoomed"]) == seen["plots"]
    ratios = [near[2] / far[2] for near, far in zip(seen["zoomed"], seen["whole"], strict=True)]
    assert max(ratios) < 1
    assert sum(0.49 < ratio < 0.51 for ratio in ratios) >= 2  # those with a plain time axis
    assert seen["focused"] is True
