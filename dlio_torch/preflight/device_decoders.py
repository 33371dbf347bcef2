"""Preflight check: the rank's GPU can decode the samples of the format."""

from __future__ import annotations

from dlio_torch.config.extensions import format_facts
from dlio_torch.config.schema import Config
from dlio_torch.formats.core.format import Format
from dlio_torch.train.to_device import rank_gpu


def check_device_decoder(config: Config, fmt: Format, local_rank: int) -> None:
    """Refuse decoding on the GPU where the format's library cannot do it; there must be a GPU.

    Args:
        config: the resolved configuration.
        fmt: the format.
        local_rank: number of the rank on its node.

    Raises:
        PreconditionError: the library is missing, or cannot decode on this GPU.
    """
    if format_facts(config).gpu_option(config):
        fmt.device_decoder(rank_gpu(local_rank))
