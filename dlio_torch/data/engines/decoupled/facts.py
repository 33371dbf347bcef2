"""Facts about the decoupled engine, and checks that refuse options which it cannot follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

from dlio_torch.data.engines.decoupled.io_options import check_reading_io
from dlio_torch.data.engines.facts import Demand, EngineFacts
from dlio_torch.formats.core.call_text import call_text
from dlio_torch.formats.core.facts import Axis, Call, Unused
from dlio_torch.formats.core.tuning import sizes

if TYPE_CHECKING:
    from dlio_torch.config.check import Fail
    from dlio_torch.config.schema import Config, LoaderConfig

THREADS = 2
"""Number of reader threads if ``loader.read_threads`` is 0."""

_AHEAD = "the engine limits its read-ahead by bytes (loader.prefetch_bytes)"
_UNUSED = (
    Unused("loader.prefetch_factor", _AHEAD, (None,)),
    Unused("loader.prefetch_batches", _AHEAD, (1,), "set loader.prefetch_bytes instead"),
    Unused("loader.in_memory", "the engine reads samples during training, in each epoch", (False,)),
    Unused("loader.opened_by", "the engine reads samples by their extents and maps no files", ("workers",)),
    Unused("access.interleave_prefetch", _AHEAD, (0,)),
    Unused("access.interleave_buffer", _AHEAD, (0,)),
    Unused("access.lane_probe", "the engine knows the shapes of samples without a probe", (False,)),
)
_TRANSFERS = ("256KiB", "1MiB", "4MiB")
_DEPTHS = (8, 32, 128)
_BYTES_AHEAD = ("4MiB", "64MiB")
_OF_THE_CACHE = "0B"
"""Size of the prefetch window that follows the processor's cache."""


class DecoupledFacts(EngineFacts):
    """Facts about engine ``decoupled``."""

    name: ClassVar[str] = "decoupled"
    builder: ClassVar[str] = "dlio_torch.data.engines.decoupled.create_engine:build"
    reads_ranges: ClassVar[bool] = True
    threads_in_workers: ClassVar[bool] = True
    main_thread: ClassVar[bool] = False
    worker_descriptors: ClassVar[int] = 6  # its memory and its event besides
    tensor_descriptors: ClassVar[bool] = False
    own_options: ClassVar[tuple[str, ...]] = ("prefetch_bytes", "transfer_size", "io", "queue_depth", "read_to")

    def demand(self, loader: LoaderConfig) -> Demand:
        from dlio_torch.data.engines.decoupled.prefetch_window import BATCHES, window_of_machine

        window, least = loader.prefetch_bytes or window_of_machine(), 1 if loader.prefetch_bytes else BATCHES
        keys = ("loader.prefetch_bytes",)
        return Demand(loader.num_workers, loader.read_threads or THREADS, 0, window, keys, least)

    def check(self, config: Config, fail: Fail) -> None:
        from dlio_torch.formats.core.registry import facts

        loader = config.loader
        if loader.style == "pipe" and loader.num_workers and config.access.pattern == "samples":
            fail(
                ["loader.style", "loader.num_workers", "loader.engine"],
                "worker processes need groups of batches, which a DataPipe does not provide",
                "set loader.style=map, or set loader.num_workers=0 and use loader.read_threads",
            )
        for option in self.unused(config):
            fail([option.key, "loader.engine"], option.reason, f"{option.advice}, or loader.engine=dataloader")
        if loader.replay == "samples":
            fail(
                ["loader.replay", "loader.engine"],
                "replayed samples are in memory and have no extents in files",
                "set loader.replay=reads",
            )
        about = facts(config.dataset.format)
        if config.dataset.direct_io and not about.ranges_past_cache(config):
            fail(
                ["dataset.direct_io", "dataset.format", "loader.engine"],
                "the engine reads files of this format whole, or with their framing, through the page cache",
                "set dataset.direct_io=false, or loader.engine=dataloader",
            )
        about.check_decoupled(config, fail)
        check_reading_io(config, fail)
        if loader.read_to == "device":
            from dlio_torch.data.engines.decoupled.device_options import check_read_to_device

            check_read_to_device(config, fail)

    def unused(self, config: Config) -> Iterator[Unused]:
        from dlio_torch.formats.core.registry import facts

        of_format = facts(config.dataset.format).unused_by_decoupled(config)
        limited = (option for option in (*_UNUSED, *of_format) if option.accepted)
        return (option for option in limited if attrgetter(option.key)(config) not in option.accepted)

    def axes(self, config: Config, cores: int) -> Sequence[Axis]:
        loader = config.loader
        counts = {1 << i for i in range(cores.bit_length()) if 1 << i <= cores}
        # Reading waits, more than it works.
        threads = {*counts, max(1, cores), 2 * cores, loader.read_threads or THREADS}
        axes: list[Axis] = [
            ("loader.read_threads", tuple(map(str, sorted(threads)))),
            ("loader.transfer_size", sizes(_TRANSFERS, loader.transfer_size)),
            ("loader.prefetch_bytes", (_OF_THE_CACHE, *sizes(_BYTES_AHEAD, loader.prefetch_bytes))),
        ]
        if loader.io == "io_uring":
            axes.append(("loader.queue_depth", tuple(map(str, sorted({*_DEPTHS, loader.queue_depth})))))
        return axes

    def call(self, config: Config) -> Call:
        defaults = type(config.loader)()
        options = {field.name: getattr(config.loader, field.name) for field in fields(defaults)}
        changed = {name: value for name, value in options.items() if value != getattr(defaults, name)}
        text = call_text("dlio_torch.config.schema.LoaderConfig", [], changed)
        return "dlio_torch (PyTorch has no such loader)", text
