"""Existing data of the user: the recipe, the scale and the options that they run with.

``dataset=auto`` takes the options from an inspection of ``dataset.path``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlio_torch.config.arguments import Argument
from dlio_torch.config.convert import as_text
from dlio_torch.config.extensions import inspected
from dlio_torch.config.layers import COMMAND_LINE, Stack
from dlio_torch.config.resources import Resources, is_path
from dlio_torch.config.schema import Config
from dlio_torch.config.yamlfile import Document
from dlio_torch.errors import ConfigError
from dlio_torch.units import counted

DEFAULT_SCALE = "laptop"
"""Scale of shipped recipes."""
AS_WRITTEN = "as_written"
"""Scale of recipes by path and of existing data."""
CUSTOM = "custom"
"""Recipe of ``dataset.path=`` without ``recipe=``."""
AUTO = "auto"
"""Choice of ``dataset`` that takes the options from the files."""
PATH, _FORMAT = "dataset.path", "dataset.format"
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


def add_fragment(
    stack: Stack,
    group: str,
    choice: str,
    source: str,
    document: Document,
    arguments: Sequence[Argument],
    places: Resources,
) -> None:
    """Adds a fragment; for ``dataset=auto`` the options that the inspection of ``dataset.path`` gives.

    Raises:
        ConfigError: there is no such fragment, or its format is not that of the command line.
        DataError: the data cannot be inspected.
    """
    fragment = places.fragment(group, choice, source)
    if group == "dataset":
        format_name = next((value for key, value in reversed(arguments) if key == _FORMAT), "")
        if choice == AUTO:
            path = data_path(arguments, document)
            if path is None:
                raise ConfigError(
                    f"dataset=auto ({source}): the format is read from your files, and dataset.path is not set",
                    hint="add dataset.path=<file or folder>",
                )
            tree, questions = inspected(path, format_name)
            _refuse_open_questions(questions, path, arguments)
            stack.add(as_text(tree), lambda _: f"inspection of {path}", prefix=(group,))
            return
        elif source == COMMAND_LINE and format_name and format_name != fragment.tree.get("format", format_name):
            raise ConfigError(
                f"{_FORMAT}={format_name} (command line): contradicts dataset={choice}, whose format is "
                f"{fragment.tree['format']}",
                hint=f"keep one: dataset={format_name}" if format_name in places.choices(group) else "keep one",
            )
    stack.add(fragment.tree, fragment.location_of, prefix=(group,))


def _refuse_open_questions(questions: Sequence[tuple[str, str]], path: str, arguments: Sequence[Argument]) -> None:
    """Raise unless the command line answers what the files do not state."""
    given = {key for key, _ in arguments}
    for problem, setting in questions:
        if setting.partition("=")[0] not in given:
            raise ConfigError(f"dataset.path={path}: {problem}", hint=f"add {setting}")


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
