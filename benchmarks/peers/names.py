"""The loaders of other projects: their names, packages, and variants."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Peer:
    """A loader of another project.

    Attributes:
        name: in the tables.
        module: of :mod:`benchmarks.peers`.
        imports: what must be importable.
        packages: what ``pip install`` needs for that.
        variants: what is told to the module, by what follows the name in the tables.
    """

    name: str
    module: str
    imports: tuple[str, ...]
    packages: str
    variants: dict[str, dict[str, Any]] = field(default_factory=lambda: {"": {"workers": 0}})


WITH_WORKERS: dict[str, dict[str, Any]] = {"": {"workers": 0}, ", 2 workers": {"workers": 2}}

PEERS = (
    Peer(
        "SPDL", "spdl", ("spdl.pipeline",), "spdl",
        {", by sample, 2 threads": {"by": "sample"}, ", by batch, 2 threads": {"by": "batch"}},
    ),
    Peer("webdataset", "tar", ("webdataset",), "webdataset", WITH_WORKERS),
    Peer("MosaicML streaming", "mosaic", ("streaming",), "mosaicml-streaming", WITH_WORKERS),
    Peer("Grain", "arrayrecord", ("grain", "array_record"), "grain array-record",
        {"": {"workers": 0}, ", 2 workers started each epoch": {"workers": 2}},
    ),
    Peer(
        "FFCV", "beton", ("ffcv",), "ffcv, after apt install libopencv-dev libturbojpeg0-dev",
        {", 2 threads": {"workers": 2}},
    ),
    Peer("DALI", "dali", ("nvidia.dali",), "nvidia-dali-cuda120", {", 2 threads": {"workers": 2}}),
)  # fmt: skip
