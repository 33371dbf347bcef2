"""No dead keys: every option is documented, and read by code outside config/."""

from __future__ import annotations

from pathlib import Path

import pytest
from option_reads import Reads, schema_classes

import dlio_torch
from dlio_torch.config.convert import convert
from dlio_torch.config.fields import Option, lookup, suggest, walk
from dlio_torch.config.schema import AccessConfig, Config
from dlio_torch.formats.core.registry import all_facts

PACKAGE = Path(dlio_torch.__file__).parent
# These change an experiment while it is composed; what they change is what the rest reads.
APPLIED_IN_CONFIG = ("ScaleConfig",)
OPTIONS = [option for option in walk() if option.key]


def texts(*, config: bool) -> list[str]:
    """Of all modules in config/ but the schema itself, or of all others."""
    found = (path for path in sorted(PACKAGE.rglob("*.py")) if path.is_relative_to(PACKAGE / "config") == config)
    return [path.read_text(encoding="utf-8") for path in found if not path.name.startswith("schema")]


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)
def test_is_documented(option: Option) -> None:
    assert option.doc
    assert "\n" not in option.doc


def test_is_read() -> None:
    classes = schema_classes(Config)
    outside, inside = texts(config=False), texts(config=True)
    unread = {(name, field) for name, fields in classes.items() for field in fields}
    unread -= Reads(classes, outside, inside).found
    applied = {one for one in unread if set(one) & set(APPLIED_IN_CONFIG)}
    assert sorted(unread - applied) == []
    assert sorted(applied - Reads(classes, inside).found) == []


def test_an_option_is_not_read_where_something_else_has_its_name() -> None:
    classes = schema_classes(Config)
    read = """
def plan(config: Config, path: Path) -> int:
    access = config.access
    order, other = access.order, path.partition
    return sum(field.length_mean for field in config.dataset.fields) + config.loader
"""
    found = Reads(classes, [read]).found
    assert found == {
        ("Config", "access"),
        ("Config", "dataset"),
        ("Config", "loader"),
        ("AccessConfig", "order"),
        ("DatasetConfig", "fields"),
        ("FieldConfig", "length_mean"),
    }
    assert "partition" in classes[AccessConfig.__name__]


def test_the_successors_of_earlier_options_are_options_with_these_values() -> None:
    successors = [(kind, *entry) for kind in all_facts() for entry in kind.former.items()]
    assert successors
    for kind, former, (successor, values) in successors:
        assert lookup(kind.key(former).split(".")) is None
        option = lookup(kind.key(successor).split("."))
        assert option is not None
        for old, new in values.items():
            convert(new, option)
            advice = suggest(kind.key(former).split("."))
            assert advice.startswith(f"it is now {kind.key(successor)} (")
            assert f"{new} for {old}" in advice
