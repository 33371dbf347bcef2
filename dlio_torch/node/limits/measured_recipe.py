"""Recipe whose limits are measured: its options without those that a measurement replaces, its format and its files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dlio_torch.config.schema import Config
from dlio_torch.data.dataset.description import read_description, use_description
from dlio_torch.data.dataset.manifest import Manifest, check_present, data_folder
from dlio_torch.data.engines.assemble import Loaders, assemble
from dlio_torch.data.engines.registry import facts, format_of
from dlio_torch.data.order.planning import fit_to_data, plan_order
from dlio_torch.formats.core.format import Format
from dlio_torch.iotrace.recorder.spans import NULL
from dlio_torch.preflight.data_location import locate_data


@dataclass(frozen=True)
class MeasuredRecipe:
    """Recipe whose limits are measured.

    Attributes:
        config: the experiment of one rank, which reads by POSIX calls and uses each batch once.
        format: reads the files.
        manifest: the training samples.
        folder: an existing folder on the storage of the data.
        seconds: length of each measurement.
        accelerators: emulated accelerators of this node.
        hold_steps: steps that use a batch.
        stored_bytes: bytes of the files of all training samples; 0: the recipe has no files.
    """

    config: Config
    format: Format
    manifest: Manifest
    folder: Path
    seconds: float
    accelerators: int
    hold_steps: int
    stored_bytes: int

    @property
    def batch_size(self) -> int:
        """Samples of a batch of one rank."""
        return self.config.train.batch_size

    @property
    def stored_sample_bytes(self) -> float:
        """Mean bytes that reading a sample asks the storage for."""
        return self.stored_bytes * self.format.sharing() / self.manifest.num_samples

    @property
    def sample_bytes(self) -> float:
        """Mean bytes of a sample in memory."""
        return self.format.sample_bytes()

    @property
    def reads_batches(self) -> bool:
        """Whether batches are lists of sample numbers, which may be read in any order; else files are streamed."""
        return self.config.access.pattern == "samples"

    @property
    def reads_ranges(self) -> bool:
        """Whether the engine of the recipe reads byte ranges itself."""
        return facts(self.config.loader.engine).reads_ranges

    def loaders(self, config: Config | None = None, rank: int = 0, world_size: int = 1) -> Loaders:
        """Loaders of one rank, for ``config`` instead of the recipe's options if given.

        Raises:
            DlioError: batches, steps or ranks do not fit the data, or a file cannot be read.
        """
        config, manifests = config or self.config, {"train": self.manifest}
        order = plan_order(config, self.format, manifests, rank, world_size)
        return assemble(config, self.format, manifests, order, NULL)

    def with_steps(self, steps: int) -> Config:
        """The experiment with so many steps in an epoch."""
        return replace(self.config, train=replace(self.config.train, steps=steps))


def open_recipe(config: Config, folder: Path, seconds: float, accelerators: int) -> MeasuredRecipe:
    """Opens the recipe of an experiment whose data exist.

    Args:
        config: the resolved experiment.
        folder: an existing folder on the storage of the data.
        seconds: length of each measurement.
        accelerators: emulated accelerators of this node.

    Raises:
        DlioError: data are missing, or do not fit the options.
    """
    fmt = format_of(config)
    train = {"train": locate_data(config, fmt).manifests["train"]}
    size = check_present(train, fmt) if fmt.needs_files else 0
    if config.dataset.path is None and fmt.needs_files:
        place = data_folder(config, fmt)
        content = read_description(place)
        if content is not None:
            use_description(content, place, fmt)
    plain = _plain(_fitted(config, train), accelerators)
    hold_steps = config.access.hold_steps
    return MeasuredRecipe(plain, fmt, train["train"], folder, seconds, accelerators, hold_steps, size)


def _fitted(config: Config, manifests: Mapping[str, Manifest]) -> Config:
    scaled = ["train.steps"] if config.scale.max_steps else []
    return fit_to_data(config, manifests, 1, scaled=scaled, fits_batch=False)


def _plain(config: Config, accelerators: int) -> Config:
    """The experiment of one rank without what a measurement replaces."""
    access, train = config.access, config.train
    endless = access.repeat or access.pattern == "lanes"
    batch = train.batch_size if train.batch_scope == "rank" else math.ceil(train.batch_size / accelerators)
    # An engine that reads ranges needs a thread; others read in the thread that asks.
    threads = 1 if facts(config.loader.engine).reads_ranges else 0
    loader = replace(
        config.loader, num_workers=0, read_threads=threads, prefetch_factor=None, persistent_workers=False,
        multiprocessing_context=None, pin_memory=False, in_memory=False, replay="none",
    )  # fmt: skip
    return replace(
        config,
        verify=False,
        access=replace(access, io="posix", hold_steps=1),
        loader=loader,
        train=replace(
            train, batch_size=batch, batch_scope="rank", steps=train.steps if endless else 0, device="cpu",
            eval_every_epochs=0, eval_every_steps=0,
        ),
    )  # fmt: skip
