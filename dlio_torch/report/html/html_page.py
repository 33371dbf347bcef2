"""Renders sections into one HTML file that needs no network, and whose only script is ``page.js``."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

from dlio_torch import __version__
from dlio_torch.errors import MissingPackageError
from dlio_torch.files.atomic_file import replaced
from dlio_torch.report.html.page_blocks import Section
from dlio_torch.report.html.run.view import View
from dlio_torch.report.html.theme import clean

_UNIT = re.compile(r"(\d) (%|[KMGTP]iB\b|B\b|h\b|min\b|m?s\b|[nµ]s\b)")


@dataclass(frozen=True)
class Page:
    """Content of an HTML page: its title, verdict and sections.

    Args:
        title: its heading.
        subtitle: what kind of thing it is about, in a line.
        verdict: the sentence that answers the reader's question.
        sections: from the top.
        path: where what it is about lies.
    """

    title: str
    subtitle: str
    verdict: str
    sections: Sequence[Section]
    path: str


def write_page(view: View, target: Path) -> Path:
    """Writes the page about ``view``; on failure, ``target`` remains unchanged.

    Raises:
        MissingPackageError: the extra ``report`` is not installed.
        PreconditionError: the file cannot be written.
    """
    return write_html(lambda: view_page(view), target)


def write_html(build: Callable[[], Page], target: Path) -> Path:
    """Imports the report's packages, calls ``build``, and writes the page that it returns, as :func:`write_page`."""
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingPackageError(
            f"the HTML report needs the Python package {error.name}, which is not installed",
            hint="run: pip install 'dlio-torch[report]'",
        ) from error
    text = html(build())
    with replaced(target) as file:
        file.write(text.encode("utf-8", "replace"))
    return target


def html(page: Page) -> str:
    """Renders a page as HTML text."""
    import jinja2
    import markupsafe

    package = resources.files(__package__)
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, finalize=_shown)
    environment.filters["zip"] = zip
    environment.filters["prose"] = prose
    environment.filters["inline"] = markupsafe.Markup
    template = environment.from_string((package / "page.html").read_text(encoding="utf-8"))
    numbers = itertools.count(1)
    script = (package / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return template.render(
        title=clean(page.title),
        subtitle=clean(page.subtitle),
        verdict=clean(page.verdict),
        sections=page.sections,
        style=markupsafe.Markup((package / "page.css").read_text(encoding="utf-8")),
        script=markupsafe.Markup(script),
        # The browser runs this script and no other.
        script_hash=markupsafe.Markup(f"sha256-{digest}"),
        path=clean(page.path),
        version=__version__,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        counter=lambda: next(numbers),
    )


def _shown(value: object) -> object:
    """Removes control characters other than line ends from a text; markup remains."""
    return "\n".join(clean(line) for line in value.split("\n")) if type(value) is str else value


def view_page(view: View) -> Page:
    """Builds the page about a recording; files of the run with invalid values are left out."""
    try:
        return _view_page(view)
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        if (view.summary, view.environment, view.command, view.config, view.sources) == (None,) * 5:
            raise
        why = (
            "summary.json, environment.json, command.json, config.yaml and sources.yaml are left out, because one "
            f"of them contains an invalid value ({type(error).__name__}: {error})"
        )
        bare = replace(view, summary=None, environment=None, command=None, config=None, sources=None)
        return _view_page(replace(bare, missing=(*view.missing, why)))


def _view_page(view: View) -> Page:
    from dlio_torch.report.html.run import section_overview

    return Page(
        section_overview.title(view),
        section_overview.subtitle(view),
        section_overview.sentence(view),
        sections(view),
        str(view.recording.path),
    )


def prose(text: str) -> str:
    """Replaces the spaces between numbers and units in ``text`` by no-break spaces."""
    return _UNIT.sub("\\1\u00a0\\2", text)


def sections(view: View) -> list[Section]:
    """Builds the sections of a page from the top; sections without data say how to record them."""
    from dlio_torch.report.html.run import (
        section_advice,
        section_cache,
        section_calls,
        section_checkpoints,
        section_contents,
        section_files,
        section_goodput,
        section_io,
        section_overlap,
        section_overview,
        section_setup,
        section_stalls,
        section_steps,
    )

    policies = [
        section_overview.overview(view),
        section_advice.advice_section(view),
        section_steps.step_section(view),
        section_steps.breakdown_section(view),
        section_stalls.stall_section(view),
        *section_checkpoints.checkpoint_sections(view.summary or view.standalone),
        *section_goodput.goodput_sections(view.summary),
        section_overlap.overlap_section(view),
        section_calls.call_section(view),
        section_io.size_section(view),
        section_io.rate_section(view),
        section_io.access_section(view),
        section_cache.cache_section(view),
        section_files.file_section(view),
        section_files.rank_section(view),
        section_contents.content_section(view),
        section_contents.untraced_section(view),
        section_setup.expect_section(view),
    ]
    setup = [
        section_setup.config_section(view),
        section_setup.environment_section(view),
        section_setup.skipped_section(view),
    ]
    # What was not recorded goes behind what was.
    return [*sorted(policies, key=lambda section: section.absent and section.title != ""), *setup]
