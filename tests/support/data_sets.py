"""Data sets that tests generate, in this process and in others."""

from __future__ import annotations

import time
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any

from data_files import RawFormat

from dlio_torch.config.schema import Config, GenerateConfig
from dlio_torch.data.dataset import manifest
from dlio_torch.data.dataset.generation import Generated, generate
from dlio_torch.dist.base import Communicator, SingleCommunicator
from dlio_torch.formats.core import registry
from dlio_torch.formats.core.format import Format
from dlio_torch.iotrace.recorder.spans import NULL


def generated(
    config: Config, fmt: Format | None = None, comm: Communicator | None = None, **options: Any
) -> tuple[Generated, Path]:
    fmt = fmt or registry.create(config.dataset, config.seed)
    config = replace(config, generate=GenerateConfig(**{"num_workers": 2, **options}))
    return generate(config, fmt, comm or SingleCommunicator(), NULL), manifest.data_folder(config, fmt)


class Accompanied(RawFormat):
    """Leaves two more files beside each of its own; ``fails``: number of the first sample whose write fails."""

    fails = -1

    def companions(self) -> tuple[str, ...]:
        return (".a", ".b")

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        for suffix in self.companions():
            path.with_name(path.name + suffix).write_bytes(suffix.encode() * 10)
            time.sleep(self.write_s)
        if first_sample == self.fails:
            raise OSError(28, "No space left on device")
        super().write(path, first_sample, num_samples, pool)


def fingerprint(config: Config) -> str:
    return manifest.fingerprint(config, registry.create(config.dataset, config.seed))
