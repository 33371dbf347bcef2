"""Options for which a run needs a GPU."""

from __future__ import annotations

from dlio_torch.config.extensions import format_facts
from dlio_torch.config.schema import Config


def gpu_options(config: Config) -> list[str]:
    """The settings of a configuration that need a GPU, as ``option=value``; empty if it needs none."""
    loader, decoding = config.loader, format_facts(config).gpu_option(config)
    uses = {
        "train.device=cuda": config.train.device == "cuda",
        "compute.mode=cuda": config.compute.mode == "cuda",
        "loader.pin_memory=true": loader.pin_memory,
        "loader.read_to=device": loader.read_to == "device",
        f"loader.prefetch_to_device={loader.prefetch_to_device}": loader.prefetch_to_device > 0,
        decoding: bool(decoding),
    }
    return [option for option, used in uses.items() if used]
