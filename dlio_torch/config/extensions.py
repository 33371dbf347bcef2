"""Facts about formats, engines and storages; the only module of the configuration that imports their registries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlio_torch.data.engines import registry as engines
from dlio_torch.formats.core import registry as formats
from dlio_torch.formats.core.registry import DEFAULT, OptionGroup, all_facts, option_groups
from dlio_torch.storage.registry import LOCAL, no_local_path, open_storage, scheme_of, storage_class, unknown_scheme

if TYPE_CHECKING:
    from dlio_torch.config.schema import Config
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
    "format_facts",
    "no_local_path",
    "open_storage",
    "option_groups",
    "scheme_of",
    "storage_class",
    "unknown_scheme",
]

ENGINES = tuple(engines.BUILTIN)
"""Names of all loader engines."""
all_engines = engines.all_facts


def format_facts(config: Config) -> FormatFacts:
    """Returns the facts about the format ``dataset.format``.

    Raises:
        ConfigError: no such format.
        PreconditionError: the package that adds it is broken or lacks another one.
    """
    return formats.facts(config.dataset.format)


def engine_facts(config: Config) -> EngineFacts:
    """Returns the facts about the engine ``loader.engine``."""
    return engines.facts(config.loader.engine)
