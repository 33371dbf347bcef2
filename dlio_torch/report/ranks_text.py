"""Text on the communication of the ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlio_torch.units import format_duration, format_size


def horovod_text(settings: Mapping[str, Any]) -> str:
    """Horovod's effective settings, and the origin of those that are not its defaults.

    Args:
        settings: ``ranks_by.settings`` of a summary (:mod:`dlio_torch.dist.hvd_settings`).
    """
    shown = (
        ("fusion_threshold_bytes", "fusion of at most {}", format_size, "no fusion"),
        ("cycle_time_s", "cycle {}", format_duration, "no pause between cycles"),
        ("cache_capacity", "cache of {} tensors", str, "no cache"),
    )
    parts = []
    for name, words, form, nothing in shown:
        value, by = settings[name], settings["set_by"][name]
        text = "tuned by Horovod: " + name if value is None else words.format(form(value)) if value else nothing
        parts.append(text if by in ("default", "autotune") else f"{text} ({by})")
    if settings["groups"] is not None:
        parts.append(f"{settings['groups']} groups")
    if settings["compression"] != "none":
        parts.append(f"compressed to {settings['compression']}")
    return ", ".join(parts)
