"""Text on the communication between the ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlio_torch.units import format_duration, format_size


def horovod_text(settings: Mapping[str, Any]) -> str:
    """Text on Horovod's effective settings, and on the origin of those that are not defaults.

    Args:
        settings: ``ranks_by.settings`` of a summary (:mod:`dlio_torch.dist.hvd_settings`).
    """
    shown = (
        ("fusion_threshold_bytes", "tensor fusion up to {}", format_size, "no tensor fusion"),
        ("cycle_time_s", "cycle time {}", format_duration, "cycle time 0"),
        ("cache_capacity", "response cache of {} tensors", str, "no response cache"),
    )
    parts = []
    for name, words, form, nothing in shown:
        value, by = settings[name], settings["set_by"][name]
        text = "tuned by Horovod: " + name if value is None else words.format(form(value)) if value else nothing
        parts.append(text if by in ("default", "autotune") else f"{text} ({by})")
    if settings["groups"] is not None:
        parts.append(f"{settings['groups']} tensor groups")
    if settings["compression"] != "none":
        parts.append(f"gradients compressed to {settings['compression']}")
    return ", ".join(parts)
