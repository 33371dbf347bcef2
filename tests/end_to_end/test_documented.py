"""README, pages, messages, ``explain`` and the schema speak of the same things by the same names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from ranks import REPO

import dlio_torch
from benchmarks.harness.command import MEMBERS
from dlio_torch.analysis import summary_figures
from dlio_torch.commands.verbs import VERBS
from dlio_torch.config.convert import convert
from dlio_torch.config.fields import lookup, walk
from dlio_torch.config.resources import shipped
from dlio_torch.formats.core.registry import available
from dlio_torch.iotrace.fidelity.measures import LIMITS
from dlio_torch.study.verb_keys import KEYS

PACKAGE = Path(dlio_torch.__file__).parent
PAGES = [REPO / "README.md", *sorted((REPO / "docs").rglob("*.md"))]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
GROUPS = sorted({option.path[0] for option in walk() if len(option.path) > 1})
OPTION = re.compile(rf"(?<![\w./-])((?:{'|'.join(GROUPS)})(?:\.[a-z_][a-z_0-9]*)+)(?:=([\w.:/-]+))?")
# Names of files, and what summary.json holds beside numbers.
FILES = re.compile(r"\.(py|h5|json|gz|csv|yaml|ckpt|safetensors|bin|zarr|md|sum)$")
WORDS = ("train.why", "cache.warnings", "cache.fits_in_memory", "storage.cached", "storage.pattern")
OF_A_STUDY = ("train.bytes_per_s",)  # figures that its page makes of others
OF_DLIO = ("mode", "num_checkpoints_write", "time_between_checkpoints")  # of its workload files, group checkpoint
OF_DLIO_MODELS = ("model_datatype", "optimizer_datatype", "parallelism", "transformer")
EXAMPLES = {"train.py", "server_storage.py", "test_server_storage.py"} | {
    f"{name}.py" for name in ("rows_facts", "rows_format", "test_rows_format")
}  # files of a user
ELSEWHERE = {
    *(f"checkpoint.{name}" for name in OF_DLIO),
    *(f"model.{name}" for name in OF_DLIO_MODELS),
    "model.encoder.weight",  # a tensor
    "loader.num_worker",  # the mistake in the example of an error
}
"""Names of the pages that are none of the tool's."""


def is_figure(name: str) -> bool:
    return name in (*WORDS, *OF_A_STUDY) or any(
        figure.matches(name) or figure.name.startswith(f"{name}.") for figure in summary_figures.figures()
    )


def options(text: str) -> Iterator[tuple[str, str]]:
    """The options that a text names, with the value that it gives them or nothing."""
    for name, value in OPTION.findall(text):
        if not FILES.search(name):
            yield name, value


def test_options_of_the_pages_are_options_with_values_that_they_take() -> None:
    found = set(options(TEXT))
    assert len(found) > 40
    for name, value in found:
        assert lookup(name.split(".")) is not None or is_figure(name) or name in ELSEWHERE, name
        option = lookup(name.split("."))
        if value and option is not None:
            convert(value.rstrip(".:"), option)  # raises where it does not fit


def test_fragments_of_the_pages_are_there() -> None:
    groups = [path.name for path in (shipped() / "conf").iterdir() if path.is_dir()]
    found = set(re.findall(rf"(?<![\w.-])({'|'.join(groups)})=([a-z_0-9]+)\b", TEXT))
    assert len(found) > 15
    for group, choice in found:
        if choice not in KEYS.get(group, ()):
            assert (shipped() / "conf" / group / f"{choice}.yaml").is_file(), f"{group}={choice}"


def test_every_verb_recipe_and_format_stands_in_the_pages() -> None:
    recipes = {path.stem for path in (shipped() / "recipes").glob("*.yaml")} - {"self_test"}
    for name in [*VERBS, *recipes, *available()]:
        assert re.search(rf"[`\s/=]{re.escape(name)}[`\s,]", TEXT), name


def test_extras_of_the_pages_are_those_of_the_package() -> None:
    text = (REPO / "pyproject.toml").read_text(encoding="utf-8")
    optional = text.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    extras = set(re.findall(r"^(\w+) = \[", optional, re.MULTILINE))
    for name in extras:
        assert re.search(rf"[`\[,]{name}[`\],]", TEXT), name
    named = re.findall(r"extras? `(\w+)`", TEXT)
    assert named
    assert set(named) <= extras


def test_every_benchmark_stands_in_its_page() -> None:
    page = (REPO / "docs/benchmarks.md").read_text(encoding="utf-8")
    assert [name for name in MEMBERS if f"`{name}`" not in page] == []


def test_every_component_of_a_comparison_stands_in_its_page() -> None:
    page = (REPO / "docs/tracing.md").read_text(encoding="utf-8")
    rows = page.partition("| component |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [re.split(r"(?<!\\)\|", row)[1:-1] for row in rows]
    shown = {name: float(limit) for names, _, limit in cells for name in re.findall(r"`([^`]+)`", names)}
    assert shown == LIMITS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_modules_of_a_page_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    modules = list(PACKAGE.rglob("*.*"))
    for name in re.findall(r"`([\w/]+\.(?:py|[ch]))`", text):
        there = (REPO / name).is_file() or any(path.match(name) for path in modules)
        assert there or name in EXAMPLES, name
    for folder in re.findall(r"`((?:dlio_torch|conf|recipes|benchmarks|tests)/[\w/]*)`", text):
        assert (REPO / folder).exists(), folder


def messages(path: Path) -> Iterator[str]:
    """The texts of a module without its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = [n for n in ast.walk(tree) if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef)]
    docs = {id(n.body[0].value) for n in documented if n.body and isinstance(n.body[0], ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


def test_messages_name_options_and_figures_that_there_are() -> None:
    found = 0
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.is_relative_to(PACKAGE / "interop" / "dlio"):
            continue  # the peer's names
        for text in messages(path):
            for name, _ in options(text):
                found += 1
                assert lookup(name.split(".")) is not None or is_figure(name), f"{path.relative_to(PACKAGE)}: {name}"
    assert found > 200


@pytest.mark.parametrize("text", ["set loader.num_wokers=2", "train.samples_per_hour is low"])
def test_a_name_that_is_none_is_found(text: str) -> None:
    ((name, _),) = options(text)
    assert lookup(name.split(".")) is None
    assert not is_figure(name)
