"""What the configuration asks of formats: the only module of ``config`` that imports their registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlio_torch.formats.core import registry
from dlio_torch.formats.core.registry import DEFAULT, OptionGroup, all_facts, option_groups

if TYPE_CHECKING:
    from dlio_torch.config.schema import Config
    from dlio_torch.formats.core.facts import FormatFacts

__all__ = ["DEFAULT", "OptionGroup", "all_facts", "format_facts", "option_groups"]


def format_facts(config: Config) -> FormatFacts:
    """Facts about the format that ``dataset.format`` names.

    Raises:
        ConfigError: no such format.
        PreconditionError: the package that adds it is broken or lacks another one.
    """
    return registry.facts(config.dataset.format)
