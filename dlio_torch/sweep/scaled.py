"""What the scale changed of a study's runs, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dlio_torch.config.scaling import COMPUTE_ONLY
from dlio_torch.sweep.resolve import Resolved

_MOST = 12


def scale_lines(resolved: Sequence[Resolved]) -> tuple[str, ...]:
    """What the scale changed of all points or of some, as a single run says it, and what that does to the figures."""
    found = Counter(note for one in resolved for note in one.composed.notes)
    lines = [
        note if count == len(resolved) else f"{note}, {count} of {len(resolved)} points"
        for note, count in found.items()
    ]
    if len(lines) > _MOST:
        lines[_MOST - 1 :] = [f"and {len(lines) - _MOST + 1} more, see show"]
    factors = sorted(
        {
            one.composed.config.scale.compute
            for one in resolved
            if any(key.startswith("compute.") for key in one.composed.scaled)
        }
    )
    if factors:
        lines.append(f"compute is scaled by {' or '.join(f'{one:g}' for one in factors)} {COMPUTE_ONLY}")
    return tuple(lines)
