"""Checks that every parser reads or refuses damaged and hostile files, within a memory and a time limit.

One sound file of each format, log and run directory is made, and damaged in ways that a seed determines: flipped bits,
lengths out of all proportion, cuts, moved pieces, JSON values of other types.  Each case is read in a process of its
own, as a command of the tool or as the loader would.  It may be read, or be refused in one line that names the file;
anything else is a weakness, and is shown with the number of its case, which with the seed makes the same file again.

crash and hang of a library that is not the tool's own are shown as killed and hang: where the file was named by the
user, the first look at it is in a process apart (:mod:`dlio_torch.formats.core.probe`), and the run says so.
"""

from __future__ import annotations

import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harm import data, logs
from benchmarks.harm.child import READ, REFUSED, SECONDS, SOUND, Ended, run_cases
from benchmarks.harness.command import alone
from benchmarks.harness.rounds import say
from benchmarks.harness.tables import Missing, Part, Row, Table

NAME = "hostile"
_SHOWN = 3  # kinds of weakness of a target
_SLOW = 10  # cases of reading a file that cost as much as one of a run directory


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the options of this benchmark; see ``harness.command``."""
    parser.add_argument(
        "--cases", type=int, default=500, metavar="N", help=("number of cases of each kind of file (500)")
    )
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="seed of the damage (1)")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="WORD",
        help=("run only kinds of files with this text in their name"),
    )


def run(arguments: Namespace) -> Iterator[Part]:
    """Runs this benchmark; see ``harness.command``."""
    cases = 20 if arguments.quick else arguments.cases
    with tempfile.TemporaryDirectory(prefix="hostile-", dir=arguments.directory) as name:
        folder = Path(name)
        files, missing = data.targets(folder / "data", arguments.seed)
        yield from (Missing("ways", kind, why) for kind, why in missing.items())
        texts = logs.targets(folder / "logs", arguments.seed)
        for kind, one in {**files, **texts}.items():
            if arguments.only and not any(word in kind for word in arguments.only):
                continue
            slow = kind in texts and kind not in logs.QUICK
            number = max(1, cases // _SLOW) if slow else cases
            say(f"{kind}: {number} cases")
            began = time.monotonic()
            ended = list(run_cases(range(number), one, SECONDS))
            yield Table("ways", [_row(kind, ended, time.monotonic() - began)], "")


def _row(kind: str, ended: list[Ended], seconds: float) -> Row:
    counts = Counter(one.outcome for one in ended)
    weak = [one for one in ended if one.outcome not in SOUND]
    kinds: dict[tuple[str, str], Ended] = {}
    for one in weak:
        kinds.setdefault((one.outcome, one.text[:60]), one)
    shown = "; ".join(f"case {one.case}: {one.outcome} {one.text[:200]}" for one in list(kinds.values())[:_SHOWN])
    return {
        "file": kind,
        "cases": len(ended),
        "read": counts[READ],
        "refused": counts[REFUSED],
        "weak": len(weak),
        "seconds": round(seconds, 1),
        "weaknesses": shown.replace("|", "/") or "none",
    }


if __name__ == "__main__":
    alone(NAME)
