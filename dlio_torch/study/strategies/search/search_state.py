"""Progress of a search, stored in ``tune.json`` in the directory of the study."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from dlio_torch.config.arguments import split_argument
from dlio_torch.errors import DataError
from dlio_torch.files.atomic_file import replace_text
from dlio_torch.study.axes import expand
from dlio_torch.study.verb_keys import KEYS

FILE = "tune.json"
VERSION = "2"
_DEFAULT_WAS_ALL = "1"
"""Version in which a search without axes had all options of reading among its settings."""


@dataclass(frozen=True)
class State:
    """The progress of a search.

    Attributes:
        arguments: ``key=value`` arguments of the search.
        searched: trials of the search; those behind them confirm; ``None``: the search goes on.
        chosen: number of the point that is confirmed.
        stopped: the reason why the search ended.
        by_budget: whether the search would have gone on with a larger budget.
        result: the result for programs; empty until there is one.
        version: of the file in which the search began.
    """

    arguments: tuple[str, ...]
    searched: int | None = None
    chosen: int | None = None
    stopped: str = ""
    by_budget: bool = False
    result: Mapping[str, Any] = field(default_factory=dict)
    version: str = VERSION

    def searching(self) -> State:
        """The same search, continued: trials of the confirmation count as trials of the search."""
        return replace(self, searched=None, chosen=None, stopped="", by_budget=False, result={})

    def as_begun(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """The arguments, with the space that they meant when the search began."""
        if self.version != _DEFAULT_WAS_ALL:
            return tuple(arguments)
        given = dict(split_argument(argument) for argument in arguments)
        options = [(key, text) for key, text in given.items() if key not in KEYS["tune"]]
        if "space" not in given and any(len(expand(key, text)) > 1 for key, text in options):
            return tuple(arguments)
        return (*(argument for argument in arguments if split_argument(argument)[0] != "space"), "space=all")


def load(folder: Path) -> State:
    """The state of the search in ``folder``.

    Raises:
        DataError: there is none, or it is damaged.
    """
    path = folder / FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        data.pop("schema")
        state = State(**{**data, "arguments": tuple(data["arguments"])})
        return replace(state, arguments=state.as_begun(state.arguments))
    except FileNotFoundError:
        raise DataError(
            f"{folder} is not the folder of a search: the file {FILE} is missing",
            hint="continue a sweep with: sweep --resume",
        ) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}", hint="check the permissions of the file") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} is damaged: {error!r}", hint="begin a new search") from None


def save(folder: Path, state: State) -> State:
    """Write ``state`` for good, and return it."""
    data = {"schema": "dlio_torch.tune", "version": state.version, **asdict(state)}
    replace_text(folder / FILE, json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    return state
