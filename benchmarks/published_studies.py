"""Runs the studies of `conf/study`, and compares them with what the papers published.

Each study runs by `sweep study=NAME scale=laptop`, with its own repeats, one after another; use a machine on which
nothing else runs.  `--pages DIR` writes the results as Markdown, a page for each study and an overview:
`docs/published_studies` was written so.  `--keep DIR` keeps the studies; finished ones in it are not run again.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import textwrap
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import pandas as pd

from benchmarks.harness.command import alone
from benchmarks.harness.rounds import say
from benchmarks.harness.tables import Missing, Part, Row, Table
from dlio_torch.files.atomic_file import replace_text
from dlio_torch.study.metrics import metric
from dlio_torch.study.model import Study
from dlio_torch.study.page.page_data import StudyData
from dlio_torch.study.published.comparison import place
from dlio_torch.study.published.trends import Verdict
from dlio_torch.study.session import read_sweep
from dlio_torch.study.store import Store
from dlio_torch.study.values import NOT_MEASURED, span_text, text_of
from dlio_torch.units import counted

NAME = "published_studies"
STUDIES = Path(__file__).parents[1] / "conf" / "study"
VERDICTS: tuple[str, ...] = get_args(Verdict)
_QUICK = "prefetch_cache"
_OVERVIEW = "index.md"
_LINE = 120
_PREFACE = """\
# Published studies, repeated

