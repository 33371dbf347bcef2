"""Demand of a node's accelerators: the samples and bytes per second that they use up.

::

    samples/s of one accelerator   samples of a batch / (seconds of compute of a step * steps that use one batch)
    samples/s of the node          samples/s of one accelerator * accelerators
    stored bytes/s of the node     samples/s of the node * mean bytes of a sample in a file
    bytes/s in memory              samples/s of the node * mean bytes of a sample in the trainer's memory
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from dlio_torch.config.scaling import rank_batch
from dlio_torch.config.schema import Config

CountSource = Literal["--accelerators", "visible GPUs", "default"]
"""Origin of the number of accelerators."""
NO_COMPUTE = "the recipe emulates no compute (compute.step_s=0 or compute.mode=none)"


@dataclass(frozen=True)
class NodeDemand:
    """Demand of all accelerators of a node.

    Attributes:
        accelerators: number of accelerators.
        source: origin of this number.
        batch_size: samples of a batch of one accelerator.
        step_s: seconds of compute for which a batch lasts; 0: the recipe emulates no compute.
        stored_sample_bytes: mean bytes of a sample in a file.
        sample_bytes: mean bytes of a sample in the trainer's memory.
        hold_steps: steps that use the same batch.
    """

    accelerators: int
    source: CountSource
    batch_size: int
    step_s: float
    stored_sample_bytes: float
    sample_bytes: float
    hold_steps: int = 1

    @property
    def samples_per_s(self) -> float | None:
        """Samples per second that the node needs; ``None``: no compute, so that any rate is enough."""
        each = self.accelerator_samples_per_s
        return None if each is None else each * self.accelerators

    @property
    def accelerator_samples_per_s(self) -> float | None:
        """Samples per second that one accelerator needs; ``None`` without compute."""
        return self.batch_size / self.step_s if self.step_s else None

    @property
    def why(self) -> str:
        """Reason that there is no demand; empty if there is one."""
        return "" if self.step_s else NO_COMPUTE

    def to_record(self) -> dict[str, Any]:
        """The demand as JSON-ready values; ``None``: there is none, for the reason under ``why``."""
        rate = self.samples_per_s
        return {
            **vars(self),
            "samples_per_s": rate,
            "accelerator_samples_per_s": self.accelerator_samples_per_s,
            "stored_bytes_per_s": None if rate is None else rate * self.stored_sample_bytes,
            "bytes_per_s": None if rate is None else rate * self.sample_bytes,
            "why": self.why,
        }


def demand_of(
    config: Config, accelerators: int, source: CountSource, *, stored_sample_bytes: float, sample_bytes: float
) -> NodeDemand:
    """Computes the demand of a recipe.

    Args:
        config: the recipe with its step time as published, not as a scale shrinks it.
        accelerators: number of accelerators of the node; each trains as one rank.
        source: origin of this number.
        stored_sample_bytes: mean bytes of a sample in a file.
        sample_bytes: mean bytes of a sample in memory.
    """
    hold_steps = config.access.hold_steps
    batch, step_s = rank_batch(config, accelerators), config.compute.emulated_step_s * hold_steps
    return NodeDemand(accelerators, source, batch, step_s, stored_sample_bytes, sample_bytes, hold_steps)
