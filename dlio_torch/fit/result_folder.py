"""Folder of the result of the verb ``fit``, and the names of its files, which no other module knows.

::

    recipe.yaml      the recipe; ``recipe=<folder>`` runs it
    evidence.json    each value with its evidence, what is not reproduced, and the figures behind it (versioned)
    score.json       how alike the recipe's run and the recording are (versioned)
    requests.npz     the recorded requests, for a data set of format ``extents`` alone
    emulation/       run directory of the run that was compared; emulation.log is its output
    .data/           data set of the runs of the recipe, removed at their end
    dlio_torch.json  the list of these files, for ``clean`` (see :mod:`dlio_torch.ownership.marker`)
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlio_torch.config.resources import RECIPE_IN_FOLDER
from dlio_torch.errors import ConfigError
from dlio_torch.files.atomic_file import replace_text, writing
from dlio_torch.ownership.marker import write_marker
from dlio_torch.run_directory.results_folder import claim

_FILES = (RECIPE_IN_FOLDER, "evidence.json", "score.json", "requests.npz", "emulation/", "emulation.log", ".data/")


@dataclass(frozen=True)
class ResultFolder:
    """Folder of one result.

    Attributes:
        path: the folder, absolute.
    """

    path: Path

    @classmethod
    def create(cls, path: Path, *, force: bool) -> ResultFolder:
        """Makes the folder, or takes an empty one.

        Args:
            path: the folder.
            force: remove the files of an earlier result there.

        Raises:
            ConfigError: it holds an earlier result, and ``force`` is false.
            PreconditionError: it holds something else, or cannot be written.
        """
        folder = path.expanduser().absolute()
        is_result = (folder / RECIPE_IN_FOLDER).is_file() and (folder / "evidence.json").is_file()
        if is_result and not force:
            raise ConfigError(
                f"--output {path} (command line): the folder holds an earlier result",
                hint="add --force to replace it, or name another folder",
            )
        with writing(folder):
            result = cls(folder)
            if is_result:
                result.remove_files()
            else:
                claim(folder, "--output")
            write_marker("fit", folder, folder.name, _FILES)
        return result

    @property
    def recipe(self) -> Path:
        """The recipe (YAML)."""
        return self.path / RECIPE_IN_FOLDER

    @property
    def evidence(self) -> Path:
        """Evidence of each value (JSON)."""
        return self.path / "evidence.json"

    @property
    def score(self) -> Path:
        """Distances of the recipe's run (JSON)."""
        return self.path / "score.json"

    @property
    def requests(self) -> Path:
        """Recorded requests (NumPy archive)."""
        return self.path / "requests.npz"

    @property
    def emulation(self) -> Path:
        """Run directory of the compared run."""
        return self.path / "emulation"

    @property
    def emulation_log(self) -> Path:
        """Output of the compared run."""
        return self.path / "emulation.log"

    @property
    def data(self) -> Path:
        """Data set of the runs of the recipe."""
        return self.path / ".data"

    def remove_run(self) -> None:
        """Remove the run directory and the log of the last run."""
        shutil.rmtree(self.emulation, ignore_errors=True)
        self.emulation_log.unlink(missing_ok=True)

    def remove_data(self) -> None:
        """Remove the data set of the runs."""
        shutil.rmtree(self.data, ignore_errors=True)

    def remove_files(self) -> None:
        """Remove all files of a result."""
        self.remove_run()
        self.remove_data()
        for file in (self.recipe, self.evidence, self.score, self.requests):
            file.unlink(missing_ok=True)

    def write_json(self, path: Path, value: Mapping[str, Any]) -> None:
        """Writes a file of figures.

        Raises:
            PreconditionError: it cannot be written.
        """
        replace_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