Papers about the I/O of deep learning tune options and publish the gain. `conf/study/` holds {studies} of
theirs: the published points, the sentences, and the sources of both. These pages set the published results next to
those of one small machine. `python -m benchmarks published_studies --pages docs/published_studies` writes them;
[Studies](../studies.md#published-studies) says how to run one.

The papers measured on Theta with Lustre. Therefore only shapes can agree: the best setting, the beginning of a plateau,
the factor by which a change helps. A verdict says whether the measured points follow the published words beyond the
noise of the repeats:

| verdict | meaning |
|---|---|
| agrees | the trend is there, beyond noise |
| partly | the direction is right; the size, or a part of the way, is not |
| contradicts | the points say the opposite, beyond noise |
| within noise | the points do not differ enough to say anything |
| cannot be told | the points that decide were measured once |
| not measured | a point that the sentence needs is missing |

Two settings differ beyond noise only if their repeats do not overlap. The rate of a virtual machine's disk varies from
run to run, so that there a factor of 2 or 3 can lie within noise.

Where the verdict is not "agrees", the section "What to know about it" of a study gives the reason as far as it is
known. Reasons in the publications are labels that did not mean what they say, an analyser that counts short calls as
long ones, and scatter larger than the claimed gain. Reasons here are two cores instead of 64, and a local disk instead
of a busy parallel file system.

Measured on: {machine}.
"""


@dataclass(frozen=True)
class Finished:
    """A finished study.

    Attributes:
        name: of its file in `conf/study`.
        study: the study.
        page: content of its page, with the verdicts.
        points: one row a point, see :func:`dlio_torch.study.tables.points_table`.
    """

    name: str
    study: Study
    page: StudyData
    points: pd.DataFrame


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--studies", metavar="NAME,...", default="", help="studies to run; without it all of them")
    parser.add_argument("--scale", default="laptop", help="scale of the studies (laptop)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the studies in this folder, and use those in it")
    parser.add_argument("--pages", type=Path, metavar="DIR", help="write the results as Markdown pages to this folder")


def run(arguments: Namespace) -> Iterator[Part]:
    names = arguments.studies.split(",") if arguments.studies else sorted(path.stem for path in STUDIES.glob("*.yaml"))
    scale = "tiny" if arguments.quick else arguments.scale
    finished: list[Finished] = []
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        for name in [_QUICK] if arguments.quick else names:
            say(name)
            directory = (arguments.keep or Path(folder)) / name
            why = measure(name, scale, directory, Path(folder) / "data", arguments.rounds)
            if why:
                yield Missing(name, why)
                continue
            finished.append(read(name, directory))
            yield Table(NAME, list(verdict_rows(finished[-1])), "Published figures and sentences, and their verdicts.")
    if arguments.pages is not None and finished:
        arguments.pages.mkdir(parents=True, exist_ok=True)
        for name, text in pages(finished).items():
            replace_text(arguments.pages / name, text)


def measure(name: str, scale: str, directory: Path, data: Path, repeats: int | None) -> str:
    """Runs a study unless the directory holds it; returns why that failed, or ``""``."""
    if (directory / "table.csv").is_file():
        return ""
    options = [f"scale={scale}", f"output={directory}", f"dataset.root={data}", "output.progress=false"]
    options += [f"repeats={repeats}"] if repeats else []
    command = [sys.executable, "-m", "dlio_torch", "sweep", f"study={name}", *options, "--remove-data"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return "" if done.returncode == 0 else (done.stdout.strip().splitlines() or ["no message"])[-1]


def read(name: str, directory: Path) -> Finished:
    """Reads a study from its directory."""
    with Store.open(directory, write=False) as store:
        page, points = read_sweep(store)
        return Finished(name, store.study, page, points)


def verdict_rows(done: Finished) -> Iterator[Row]:
    """One row for each published figure and sentence."""
    for statement in done.page.statements:
        yield {"study": done.name, "published": statement.text, "verdict": statement.verdict, "why": statement.words}


def pages(finished: Sequence[Finished]) -> dict[str, str]:
    """The results of studies as Markdown: an overview, and a page for each study, by the names of their files."""
    environment = next((done.page.environment for done in finished if done.page.environment), {})
    preface = _PREFACE.format(studies=counted(len(finished), "study", "studies"), machine=place(environment))
    overview = "\n".join([preface, *_overview(finished), ""])
    return {_OVERVIEW: overview} | {f"{done.name}.md": "\n".join([*_page(done), ""]) for done in finished}


def _overview(finished: Sequence[Finished]) -> Iterator[str]:
    yield "## Verdicts\n"
    yield from _table(
        ("study", *VERDICTS),
        (
            (f"[{done.name}]({done.name}.md)", *(str(verdicts[verdict] or "") for verdict in VERDICTS))
            for done in finished
            for verdicts in [Counter(statement.verdict for statement in done.page.statements)]
        ),
    )


def _page(done: Finished) -> Iterator[str]:
    study, page = done.study, done.page
    yield f"# {study.title}\n"
    yield f"{_filled(page.description)}\n"
    yield f"Run by `python -m dlio_torch sweep study={done.name} repeats={study.repeats}`."
    yield f"[Published studies]({_OVERVIEW}) explains the verdicts.\n"
    yield "## Published and measured\n"
    yield from _table(("published", "verdict", "measured", "source"), _statements(page))
    yield "\n## What to know about it\n"
    yield from (f"{_filled(remark)}\n" for remark in page.remarks)
    yield "## Points\n"
    yield "Medians, and for the first figure the smallest and largest repeat:\n"
    yield from _table(_heads(study), _settings(done))
    yield from (f"\n{_filled(warning)}" for warning in page.warnings)


def _filled(text: str) -> str:
    return textwrap.fill(text, _LINE, break_long_words=False, break_on_hyphens=False)


def _statements(page: StudyData) -> Iterator[tuple[str, ...]]:
    for one in page.statements:
        yield one.text, f"**{one.verdict}**", one.words, one.source


def _heads(study: Study) -> tuple[str, ...]:
    axes = [axis.key for axis in study.axes]
    first, *others = study.figures
    return (*axes, metric(first).label, "smallest to largest", *(metric(figure).label for figure in others))


def _settings(done: Finished) -> Iterator[tuple[str, ...]]:
    for _, point in done.points.iterrows():
        texts = [str(point[axis.key]) for axis in done.study.axes]
        for number, figure in enumerate(done.study.figures):
            unit = metric(figure).unit
            texts.append(_text(point.get(figure), unit))
            if number == 0:
                texts.append(_range(point.get(f"{figure}.min"), point.get(f"{figure}.max"), unit))
        yield tuple(texts)


def _range(low: float | None, high: float | None, unit: str) -> str:
    if low is None or high is None or pd.isna(low) or pd.isna(high):
        return NOT_MEASURED
    return span_text(float(low), float(high), unit)


def _text(value: float | None, unit: str) -> str:
    return NOT_MEASURED if value is None or pd.isna(value) else text_of(float(value), unit)


def _table(heads: Sequence[str], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    yield _row(heads)
    yield _row(["---"] * len(heads))
    yield from map(_row, rows)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    raise SystemExit(alone(NAME))
