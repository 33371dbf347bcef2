"""FFCV: its beton file, one array field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from ffcv.fields import NDArrayField
from ffcv.fields.decoders import NDArrayDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import ToTensor
from ffcv.writer import DatasetWriter

from benchmarks.peers.work import PeerWork, Start


class _Indexed:
    """The samples by number, as the writer's processes ask for them."""

    def __init__(self, raw: Path, work: PeerWork) -> None:
        self._raw, self._work = raw, work

    def __len__(self) -> int:
        return self._work.samples

    def __getitem__(self, index: int) -> tuple[Any]:
        count = self._work.size // 4
        return (np.fromfile(self._raw, np.float32, count, offset=index * self._work.size),)


def write(folder: Path, raw: Path, work: PeerWork) -> None:
    field = NDArrayField(np.dtype("float32"), (work.size // 4,))
    writer = DatasetWriter(
        str(folder / "data.beton"), {"data": field}, page_size=max(8 << 20, 2 * work.size), num_workers=1
    )
    writer.from_indexed_dataset(_Indexed(raw, work))


def start(folder: Path, raw: Path, work: PeerWork, variant: dict[str, Any]) -> Start:
    loader = Loader(
        str(folder / "data.beton"),
        batch_size=work.batch,
        num_workers=variant["workers"],
        order=OrderOption.RANDOM if work.shuffled else OrderOption.SEQUENTIAL,
        os_cache=not work.cold,
        pipelines={"data": [NDArrayDecoder(), ToTensor()]},
    )
    return lambda: loader
