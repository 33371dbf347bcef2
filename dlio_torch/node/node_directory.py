"""Directory of the results of the verb ``node``, and the names of its files, which no other module knows.

``<output.root>/node/<time>/`` holds::

    node.json         all figures (versioned)
    report.html       the report, one file
    trials/<point>-<repeat>/   run directories of the combinations; beside each its .log
    data.log          what generating the data printed
    dlio_torch.json   the list of these files, for ``clean`` (see :mod:`dlio_torch.ownership.marker`)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dlio_torch.errors import DataError
from dlio_torch.files.atomic_file import replace_text, writing
from dlio_torch.ownership.marker import write_marker
from dlio_torch.ownership.names import numbers
from dlio_torch.run_directory.results_folder import NODE_FOLDER, new_folder

SCHEMA_VERSION = "1"
_RESULT = "node.json"
_TRIAL = f"trials/{numbers(digits=3)}-{numbers()}"
_FILES = (_RESULT, "report.html", "data.log", f"{_TRIAL}/", f"{_TRIAL}.log")


class NodeDirectory:
    """Directory of one measurement of a node.

    Args:
        path: the directory, absolute.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, root: Path | str, recipe: str) -> NodeDirectory:
        """Make a new directory ``<root>/node/<time>``.

        Args:
            root: folder of all results.
            recipe: name of the recipe, for ``clean``.

        Raises:
            PreconditionError: it cannot be made or written.
        """
        parent = Path(root).expanduser().absolute() / NODE_FOLDER
        with writing(parent):
            path = new_folder(parent)
            write_marker("node", path, recipe, _FILES)
        return cls(path)

    @property
    def report(self) -> Path:
        """The report (HTML)."""
        return self.path / "report.html"

    @property
    def result(self) -> Path:
        """All figures (JSON)."""
        return self.path / _RESULT

    @property
    def data_log(self) -> Path:
        """Output of the generation of the data."""
        return self.path / "data.log"

    def trial(self, point: int, repeat: int) -> Path:
        """Run directory of a run of a combination."""
        return self.path / f"trials/{point:03}-{repeat}"

    def save(self, record: Mapping[str, Any]) -> None:
        """Write ``node.json``.

        Raises:
            PreconditionError: the file cannot be written.
        """
        replace_text(self.result, json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n")

    def read(self) -> dict[str, Any]:
        """Read ``node.json``.

        Raises:
            DataError: it is missing or damaged.
        """
        try:
            record = json.loads(self.result.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"{self.result} cannot be read: {error}", hint="repeat the verb node") from None
        if not isinstance(record, dict) or record.get("schema_version") != SCHEMA_VERSION:
            raise DataError(
                f"{self.result} is not the result of this version of the verb node", hint="repeat the verb node"
            )
        return record


def is_node(path: Path) -> bool:
    """Whether a folder holds the result of the verb ``node``, begun or finished."""
    return (path / _RESULT).is_file()
