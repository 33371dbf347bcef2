"""What holds for all tests: options, optional parts of the machine, and the list of what was skipped."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import bytecode
import forked_programs
import optional_parts
import pytest
from hypothesis import settings
from skipped import skip_lines

# A failed assertion of a support module or of a contract shows its values, too.
_SUPPORT = {path.stem for path in Path(__file__).with_name("support").glob("*.py")}
pytest.register_assert_rewrite(
    *sorted(_SUPPORT - sys.modules.keys()), "dlio_torch.formats.testing", "dlio_torch.storage.testing"
)

# No test asserts on time: an example may take as long as a busy machine makes it.
settings.register_profile("dlio_torch", deadline=None)
settings.load_profile("dlio_torch")


def pytest_addoption(parser: pytest.Parser) -> None:
    names = ", ".join(optional_parts.PARTS)
    parser.addoption("--without", default="", metavar="PARTS", help=f"hide parts of this machine: all, or of {names}")


def pytest_configure(config: pytest.Config) -> None:
    try:
        parts = optional_parts.chosen(config.getoption("without"))
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    is_worker = hasattr(config, "workerinput")
    if not is_worker:
        repository = Path(__file__).parents[1]
        bytecode.compile_packages([repository / "dlio_torch", repository / "benchmarks"])
    if parts and not is_worker:  # workers inherit the environment
        links = tempfile.TemporaryDirectory()
        config.add_cleanup(links.cleanup)
        optional_parts.hide(parts, Path(links.name))
    forked_programs.install()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for part in [name for marker in item.iter_markers("needs") for name in marker.args]:
        optional_parts.need(part)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    lines = skip_lines(terminalreporter.stats.get("skipped", ()))
    if lines:
        terminalreporter.section("skipped, and why")
        for line in lines:
            terminalreporter.write_line(line)
