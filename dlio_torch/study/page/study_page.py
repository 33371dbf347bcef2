"""Writes one self-contained HTML page about a study: a sweep, a search, a ladder, or a published study."""

from __future__ import annotations

from pathlib import Path

from dlio_torch.report.html.html_page import Page, write_html
from dlio_torch.report.html.page_blocks import Absent, Block, Folded, Listing, Section
from dlio_torch.report.html.run.section_setup import clean_lines, environment_block
from dlio_torch.report.html.theme import clean
from dlio_torch.study.page.page_data import StudyData
from dlio_torch.study.page.points import StudyView

_KINDS = {"sweep": "sweep", "tune": "search for settings", "headspace": "ladder of headroom"}
LONG = 100
"""Number of characters from which a description is placed below the answer, not above the title."""


def write_study(data: StudyData, target: Path) -> Path:
    """Write the page about a study, finished or not.

    Args:
        data: what was swept and what came of it.
        target: the file; afterwards it is complete, or as it was before.

    Returns:
        ``target``.

    Raises:
        MissingPackageError: the extra ``report`` is not installed.
        PreconditionError: the file cannot be written.
    """
    return write_html(lambda: _page(data), target)


def _page(data: StudyData) -> Page:
    from dlio_torch.study.page.page_sentences import answer

    study = StudyView(data)
    return Page(data.title, _subtitle(data), answer(study), _sections(study), str(data.path))


def _subtitle(data: StudyData) -> str:
    ranks = next((axis.values for axis in data.axes if axis.key == "ranks" and axis.values), (str(data.ranks),))
    parts = [_KINDS[data.kind], f"{', '.join(map(clean, ranks))} rank{'' if ranks == ('1',) else 's'}"]
    if data.description and len(data.description) <= LONG:
        parts.append(data.description)
    return " · ".join(parts)


def _sections(study: StudyView) -> list[Section]:
    """Returns the sections in order, without sections that do not apply to this kind of study."""
    from dlio_torch.study.page.section_axes import axis_section
    from dlio_torch.study.page.section_drift import drift_section
    from dlio_torch.study.page.section_ladder import ladder_section
    from dlio_torch.study.page.section_pairs import pair_section
    from dlio_torch.study.page.section_points import failed_section, overview, point_section, trial_section
    from dlio_torch.study.page.section_published import published_section
    from dlio_torch.study.page.section_search import recommended_section, search_section
    from dlio_torch.study.page.section_source import source_section

    grid = study.data.kind == "sweep"
    trials = bool(study.data.trials)
    long = len(study.data.description) > LONG
    result = [
        overview(study, study.data.description if long else ""),
        recommended_section(study),
        ladder_section(study),
        published_section(study),
        axis_section(study) if grid else None,
        pair_section(study) if grid else None,
        search_section(study),
        pair_section(study) if study.data.kind == "tune" else None,
        point_section(study) if trials and study.data.kind != "headspace" else None,
        source_section(study),
        failed_section(study),
        drift_section(study) if study.data.kind != "headspace" else None,
        trial_section(study) if trials else None,
        _setup(study.data),
        _environment(study.data),
    ]
    return [section for section in result if section is not None]


def _setup(data: StudyData) -> Section:
    blocks: list[Block] = []
    if data.settings:
        blocks.append(Listing("Set in every trial", "\n".join(clean(setting) for setting in data.settings)))
    blocks += [Folded(clean(title), text=clean_lines(text)) for title, text in data.config]
    if not blocks:
        blocks.append(Absent("The study recorded no settings that all its trials share."))
    return Section("config", "Configuration", blocks)


def _environment(data: StudyData) -> Section:
    if data.environment is None:
        return Section(
            "environment", "Environment", [Absent("No finished trial recorded a description of the machine.")]
        )
    return Section("environment", "Environment", [environment_block(data.environment)])
