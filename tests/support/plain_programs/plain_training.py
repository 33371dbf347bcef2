"""Flags, a small model, the step and the printed figures, which the plain training programs share.

Of a run, the last line on standard output is ``{"samples", "steps", "training_s", "samples_per_s"}``, with times from
the end of the first step to the end of the last one, so that the start of workers is left out.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler

FEATURES = 16
"""Numbers of a sample that the model sees."""


def flags(description: str | None, *, samples: int, batch_size: int = 8, workers: int = 2) -> argparse.ArgumentParser:
    """The flags of every program; those given here are their defaults."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data")
    parser.add_argument("--make", action="store_true", help="write the data and end")
    parser.add_argument("--samples", type=int, default=samples, help="samples that --make writes")
    parser.add_argument("--batch-size", type=int, default=batch_size)
    parser.add_argument("--workers", type=int, default=workers)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--step-ms", type=float, default=5.0, help="time of a step on the accelerator that is absent")
    parser.add_argument("--seed", type=int, help="of all random numbers; without it, each run has others")
    parser.add_argument("--output", type=Path, default=Path("checkpoints"), help="folder of the checkpoints, if any")
    parser.add_argument("--print-indices", action="store_true", help="print the indices or keys of every batch")
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The flags of the command line; seeds random numbers, and prints what batch samplers give where that is wanted."""
    args = parser.parse_args()
    if args.seed is not None:
        random.seed(args.seed)
        torch.manual_seed(args.seed)
    if args.print_indices:
        print_batch_samplers()
    return args


def print_batch_samplers() -> None:
    """Let torch's batch samplers print each batch of indices that they give; those of iterable data sets give none."""
    original = BatchSampler.__iter__

    def printing(sampler: BatchSampler) -> Iterator[list[int]]:
        for indices in original(sampler):
            if None not in indices:
                print_indices(indices)
            yield indices

    BatchSampler.__iter__ = printing  # type: ignore[method-assign]


def print_indices(indices: Iterable[object]) -> None:
    print_line({"indices": list(indices)})


def print_line(values: object) -> None:
    """Print a line of JSON in one piece, which ranks that print at the same time do not tear."""
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


class Training:
    """A model, its optimizer, and the clock of the steps.

    Args:
        args: flags of the program.
        model: instead of a linear one.
        ranks: that train together, each with as many samples.
    """

    def __init__(self, args: argparse.Namespace, model: nn.Module | None = None, ranks: int = 1) -> None:
        self.model = nn.Linear(FEATURES, 1) if model is None else model
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.steps = self.samples = 0
        torch.set_num_threads(1)  # the sleep stands for the accelerator, which would leave the other cores alone
        self._step_s, self._ranks = args.step_ms / 1000, ranks
        self._first_end = self._last_end = 0.0
        self._first_samples = 0

    def step(self, batch: Tensor) -> None:
        """Train on a batch, as long as the accelerator would."""
        features = batch.flatten(1)[:, :FEATURES].float()
        self.optimizer.zero_grad()
        self.model(features).square().mean().backward()
        self.optimizer.step()
        time.sleep(self._step_s)
        self._count(len(batch) * self._ranks)

    def end_step(self) -> None:
        """Count what was done until now, such as a checkpoint, as a part of the last step."""
        self._last_end = time.perf_counter()

    def _count(self, samples: int) -> None:
        self.end_step()
        self.steps += 1
        self.samples += samples
        if self.steps == 1:
            self._first_end, self._first_samples = self._last_end, samples

    def report(self) -> None:
        """Print the figures of the run."""
        seconds = self._last_end - self._first_end
        figures = {"samples": self.samples, "steps": self.steps, "training_s": seconds}
        rate = (self.samples - self._first_samples) / seconds if seconds else None
        print_line({**figures, "samples_per_s": rate})
