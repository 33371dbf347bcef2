"""What a search remembers beside its trials: ``tune.json`` in its directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dlio_torch.errors import DataError
from dlio_torch.storage.local.atomic_file import replaced

FILE = "tune.json"
_VERSION = "1"


@dataclass(frozen=True)
class State:
    """Where a search is.

    Attributes:
        arguments: ``key=value`` arguments that it was begun with.
        searched: runs of the search; those behind them are the confirmation's; ``None``: it still searches.
        chosen: number of the point that is confirmed.
        stopped: why the search ended.
        by_budget: whether it would have gone on.
        result: what was found, for programs; empty until it is finished.
    """

    arguments: tuple[str, ...]
    searched: int | None = None
    chosen: int | None = None
    stopped: str = ""
    by_budget: bool = False
    result: Mapping[str, Any] = field(default_factory=dict)

    def searching(self) -> State:
        """The same search, gone on with: what was run to confirm counts as search."""
        return replace(self, searched=None, chosen=None, stopped="", by_budget=False, result={})


def load(folder: Path) -> State:
    """The state of the search in ``folder``.

    Raises:
        DataError: there is none, or it is damaged.
    """
    path = folder / FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        found.pop("schema"), found.pop("version")
        return State(**{**found, "arguments": tuple(found["arguments"])})
    except FileNotFoundError:
        raise DataError(
            f"{folder} is not the folder of a search: it has no {FILE}", hint="sweep --resume goes on with a sweep"
        ) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}", hint="check its permissions") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} is damaged: {error!r}", hint="begin the search again") from None


def save(folder: Path, state: State) -> State:
    """Write ``state`` for good, and return it."""
    found: dict[str, Any] = {
        "schema": "dlio_torch.tune",
        "version": _VERSION,
        "arguments": list(state.arguments),
        "searched": state.searched,
        "chosen": state.chosen,
        "stopped": state.stopped,
        "by_budget": state.by_budget,
        "result": dict(state.result),
    }
    with replaced(folder / FILE) as file:
        file.write((json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8"))
    return state
