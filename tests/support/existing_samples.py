"""Samples of existing files, read with the options that their inspection gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.config.compose import compose
from dlio_torch.data.dataset.manifest import existing_manifest
from dlio_torch.data.dataset.map_dataset import SampleDataset
from dlio_torch.data.engines.batch_loader import BatchLoader
from dlio_torch.data.engines.decoupled.batch_groups import DecoupledSource
from dlio_torch.data.engines.registry import format_of
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.formats.core.batch import samples_of
from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.iotrace.recorder.spans import NULL


def read_existing(path: Path, *settings: str) -> list[dict[str, npt.NDArray[Any]]]:
    """Reads all samples of ``dataset.path``, as a run without a recipe does."""
    config = compose([f"dataset.path={path}", *settings]).config
    fmt = format_of(config)
    manifest, _ = existing_manifest(config, fmt)
    if config.loader.engine == "decoupled":
        order = BatchSampler(SamplerSpec(batch_size=manifest.num_samples), num_samples=manifest.num_samples)
        loader = BatchLoader(config.loader, DecoupledSource(fmt, manifest, NULL, verify=False), order)
        batch = next(iter(loader.epoch(0)))
        loader.close()
    else:
        batch = SampleDataset(fmt, manifest, NULL).__getitems__(list(range(manifest.num_samples)))
    return [{name: np.array(array) for name, array in sample.items()} for _, sample in samples_of(batch, fmt.specs())]


def settings_of(path: Path) -> dict[str, Any]:
    """The options of ``dataset`` that the inspection of a path gives."""
    return inspect_path(str(path)).settings()
