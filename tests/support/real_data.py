"""Finds real inputs (logs and data of real applications), which are no part of the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_REPO = Path(__file__).resolve().parents[2]
_VARIABLE = "DLIO_TORCH_TEST_DATA"


def real_input(name: str) -> Path:
    """The file of this name in ``$DLIO_TORCH_TEST_DATA``, or in a folder ``*/data`` beside the repository.

    Skips the test where there is none.
    """
    named = os.environ.get(_VARIABLE)
    folders = ([Path(named)] if named else []) + sorted(_REPO.parent.glob("*/data"))
    found = next((folder / name for folder in folders if (folder / name).is_file()), None)
    if found is None:
        pytest.skip(f"{name} is not there: set {_VARIABLE} to the folder that holds it")
    return found
