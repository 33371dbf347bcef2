"""Help of each verb: its usage, examples, keys and flags."""

from __future__ import annotations

import re
import shlex

import pytest

from dlio_torch import cli
from dlio_torch.commands.command_line import FLAGS, parse
from dlio_torch.commands.verbs import VERBS
from dlio_torch.study.verb_keys import KEYS


def help_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(arguments) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("verb", list(VERBS))
def test_each_verb_has_its_own_help(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    text = help_of(capsys, verb, "--help")
    assert text == help_of(capsys, "-h", verb)
    lines = text.splitlines()
    assert lines[0].startswith(f"usage: python -m dlio_torch {verb} ")
    assert lines[0].count("[flags]") == 1
    assert 1 <= len(re.findall(r"\w[.](?:\s|$)", VERBS[verb].text)) <= 2
    assert " ".join(VERBS[verb].text.split()) in " ".join(lines)
    assert lines[-1] == "python -m dlio_torch --help lists the other verbs and the exit codes."
    assert max(map(len, lines)) <= 100
    flags = set(re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE))
    assert flags == {name for name, flag in FLAGS.items() if not flag.verbs or verb in flag.verbs}
    assert (f"keys of {verb}" in text) == (verb in KEYS)
    assert ("recipe=NAME|PATH   a shipped recipe" in text) == (VERBS[verb].options == "run" and verb not in KEYS)


@pytest.mark.parametrize("verb", list(VERBS))
def test_each_verb_has_examples_that_are_valid_commands(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    examples = VERBS[verb].examples
    text = help_of(capsys, verb, "--help")
    assert 1 <= len(examples) <= 3
    assert verb in {example.split()[0] for example in examples}
    for example in examples:
        assert f"  python -m dlio_torch {example}\n" in text
        assert parse(shlex.split(example)).verb == example.split()[0]


def test_help_without_a_verb_is_that_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(capsys, "--help")
    assert text == help_of(capsys, "recipe=minimal", "--help") == help_of(capsys, "nonsense", "--help")
    assert text != help_of(capsys, "run", "--help")
    for name, verb in VERBS.items():
        assert f"\n  {name:<11} {verb.summary}" in text
