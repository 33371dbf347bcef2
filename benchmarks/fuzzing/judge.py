"""Finds faults in the outcome of a case: a traceback, a hang, a message of several lines, data before an error."""

from __future__ import annotations

import re

from benchmarks.fuzzing.cases import Case
from benchmarks.fuzzing.worker import FORKED_TOO_OFTEN, Outcome

GROWN_BYTES = 1 << 30
"""More memory than the small runs of a campaign have a use for."""
LONGEST_LINE = 3000

_OF_THE_LIMITS = ("File too large", "error: not enough memory", "could not be started: out of memory")
"""What a run says that is right, and meets the limits that the worker has set."""

_ERROR = "dlio_torch: error: "


def faults(case: Case, outcome: Outcome, limit_s: float) -> list[str]:
    """All faults of an outcome, each in a few words; empty if it has none."""
    found = []
    err = outcome.err
    if outcome.code is None and case.kind == "huge" and _is_long(err):
        return []
    if outcome.code is None:
        found.append(f"did not end within {limit_s:.0f} s")
    elif outcome.code == FORKED_TOO_OFTEN:
        found.append("started processes without limit")
    elif outcome.code == 1 and any(text in err for text in _OF_THE_LIMITS):
        pass
    elif outcome.code not in (0, 2, 3, 4):
        found.append(f"exit code {outcome.code}")
    if "Traceback (most recent call last)" in err or "Exception ignored" in err:
        found.append("a traceback")
    if "unexpected" in err and "this is a bug" in err:
        found.append("an unforeseen exception")
    if outcome.grown_bytes > GROWN_BYTES:
        found.append(f"{outcome.grown_bytes >> 20} MiB of memory")
    if outcome.code in (2, 3, 4):
        found += _message(err)
    if outcome.code == 2:
        left = [name for name in outcome.written if _is_data(name)]
        if left:
            found.append(f"refused after {left[0]} was written")
    return found


def _is_long(err: str) -> bool:
    """Whether the case reports that it works on something that is valid and takes long."""
    return err.rstrip("\n").split("\n")[-1].startswith(("training: ", "generating: "))


def _is_data(name: str) -> bool:
    """Whether a file shows that the work had begun."""
    return not name.endswith("/.lock")


def _message(err: str) -> list[str]:
    lines = [line for line in err.split("\n") if _ERROR in line]
    if len(lines) != 1:
        return [f"{len(lines)} lines of errors"]
    (line,) = lines
    found = []
    if err.rstrip("\n").split("\n")[-1] != line:
        found.append("more lines follow the error")
    if "; " not in line:
        found.append("the error gives no hint")
    if len(line) > LONGEST_LINE:
        found.append(f"a line of {len(line)} characters")
    if re.search(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\u2028\u2029\u202a-\u202e]", line):
        found.append("a control character in the line")
    return found
