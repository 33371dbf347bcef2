"""Recipe whose limits are measured: its options without those that a measurement replaces, its format and its files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dlio_torch.config.scaling import rank_batch
from dlio_torch.config.schema import Config
from dlio_torch.data.dataset.description import read_description, use_description
from dlio_torch.data.dataset.manifest import Manifest, check_present, data_folder
from dlio_torch.data.engines.assemble import Loaders, assemble
from dlio_torch.data.engines.registry import facts, format_of
from dlio_torch.data.order.lanes_plan import LanesPlan
from dlio_torch.data.order.planning import fit_to_data, plan_order, train_sampler
from dlio_torch.formats.core.format import Format
from dlio_torch.iotrace.recorder.spans import NULL
from dlio_torch.preflight.data_location import locate_data


@dataclass(frozen=True)
class MeasuredRecipe:
    """Recipe whose limits are measured.

    Attributes:
        config: the experiment of one rank, which reads by POSIX calls and uses each batch once.
        reading: the same for reads: lanes, which take whole samples one after another, become batches of one sample.
        pieces: samples of ``config`` that a sample of ``reading`` gives; 1 but for lanes.
        format: reads the files.
        manifest: the training samples.
        folder: an existing folder on the storage of the data.
        seconds: length of each measurement.
        accelerators: emulated accelerators of this node.
        hold_steps: steps that use a batch.
        stored_bytes: bytes of the files of all training samples; 0: the recipe has no files.
        most_steps: most batches that decoding may read; 0: all.
    """

    config: Config
    reading: Config
    pieces: float
    format: Format
    manifest: Manifest
    folder: Path
    seconds: float
    accelerators: int
    hold_steps: int
    stored_bytes: int
    most_steps: int = 0

    @property
    def batch_size(self) -> int:
        """Samples of a batch of one rank."""
        return self.config.train.batch_size

    @property
    def stored_sample_bytes(self) -> float:
        """Mean bytes of a sample of ``reading`` in its files."""
        return self.stored_bytes * self.format.sharing() / self.manifest.num_samples

    @property
    def sample_bytes(self) -> float:
        """Mean bytes of a sample of ``config`` in memory."""
        return self.format.sample_bytes() / self.pieces

    @property
    def reads_batches(self) -> bool:
        """Whether batches are lists of sample numbers, which may be read in any order; else files are streamed."""
        return self.reading.access.pattern == "samples"

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

    def reading_of(self, steps: int) -> Config:
        """The options of ``reading`` with so many steps in an epoch."""
        return replace(self.reading, train=replace(self.reading.train, steps=steps))


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
    reading, pieces = _reading(plain, fmt, train["train"])
    return MeasuredRecipe(
        plain, reading, pieces, fmt, train["train"], folder, seconds, accelerators, config.access.hold_steps, size
    )


def _reading(config: Config, fmt: Format, manifest: Manifest) -> tuple[Config, float]:
    """The options of reads, and the lanes' pieces that a whole sample gives."""
    if config.access.pattern == "stream":  # readers share the files, for a second one would find them cached
        return replace(config, access=replace(config.access, partition="files")), 1.0
    if config.access.pattern != "lanes":
        return config, 1.0
    plan = train_sampler(config, manifest, 0, 1, fmt)
    assert isinstance(plan, LanesPlan)
    piece = sum(math.prod(spec.shape) * spec.dtype.itemsize for spec in plan.cut(fmt.specs()))
    access = replace(config.access, pattern="samples", partition="none")
    train = replace(config.train, batch_size=1, steps=0)
    return replace(config, access=access, train=train), fmt.sample_bytes() / piece


def _fitted(config: Config, manifests: Mapping[str, Manifest]) -> Config:
    scaled = ["train.steps"] if config.scale.max_steps else []
    return fit_to_data(config, manifests, 1, scaled=scaled, fits_batch=False)


def _plain(config: Config, accelerators: int) -> Config:
    """The experiment of one rank without what a measurement replaces."""
    access, train = config.access, config.train
    steps = train.steps if access.pattern == "lanes" else 0  # lanes have no end
    # An engine that reads ranges needs a thread; others read in the thread that asks.
    threads = 1 if facts(config.loader.engine).reads_ranges else 0
    loader = replace(
        config.loader, num_workers=0, read_threads=threads, prefetch_factor=None, persistent_workers=False,
        multiprocessing_context=None, pin_memory=False, in_memory=False, replay="none",
    )  # fmt: skip
    return replace(
        config,
        verify=False,
        access=replace(access, io="posix", hold_steps=1, repeat=False),
        loader=loader,
        train=replace(
            train, batch_size=rank_batch(config, accelerators), batch_scope="rank", steps=steps, device="cpu",
            eval_every_epochs=0, eval_every_steps=0,
        ),
    )  # fmt: skip
