"""Loaders of this package over generated data of one layout, assembled as in a run."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.harness.tables import Missing
from benchmarks.loading.work import Way, Work, epoch
from dlio_torch.config.schema import Config, LoaderConfig
from dlio_torch.config.schema_dataset import DatasetConfig, FieldConfig
from dlio_torch.config.schema_reading import AccessConfig
from dlio_torch.config.schema_training import TrainConfig
from dlio_torch.config.validate import validate
from dlio_torch.data.dataset.manifest import Manifest, generated_manifests
from dlio_torch.data.engines.assemble import assemble
from dlio_torch.data.engines.batch_loader import BatchLoader
from dlio_torch.data.order.planning import plan_order
from dlio_torch.errors import DlioError
from dlio_torch.formats.core import registry
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.hdf5.options import Hdf5Config
from dlio_torch.formats.indexed_binary.options import BinaryConfig
from dlio_torch.formats.tfrecord.options import TfrecordConfig
from dlio_torch.iotrace.recorder.spans import NULL

CHUNK_BYTES = 65536
LAYOUTS: dict[str, dict[str, Any]] = {
    "npy": {"format": "npy"},
    "npz": {"format": "npz"},
    "binary": {"format": "indexed_binary", "binary": BinaryConfig()},
    "hdf5": {"format": "hdf5"},
    "hdf5_chunks": {"format": "hdf5", "hdf5": Hdf5Config(chunk_bytes=CHUNK_BYTES)},
    "hdf5_gzip": {
        "format": "hdf5",
        "hdf5": Hdf5Config(chunk_bytes=CHUNK_BYTES, compression="gzip", compressibility=0.5),
    },
    "tfrecord": {"format": "tfrecord", "tfrecord": TfrecordConfig(index=True)},
}
_WORKERS = {"num_workers": 2, "persistent_workers": True, "multiprocessing_context": "fork"}
LOADERS: dict[str, dict[str, Any]] = {
    "ours, decoupled": {"engine": "decoupled"},
    "ours, decoupled, 2 workers": {"engine": "decoupled", "read_threads": 1, **_WORKERS},
    "ours, dataloader": {},
    "ours, dataloader, 2 workers": _WORKERS,
}


class Data:
    """Generated data of one layout, in one file.

    Raises:
        DlioError: the format needs a package that is not here.
    """

    def __init__(self, folder: Path, name: str, work: Work) -> None:
        self.work = work
        self.config = Config(
            dataset=DatasetConfig(
                root=str(folder), num_files=1, samples_per_file=work.samples,
                fields=[FieldConfig(shape=[work.size // 4])], **LAYOUTS[name],
            ),
            access=AccessConfig(order=work.order),  # type: ignore[arg-type]
            train=TrainConfig(batch_size=work.batch, epochs=1),
        )  # fmt: skip
        self.fmt: Format = registry.create(self.config.dataset, self.config.seed)
        self.manifests: dict[str, Manifest] = generated_manifests(self.config, self.fmt)
        self.path = self.manifests["train"].path(0)
        self.path.parent.mkdir(parents=True)
        with ThreadPoolExecutor() as pool:
            self.fmt.write(self.path, 0, work.samples, pool)
        self.files = [path for path in self.fmt.files(self.path) if path.exists()]

    def ways(self) -> Iterator[Way | Missing]:
        """Each loader of this package, or the reason why it cannot read this layout."""
        for name, options in LOADERS.items():
            try:
                yield self._way(name, options)
            except DlioError as error:
                yield Missing(name, str(error))

    def _way(self, name: str, options: dict[str, Any]) -> Way:
        loader = self.assembled(options)
        return Way(name, lambda: epoch(lambda: loader.epoch(0), self.work), self.files, loader.close)

    def assembled(self, options: dict[str, Any]) -> BatchLoader:
        """The loader with these options of ``loader``.

        Raises:
            DlioError: it cannot read this layout.
        """
        config = replace(self.config, loader=LoaderConfig(**options))
        validate(config)
        fmt = registry.create(config.dataset, config.seed, layout=config.loader.engine == "decoupled")
        order = plan_order(config, fmt, self.manifests, 0, 1)
        return assemble(config, fmt, self.manifests, order, NULL).train
