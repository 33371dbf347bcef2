"""Facts about formats, engines, storages and checkpoints; the only module of the configuration that imports theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dlio_torch.data.engines import registry as engines
from dlio_torch.errors import DataError
from dlio_torch.formats.core import registry as formats
from dlio_torch.formats.core.registry import DEFAULT, OptionGroup, all_facts, option_groups
from dlio_torch.storage.registry import LOCAL, no_local_path, open_storage, scheme_of, storage_class, unknown_scheme

if TYPE_CHECKING:
    from dlio_torch.config.schema import CheckpointConfig, Config
    from dlio_torch.config.schema_model import ModelConfig, ParallelConfig
    from dlio_torch.data.engines.facts import EngineFacts
    from dlio_torch.formats.core.facts import FormatFacts

__all__ = [
    "DEFAULT",
    "ENGINES",
    "LOCAL",
    "OptionGroup",
    "all_engines",
    "all_facts",
    "engine_facts",
    "fitting_layers",
    "format_choices",
    "format_facts",
    "inspected",
    "no_local_path",
    "open_storage",
    "option_groups",
    "scheme_of",
    "storage_class",
    "unknown_scheme",
    "unread_options",
]

ENGINES = tuple(engines.BUILTIN)
"""Names of all loader engines."""
all_engines = engines.all_facts


def fitting_layers(model: ModelConfig, parallel: ParallelConfig, limit: int) -> int:
    """See :func:`dlio_torch.checkpoint.job.saved_state.fitting_layers`, which most configurations do not need."""
    from dlio_torch.checkpoint.job.saved_state import fitting_layers as layers

    return layers(model, parallel, limit)


def unread_options(options: CheckpointConfig) -> dict[str, tuple[str, ...]]:
    """See :func:`dlio_torch.checkpoint.registry.unread_options`, which imports the options that ask for this module."""
    from dlio_torch.checkpoint.registry import unread_options as unread

    return unread(options)


def format_facts(config: Config) -> FormatFacts:
    """Returns the facts about the format ``dataset.format``.

    Raises:
        ConfigError: no such format.
        PreconditionError: the package that adds it is broken or lacks another one.
    """
    return formats.facts(config.dataset.format)


def inspected(path: str, format_name: str) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Inspects existing data; returns the options of ``dataset`` that read them, and what they do not state.

    Args:
        path: a file, a folder or a pattern.
        format_name: format of the data; empty: it is recognised.

    Returns:
        The options as a recipe holds them, and pairs of a problem and the ``key=value`` that solves it.

    Raises:
        DataError: nothing is there, its format is unknown, it cannot be read, or the data set is a folder within.
    """
    # Here, because it imports the classes of the options that this module is asked for.
    from dlio_torch.formats.core.inspection import inspect_path

    inspection = inspect_path(path, format_name)
    if inspection.path != path:
        raise DataError(
            f"dataset.path={path}: the data set is the folder {inspection.path}",
            hint=f"set dataset.path={inspection.path}",
        )
    questions = [(question.problem, question.setting) for question in inspection.description.questions]
    return inspection.settings(), questions


def format_choices(name: str) -> Mapping[str, str]:
    """Returns the choices of groups of ``conf/`` with which the users of a format read it.

    Raises:
        ConfigError: no such format.
    """
    return formats.facts(name).choices


def engine_facts(config: Config) -> EngineFacts:
    """Returns the facts about the engine ``loader.engine``."""
    return engines.facts(config.loader.engine)
