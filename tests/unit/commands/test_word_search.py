"""``explain WORD``: figures, options and terms by a part of their names, by words of the field and by spelling."""

from __future__ import annotations

import json
import re

import pytest

from dlio_torch import cli
from dlio_torch.commands.glossary import terms
from dlio_torch.commands.word_search import search, similar_word


def explain(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["explain", *arguments]) == 0
    return capsys.readouterr().out


def sections(text: str) -> dict[str, list[str]]:
    """Names in the lists of options and figures."""
    lists = {}
    for heading in ("options", "figures of summary.json"):
        block = re.search(rf"^{heading}\n((?:  .*\n)+)", text, re.MULTILINE)
        lists[heading] = re.findall(r"^  (\S+)", block[1], re.MULTILINE) if block else []
    return lists


@pytest.mark.parametrize(
    ("word", "term", "options", "figures"),
    [
        ("au", "Accelerator utilisation (AU)", {"train.min_au"}, {"summary.au.*", "summary.ranks.au"}),
        ("utilisation", "Accelerator utilisation (AU)", {"train.min_au"}, {"summary.au.*"}),
        ("throughput", "Throughput", set(), {"summary.train.samples_per_s"}),
        ("wait", "Wait (stall)", set(), {"summary.stalls.wait_s", "summary.stalls.shares.*"}),
        ("samples_per_s", "", set(), {f"summary.{x}.samples_per_s" for x in ("warmup", "train", "eval", "ranks")}),
        ("num_workers", "", {"loader.num_workers", "generate.num_workers"}, {"summary.order_comparable.num_workers"}),
        ("latency", "", {"system.request_latency_s", "system.network_latency_s"}, set()),
        ("page cache", "Page cache", {"cache.state"}, {"summary.io.device_read_share"}),
    ],
)
def test_a_word_lists_terms_options_and_figures_apart(
    capsys: pytest.CaptureFixture[str], word: str, term: str, options: set[str], figures: set[str]
) -> None:
    text = explain(capsys, word)
    assert text == explain(capsys, word.upper())
    assert text.startswith(f"{term}: " if term else ("options\n" if options else "figures"))
    listed = sections(text)
    assert options <= set(listed["options"])
    assert bool(options) == bool(listed["options"])
    assert figures <= set(listed["figures of summary.json"])
    data = json.loads(explain(capsys, word, "--json"))
    assert [entry["name"] for entry in data["terms"]] == ([term] if term else [])
    assert options <= set(data["options"])
    assert figures <= {f"summary.{figure['name']}" for figure in data["figures"]}


def test_a_single_figure_or_option_is_explained_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(capsys, "wait_s") == explain(capsys, "summary.stalls.wait_s")
    assert explain(capsys, "au.mean") == explain(capsys, "summary.au.mean")
    assert explain(capsys, "train.samples_per_s") == explain(capsys, "summary.train.samples_per_s")
    assert explain(capsys, "prefetch_factor") == explain(capsys, "loader.prefetch_factor")
    now = explain(capsys, "prefetch_factor", "recipe=minimal", "loader=workers")
    assert "now      2  (conf/loader/workers.yaml:3)" in now
    assert json.loads(explain(capsys, "repeat", "--json")).keys() == {"access.repeat"}


def test_an_option_leads_to_the_figures_of_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert "figures  `explain summary.seed` " in explain(capsys, "seed")
    assert "`explain summary.cache`" in explain(capsys, "cache")
    assert "`explain summary" not in explain(capsys, "loader")


@pytest.mark.parametrize(
    ("word", "similar"),
    [("utilization", "utilisation"), ("thoughput", "throughput"), ("samples_per_sec", "samples_per_s")],
)
def test_a_slip_finds_the_most_similar_name(capsys: pytest.CaptureFixture[str], word: str, similar: str) -> None:
    expected = explain(capsys, similar)
    assert cli.main(["explain", word]) == 0
    said = capsys.readouterr()
    assert said.out == expected
    assert said.err == f"explain {word}: no such name; the most similar one is {similar}\n"


@pytest.mark.parametrize(
    ("word", "hint"),
    [("lodaer", "did you mean loader?"), ("loader.num_worker", "did you mean loader.num_workers?"), ("zzz", "groups")],
)
def test_a_slip_in_the_name_of_an_option_is_an_error(capsys: pytest.CaptureFixture[str], word: str, hint: str) -> None:
    assert cli.main(["explain", word]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"dlio_torch: error: explain {word}: no such option; {hint}")
    assert error.count("\n") == 1


def test_nothing_is_called_by_a_wildcard_or_an_empty_word() -> None:
    for word in ("*", ".", "", "**.*"):
        assert not search(word)
    assert similar_word("zzz", []) == ""
    assert similar_word("utilization", ["utilizations"]) == ""  # a key is more similar


def test_every_term_is_found_by_its_words() -> None:
    for term in terms():
        assert term in search(term.name).terms
        for word in term.words:
            assert term in search(word).terms


@pytest.mark.parametrize("key", ["", "loader", "au", "summary", "dataset.hdf5", "ranks"])
def test_lines_are_wrapped_and_names_are_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    wide = explain(capsys, *filter(None, [key]))
    assert max(map(len, wide.splitlines())) <= 100
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    narrow = explain(capsys, *filter(None, [key]))
    assert narrow.split() == wide.split()
    assert max(len(line) for line in narrow.splitlines() if len(line.split()) > 1) <= 60
