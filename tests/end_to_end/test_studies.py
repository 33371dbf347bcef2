"""The shipped studies parse, compose and name their sources; one study for real."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from ranks import REPO

from benchmarks.published_studies import measure, pages, read
from dlio_torch.commands import sweep
from dlio_torch.commands.command_line import Command
from dlio_torch.config.yamlfile import parse_document
from dlio_torch.dist.launcher import Launch
from dlio_torch.study.metrics import FETCH, FETCH_SHARE, THROUGHPUT, metric
from dlio_torch.study.model import grid
from dlio_torch.study.published.publication import parse as parse_published
from dlio_torch.study.resolve import resolve
from dlio_torch.study.study_arguments import parse

PAGES = REPO / "docs/published_studies"
STUDIES = sorted(path.stem for path in (REPO / "conf/study").glob("*.yaml"))


@pytest.mark.parametrize("name", STUDIES)
def test_a_shipped_study_composes_at_every_point_and_names_its_sources(name: str) -> None:
    study, _ = parse([f"study={name}"])
    assert study.title
    assert study.description
    assert study.sources
    assert all(metric(figure).definition for figure in study.figures)  # people read words
    resolved, left_out = resolve(study)
    assert len(resolved) == len(grid(study)) > 1
    assert left_out == []
    tiny, _ = parse([f"study={name}", "scale=tiny"])
    assert 1 < len(grid(tiny)) <= 4


@pytest.mark.parametrize("name", STUDIES)
def test_what_a_shipped_study_publishes_fits_its_axes_and_figures(name: str) -> None:
    study, _ = parse([f"study={name}"])
    said = parse_published(parse_document(study.definition, name))
    values = {axis.key: axis.values for axis in study.axes}
    assert said.claims
    assert said.remarks
    for series in said.series:
        assert {value for value, _ in series.points} <= {*values[series.axis], "32", "64"}, series.title
        assert series.measured in study.figures
        what, ours = series.quantity, metric(series.measured)
        assert (what, ours) in {
            ("job time", THROUGHPUT),
            ("I/O time", FETCH),
            ("read time / training time", FETCH_SHARE),
        }
        assert ours.better == series.measured_better
        assert series.unit == {"read time / training time": "share"}.get(what, "s")
    for claim in said.claims:
        trend = claim.trend
        assert {trend.value, trend.start, trend.end} - {""} <= set(values[claim.axis]), claim.text
        assert claim.measured in study.figures
        for key, value in claim.other_axes.items():
            assert value in values[key]


@pytest.mark.parametrize("name", STUDIES)
def test_the_page_of_a_study_has_each_published_sentence(name: str) -> None:
    study, _ = parse([f"study={name}"])
    said = parse_published(parse_document(study.definition, name))
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {study.title}\n")
    assert f"`python -m dlio_torch sweep study={name} repeats=" in page
    rows = [row.split(" | ") for row in page.splitlines() if " | **" in row]
    assert len(rows) >= len(said.claims) + len(said.series)
    assert {row[1].strip("*") for row in rows} <= {"agrees", "partly", "contradicts", "within noise"}
    assert {claim.text for claim in said.claims} <= {row[0].removeprefix("| ") for row in rows}
    assert all(" ".join(remark.split()) in " ".join(page.split()) for remark in said.remarks)


def test_the_overview_counts_the_verdicts_of_each_page() -> None:
    overview = (PAGES / "index.md").read_text(encoding="utf-8")
    table = overview.partition("## Verdicts\n\n")[2].splitlines()
    heads, _, *rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table]
    assert [row[0] for row in rows] == [f"[{name}]({name}.md)" for name in STUDIES]
    for name, row in zip(STUDIES, rows, strict=True):
        text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
        assert row[1:] == [str(text.count(f" | **{verdict}** | ") or "") for verdict in heads[1:]]


# --- for real ------------------------------------------------------------------------------------


@pytest.mark.ranks
def test_a_shipped_study_runs_and_its_page_says_what_was_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    short = ("dataset.samples_per_file=512", "train.steps=100", "prefetched=0 %,70 %")
    settings = ("study=prefetch_cache", "scale=tiny", "repeats=1", *short, "output=out")
    assert sweep.main(Command(verb="sweep", settings=settings), Launch("single", 0, 1, 0)) == 0
    points = pd.read_csv(tmp_path / "out" / "table.csv")
    assert points["prefetched"].tolist() == ["0 %", "70 %"]
    assert points["n"].tolist() == [1, 1]
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "prefetching 70 % improves the I/O time by 4.42x" in page
    assert "2 published statements checked: 2 cannot be told." in page
    assert "wait for data (step.fetch_s.mean) = mean time of next()" in page
    assert "From 0 % to 70 % the figure gets" in page
    assert "(wait for data)" in page
    assert "A buffer between a reader and a trainer hides" in page
    assert measure("prefetch_cache", "tiny", tmp_path / "out", tmp_path / "data", None) == ""  # not run again
    written = pages([read("prefetch_cache", tmp_path / "out")])
    assert written.keys() == {"index.md", "prefetch_cache.md"}
    assert "| [prefetch_cache](prefetch_cache.md) |  |  |  |  | 2 |  |\n" in written["index.md"]
    text = written["prefetch_cache.md"]
    assert "| prefetching 70 % improves the I/O time by 4.42x | **cannot be told** | From 0 % to 70 %" in text
    assert [line.count("|") for line in text.splitlines() if line.startswith(("| 0 % |", "| 70 % |"))] == [7, 7]
