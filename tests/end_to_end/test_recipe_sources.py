"""Each number of a shipped recipe says where it comes from; the rule is in recipes/minimal.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ranks import REPO
from recipe_sources import Finding, breaches, header

# The other fragments of conf/ are no application's and no machine's: ways of reading, amounts of a scale, defaults of
# a format. Their numbers are choices of ours that a recipe or a user takes or leaves.
DESCRIPTIONS = sorted([*(REPO / "recipes").glob("*.yaml"), *(REPO / "conf/system").glob("*.yaml")])
STUDIES = sorted((REPO / "conf/study").glob("*.yaml"))
NOBODYS = {"custom", "minimal", "self_test"}
"""Recipes of no application: all of their numbers are chosen."""

HEADER = """\
# An application.
#
# Sources:
#   [paper] A. Author, a journal
#   [code]  some/repository
#           and its README
#
"""


def problems(text: str, head: str = HEADER) -> list[tuple[str, str]]:
    return [(finding.key, finding.problem) for finding in breaches(head + text)]


def name(path: Path) -> str:
    return path.relative_to(REPO).as_posix()


@pytest.mark.parametrize("path", DESCRIPTIONS, ids=name)
def test_every_number_has_a_source(path: Path) -> None:
    found = breaches(path.read_text(encoding="utf-8"))
    assert not found, "\n".join(f"{name(path)}:{at.line}: {f'{at.key} {at.problem}'.strip()}" for at in found)


@pytest.mark.parametrize("path", DESCRIPTIONS, ids=name)
def test_only_what_is_of_no_application_may_be_chosen_as_a_whole(path: Path) -> None:
    head = header(path.read_text(encoding="utf-8"))
    assert ("(chosen)" in head.default or "(inferred" in head.default) == (path.stem in NOBODYS)
    assert bool(head.tags) != (path.stem in NOBODYS)


@pytest.mark.parametrize("path", STUDIES, ids=name)
def test_every_published_figure_of_a_study_has_a_source(path: Path) -> None:
    study = yaml.safe_load(path.read_text(encoding="utf-8"))
    tags = {source.split("]")[0] + "]" for source in study["sources"]}
    assert all(tag.startswith("[") for tag in tags)
    for row in [*study.get("published", []), *study.get("statements", [])]:
        assert row["source"].split("]")[0] + "]" in tags, row


@pytest.mark.parametrize("value", ["5", "0.5", "-1", "1e-3", "64KiB", "0.5 s", "10ms", "120GB", "'7'", "0x10", "[3]"])
def test_a_number_without_a_source_is_found(value: str) -> None:
    assert [key.removesuffix(".0") for key, _ in problems(f"train:\n  epochs: {value}\n")] == ["train.epochs"]


@pytest.mark.parametrize("value", ["sleep", "true", "null", "[]", "{}", "3Dmap", "model_{step}.5", "'of 3'", "v100"])
def test_what_is_no_number_needs_none(value: str) -> None:
    assert problems(f"train:\n  kind: {value}\n") == []


def test_the_line_and_the_key_of_a_number_without_a_source_are_named() -> None:
    text = "a: 1 # [paper]\nlist:\n  - {name: x, shape: [3, y]}\naccelerators:\n  v100: {compute: {step_s: 2ms}}\n"
    first = HEADER.count("\n") + 1
    assert breaches(HEADER + text) == [
        Finding(first + 2, "list.0.shape.0", "3 has no source"),
        Finding(first + 4, "accelerators.v100.compute.step_s", "2ms has no source"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "train:\n  epochs: 1 # [paper]\n",
        "train:\n  epochs: 1 # 56 steps [code: README, line 3; paper]\n",
        "train:\n  # Once, says [paper],\n  # which is all.\n  epochs: 1\n",
        "train: # [paper]\n  epochs: 1\n  steps: 2 # and more\n",
        "\n# [paper]\ntrain:\n  epochs: 1\n  deep: {er: [1, 2]}\n",
        "list:\n  # [code]\n  - name: x\n    shape: [3]\n",
        "list: # [code]\n  [1, 2,\n   3]\n",
        "train:\n  epochs: 1 # (inferred) 400 steps of 512 samples\n",
        "train:\n  epochs: 1 # (chosen): one is enough\n",
        "train:\n  epochs: 1 # (inferred from the steps)\n",
        "train:\n  epochs: 1 # 400 steps make one (inferred)\n",
        "scales:\n  tiny: {max_samples: 4}\n",
        "guessed:\n  - latency_s\nlatency_s: 1\n",
    ],
)
def test_sources_of_every_kind_are_accepted(text: str) -> None:
    assert problems(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "train:\n  epochs: 1 # as usual\n",
        "train:\n  epochs: 1 # inferred from the number of steps\n",
        "train:\n  epochs: 1 # `[paper]` in quotes\n",
        "train:\n  epochs: 1 # data['x'][code]\n",
        "train:\n  steps: two # [paper]\n  epochs: 1\n",
        "train:\n  epochs: 1\n  # [paper]\n",
        "train:\n  # [paper]\n\n  epochs: 1\n",
        "train:\n  # [paper]\n  kind: a\n  epochs: 1\n",
        "train:\n  name: '# [paper]'\n  epochs: 1\n",
    ],
)
def test_what_is_no_source_of_a_number_is_not_taken_for_one(text: str) -> None:
    assert problems(text) == [("train.epochs", "1 has no source")]


def test_a_number_is_not_covered_by_the_header_but_by_its_default() -> None:
    text = "train:\n  epochs: 1\n"
    assert problems(text) == problems("\n" + text) == [("train.epochs", "1 has no source")]
    assert problems(text, HEADER + "# Default source: [paper]\n") == []
    assert problems(text, "# Default source: (chosen) to be quick about it\n") == []
    assert ("train.epochs", "1 has no source") in problems(text, "# Default source: (chosen)\n")


@pytest.mark.parametrize("place", ["train:{}\n  epochs: 1\n", "train:\n{}\n  epochs: 1\n", "train:\n  epochs: 1{}\n"])
@pytest.mark.parametrize("comment", ["(inferred)", "(chosen) so", "(inferred) [code]"])
def test_what_is_inferred_or_chosen_without_a_reason_is_problems(place: str, comment: str) -> None:
    text, mark = place.format(f" # {comment}"), comment.partition(" ")[0]
    assert ("", f"{mark} does not say from what or why") in problems(text)
    assert (("train.epochs", "1 has no source") in problems(text)) == ("[code]" not in comment)
    assert problems(place.format(f" # {comment} since some have more")) == []


@pytest.mark.parametrize("comment", ["[papre]", "[paper; trace: 8 ranks]", "(inferred) from what [trace] says"])
def test_a_tag_that_the_header_does_not_define_is_found(comment: str) -> None:
    tag = "papre" if "papre" in comment else "trace"
    assert ("", f"[{tag}] is not among the sources of the header") in problems(f"train:\n  epochs: 1 # {comment}\n")


@pytest.mark.parametrize("source", ["", ", source: somewhere", ", source: '[trace] a log'", ", source: 'see [paper]'"])
def test_an_expected_figure_begins_its_source_with_one_of_the_header(source: str) -> None:
    row = "expect:\n  - {metric: reads.mean_bytes, value: 4179%s}\n"
    assert problems(row % source) == [("expect.0.source", "does not begin with a source of the header")]
    assert problems(row % ", source: '[paper] figure 1'") == []
