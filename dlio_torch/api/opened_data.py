"""Format and files of a configuration, ready to be read: generated data are written where they are missing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from dlio_torch.config.compose import Composed
from dlio_torch.config.schema import Config
from dlio_torch.config.validate import check_world
from dlio_torch.data.dataset import description
from dlio_torch.data.dataset.generation import generate
from dlio_torch.data.dataset.generation_lock import BeingWritten
from dlio_torch.data.dataset.manifest import Manifest, data_folder
from dlio_torch.data.engines.registry import format_of
from dlio_torch.data.order.planning import RankOrder, fit_to_data, plan_order
from dlio_torch.dist.base import SingleCommunicator
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.format import Format
from dlio_torch.iotrace.recorder.spans import NULL
from dlio_torch.preflight.data_location import locate_data
from dlio_torch.preflight.feasibility import check_sample_shapes

_POLL_S = 0.1
_OF_RUNS = {"access.io": "posix", "stage.dir": None, "loader.replay": "none"}
"""Options that need the processes of a run, and the value that they have here."""


@dataclass(frozen=True)
class OpenedData:
    """The data of an experiment.

    Attributes:
        config: the experiment.
        format: reads the files.
        manifests: the files, by split.
        fits_batch: whether the data may lower the batch size, which nobody set.
    """

    config: Config
    format: Format
    manifests: Mapping[str, Manifest]
    fits_batch: bool = False

    @property
    def train(self) -> Manifest:
        """The files of the training samples."""
        return self.manifests["train"]

    def order(self, rank: int, world_size: int) -> tuple[Config, RankOrder]:
        """The experiment with the steps that the data allow, and the order in which a rank reads training samples.

        Raises:
            ConfigError: batches, steps or ranks do not fit the data.
        """
        scaled = ["train.steps"] if self.config.scale.max_steps else []
        config = fit_to_data(self.config, self.manifests, world_size, scaled=scaled, fits_batch=self.fits_batch)
        check_world(config, world_size, self.train.num_samples, self.train.num_files)
        order = plan_order(config, self.format, {"train": self.train}, rank, world_size)
        check_sample_shapes(self.format, order.train)
        return config, order


def open_data(composed: Composed) -> OpenedData:
    """Opens the data of an experiment; generates files that are missing.

    If another process generates the same data set, this one waits for it.

    Raises:
        DlioError: data are missing, damaged or cannot be written, or an option needs a run.
    """
    config = composed.config
    _refuse_options_of_runs(config)
    fmt = format_of(config)
    data = locate_data(config, fmt)
    if config.dataset.path is None and fmt.needs_files:
        _generate(config, fmt)
        folder = data_folder(config, fmt)
        content = description.read_description(folder)
        if content is not None:
            description.use_description(content, folder, fmt)
    return OpenedData(config, fmt, data.manifests, composed.fits_batch)


def _generate(config: Config, fmt: Format) -> None:
    while True:
        try:
            generate(config, fmt, SingleCommunicator(), NULL)
            return
        except BeingWritten:
            time.sleep(_POLL_S)  # ranks of a user's program open the same data at the same time


def _refuse_options_of_runs(config: Config) -> None:
    for key, plain in _OF_RUNS.items():
        group, _, name = key.partition(".")
        value = getattr(getattr(config, group), name)
        if value != plain:
            usable = "null" if plain is None else plain
            raise ConfigError(
                f"{key}={value}: this option needs the processes of a run, and a dataset or loader of the Python "
                "interface has none",
                hint=f"set {key}={usable}, or start the whole experiment with dlio_torch.run()",
            )
