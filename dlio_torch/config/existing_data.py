"""Existing data of the user: the recipe, the scale and the options that they run with.

``dataset=auto`` takes the options from an inspection of ``dataset.path``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dlio_torch.config.arguments import Argument
from dlio_torch.config.convert import as_text
from dlio_torch.config.extensions import DEFAULT, format_choices, inspected
from dlio_torch.config.layers import COMMAND_LINE, Stack
from dlio_torch.config.resources import Resources, is_path
from dlio_torch.config.schema import Config
from dlio_torch.config.yamlfile import Document
from dlio_torch.config.yamlfile import Path as TreePath
from dlio_torch.errors import ConfigError
from dlio_torch.units import counted

DEFAULT_SCALE = "laptop"
"""Scale of shipped recipes."""
AS_WRITTEN = "as_written"
"""Scale of recipes by path and of existing data."""
CUSTOM = "custom"
"""Recipe of ``dataset.path=`` without ``recipe=``."""
AUTO = "auto"
"""Choice of ``dataset`` that takes the options from the files, and of other groups that suits the format."""
PATH, _FORMAT, _DATASET = "dataset.path", "dataset.format", "dataset"
NOTHING = ("", "null")
"""Values of ``dataset.path`` that mean generated data."""


def scale_of(arguments: Sequence[Argument], document: Document | None = None) -> str:
    """Name of the scale of an experiment for which ``scale=`` is not given.

    Args:
        arguments: keys and values of the command line.
        document: the recipe; ``None``: the arguments alone tell.
    """
    recipe = next((value for key, value in reversed(arguments) if key == "recipe"), "")
    is_existing = data_path(arguments, document) is not None
    return AS_WRITTEN if is_existing or is_path(recipe) else DEFAULT_SCALE


def data_path(arguments: Sequence[Argument], document: Document | None) -> str | None:
    """Value of ``dataset.path``, from the command line or the recipe; ``None``: the data are generated."""
    given = [value for key, value in arguments if key == PATH]
    dataset = document.tree.get("dataset") if document is not None else None
    written = dataset.get("path") if isinstance(dataset, dict) else None
    value = given[-1] if given else written
    return value if isinstance(value, str) and value not in (*NOTHING, "???") else None


def has_shipped_batch(arguments: Sequence[Argument], document: Document, source: str) -> bool:
    """Whether the batch size is the line of the shipped recipe ``custom``, which cannot know the user's data.

    Args:
        arguments: keys and values of the command line.
        document: the recipe.
        source: where ``train.batch_size`` was set.
    """
    recipe = next((value for key, value in reversed(arguments) if key == "recipe"), CUSTOM)
    # A recipe by path may have the same label, and one in a user's folder the same name.
    is_shipped = recipe == CUSTOM and document.label == f"recipes/{CUSTOM}.yaml"
    return is_shipped and source == document.location_of(("train", "batch_size"))


@dataclass
class Fragments:
    """Adds fragments of ``conf/`` to the layers of an experiment; the choice ``auto`` is derived from the data.

    Attributes:
        stack: takes the settings.
        document: the recipe.
        arguments: keys and values of the command line.
        places: holds the fragments.
        choices: choice of each group, those of the command line before those of the recipe.
        data_options: see :func:`~dlio_torch.config.compose.compose`.
    """

    stack: Stack
    document: Document
    arguments: Sequence[Argument]
    places: Resources
    choices: Mapping[str, str]
    data_options: Mapping[str, Any] | None

    def add(self, group: str, choice: str, source: str) -> None:
        """Adds a fragment.

        For ``dataset=auto`` these are the options that the inspection of ``dataset.path`` gives; for ``auto`` of
        another group, the choice that the format of the data names, else the fragment ``auto`` itself.

        Raises:
            ConfigError: there is no such fragment, or its format is not that of the command line.
            DataError: the data cannot be inspected.
        """
        fragment = self.places.fragment(group, choice, source)
        if group == _DATASET and choice == AUTO:
            tree, questions = self._inspection
            _refuse_open_questions(questions, self._path, self.arguments)
            whole = {"fields": [], **tree}  # none of the recipe's fields stay
            self.stack.add(as_text(whole), self._inspected, prefix=(group,))
            return
        if group == _DATASET and source == COMMAND_LINE:
            self._refuse_two_formats(choice, fragment)
        elif choice == AUTO and (suited := format_choices(self._format_name()).get(group)) is not None:
            fragment = self.places.fragment(group, suited, source)
            if self.choices.get(_DATASET) == AUTO:
                self.stack.add(fragment.tree, self._inspected, prefix=(group,))
                return
        self.stack.add(fragment.tree, fragment.location_of, prefix=(group,))

    @cached_property
    def _path(self) -> str:
        """Value of ``dataset.path``."""
        path = data_path(self.arguments, self.document)
        if path is None:
            source = COMMAND_LINE if (_DATASET, AUTO) in self.arguments else self.document.label
            raise ConfigError(
                f"dataset=auto ({source}): the format is read from your files, and dataset.path is not set",
                hint="add dataset.path=<file or folder>",
            )
        return path

    @cached_property
    def _inspection(self) -> tuple[Mapping[str, Any], list[tuple[str, str]]]:
        """The options that read the data, and their open questions."""
        if self.data_options is not None:
            return self.data_options, []
        return inspected(self._path, self._given_format)

    def _inspected(self, path: TreePath) -> str:
        """Source of the settings that the inspection gives."""
        return f"inspection of {self._path}"

    @property
    def _given_format(self) -> str:
        """Value of ``dataset.format`` on the command line; empty: none."""
        return next((value for key, value in reversed(self.arguments) if key == _FORMAT), "")

    def _format_name(self) -> str:
        """The format of the data, before all settings are merged."""
        choice = self.choices.get(_DATASET, "")
        written = self.document.tree.get(_DATASET)
        if self._given_format:
            return self._given_format
        if isinstance(written, dict) and _DATASET not in dict(self.arguments) and "format" in written:
            return str(written["format"])
        if choice == AUTO:
            return str(self._inspection[0]["format"])
        tree = self.places.fragment(_DATASET, choice, "").tree if choice else {}
        return str(tree.get("format", DEFAULT))

    def _refuse_two_formats(self, choice: str, fragment: Document) -> None:
        """Raise unless the format of a fragment of ``dataset`` is the one that the command line gives."""
        name = self._given_format
        if name and name != fragment.tree.get("format", name):
            known = self.places.choices(_DATASET)
            raise ConfigError(
                f"{_FORMAT}={name} (command line): contradicts dataset={choice}, whose format is "
                f"{fragment.tree['format']}",
                hint=f"keep one: dataset={name}" if name in known else "keep one",
            )


def _refuse_open_questions(questions: Sequence[tuple[str, str]], path: str, arguments: Sequence[Argument]) -> None:
    """Raise unless the command line answers what the files do not state."""
    given = {key for key, _ in arguments}
    for problem, setting in questions:
        if setting.partition("=")[0] not in given:
            import shlex

            raise ConfigError(f"dataset.path={path}: {problem}", hint=f"add {shlex.quote(setting)}")


def remarks_on(config: Config, sources: Mapping[str, str], arguments: Sequence[Argument]) -> list[str]:
    """Recipe and scale that were chosen because the command line names none."""
    lines = []
    if not any(key == "recipe" for key, _ in arguments):
        batch, epochs = config.train.batch_size, config.train.epochs
        compute = "no compute" if not config.compute.emulated_step_s else "compute"
        lines.append(
            f"recipe: {config.recipe}, because none is given: batches of {batch}, {counted(epochs, 'epoch')}, {compute}"
        )
    if config.scale.name == AS_WRITTEN and sources["scale.name"] == "default":
        lines.append("scale: as written; scale=laptop shrinks it")
    return lines
