"""What a test run has skipped, by reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any


def skip_lines(reports: Iterable[Any]) -> list[str]:
    """One line for each reason: how many tests, why, and in which files; the most frequent reason first.

    Args:
        reports: pytest's reports of skipped tests and modules.
    """
    files: defaultdict[str, list[str]] = defaultdict(list)
    for report in reports:
        text = report.longrepr[2] if isinstance(report.longrepr, tuple | list) else str(report.longrepr)
        files[text.removeprefix("Skipped: ")].append(report.nodeid.partition("::")[0].rpartition("/")[2])
    ordered = sorted(files.items(), key=lambda item: (-len(item[1]), item[0]))
    return [f"{len(where):5} {reason} ({', '.join(sorted(set(where)))})" for reason, where in ordered]
