"""Patterns of paths, compared with Bash."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from dlio_torch.errors import DataError
from dlio_torch.files.path_pattern import expanded, matching

PATTERNS = [
    "a.tar",
    "{000..003}.tar",
    "{8..11}",
    "{08..11}",
    "{3..1}",
    "{0..9..4}",
    "{-1..1}",
    "{-01..1}",
    "{a,b}-{1,2}.tar",
    "{train-{00..02},test}.tar",
    "{train,{x,y}}/{0..1}",
    "{,a}b",
    "{a}",
    "a{b",
    "a}b",
]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize("pattern", PATTERNS)
def test_braces_are_expanded_as_by_bash(pattern: str) -> None:
    done = subprocess.run(["bash", "-fc", f"printf '%s\\n' {pattern}"], capture_output=True, text=True, check=True)
    assert sorted(expanded(pattern)) == sorted(done.stdout.splitlines())


def test_existing_paths_are_matched_once(tmp_path: Path) -> None:
    for name in ("00.tar", "01.tar", "02.tar", "x.txt"):
        (tmp_path / name).touch()
    names = [str(tmp_path / f"0{number}.tar") for number in range(3)]
    assert matching(f"{tmp_path}/*.tar") == names
    assert matching(f"{tmp_path}/{{00..02}}.tar") == names
    assert matching(f"{tmp_path}/{{0*,00}}.tar") == names
    assert matching(f"{tmp_path}/{{05..09}}.tar") == []
    assert matching(f"{tmp_path}/nothing") == []


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    (tmp_path / "0.tar").touch()
    with pytest.raises(DataError, match=r"1\.tar does not exist, one of 2 names"):
        matching(f"{tmp_path}/{{0..1}}.tar")
    with pytest.raises(DataError, match="more than 1000000 names"):
        matching(f"{tmp_path}/{{0..9999999}}.tar")
