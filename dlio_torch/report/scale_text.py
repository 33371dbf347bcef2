"""Console text on what ``scale=`` changed."""

from __future__ import annotations

from collections.abc import Sequence

_MOST = 3
# Options whose change says the most about a run.
_FIRST = (
    "model.num_layers",
    "dataset.num_files",
    "dataset.samples_per_file",
    "train.steps",
    "compute.step_s",
    "train.batch_size",
)


def scale_line(scale: str, notes: Sequence[str]) -> str:
    """One line on the options that a scale changed.

    Args:
        scale: its name.
        notes: one for each option, which begins with the option's name.
    """
    places = {key: place for place, key in enumerate(_FIRST)}
    ordered = sorted(notes, key=lambda note: places.get(note.split()[0], len(places)))
    shown = ", ".join(note.rpartition(" (")[0] for note in ordered[:_MOST])
    if len(notes) <= _MOST:
        return f"scale: {scale}: {shown}"
    return f"scale: {scale} changes {len(notes)} options ({shown} ...); the verb show lists all"
