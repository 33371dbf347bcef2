"""Checks of the options of ``dataset``: what is generated, or read, has to be possible."""

from __future__ import annotations

from dlio_torch.config.check import Fail
from dlio_torch.config.schema import Config, FieldConfig

_DTYPES = frozenset(
    ["bool", "float16", "float32", "float64"] + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)

MOST_SAMPLES = 1 << 40
"""Samples of a split: those of the evaluation are numbered from here on."""


def check_dataset(config: Config, fail: Fail) -> None:
    """Refuse arrays, and options of a format, that no file can be made of.

    Args:
        config: a complete configuration.
        fail: raises the error; called with keys, problem and way out.

    Raises:
        ConfigError: naming the keys, their values and what to change.
    """
    data = config.dataset
    if config.verify and data.path is not None:
        fail(
            ["verify", "dataset.path"],
            "only generated samples have a known content",
            "set verify=false, or leave dataset.path out",
        )
    if data.format == "synthetic" and data.path is not None:
        fail(
            ["dataset.format", "dataset.path"],
            "synthetic samples are made in memory, no file is read",
            "leave dataset.path out, or choose the format of the files",
        )
    for files, samples in (("num_files", "samples_per_file"), ("num_files_eval", "samples_per_file_eval")):
        if data.path is None and getattr(data, files) * getattr(data, samples) > MOST_SAMPLES:
            fail(
                [f"dataset.{files}", f"dataset.{samples}"],
                f"samples are numbered up to {MOST_SAMPLES}",
                "take fewer files, or fewer samples in a file",
            )
    names: set[str] = set()
    for i, item in enumerate(data.fields):
        key = f"dataset.fields.{i}"
        if item.dtype not in _DTYPES:
            fail([f"{key}.dtype"], "no such element type", f"types are {', '.join(sorted(_DTYPES))}")
        if item.name in names or not item.name.strip("/"):
            fail([f"{key}.name"], "names must be unique and not empty", "rename one of them")
        names.add(item.name)
        _positive(item.shape, f"{key}.shape", fail)
        _positive(item.chunk or [], f"{key}.chunk", fail)
        if item.length_stdev and not item.length_mean:
            fail(
                [f"{key}.length_stdev", f"{key}.length_mean"],
                "a spread needs a mean length",
                f"set {key}.length_mean, or {key}.length_stdev=0",
            )
    _positive(data.larcv3.image_shape, "dataset.larcv3.image_shape", fail)
    for key, level in (("hdf5", data.hdf5.compression_level), ("larcv3", data.larcv3.compression_level)):
        if level > 9:
            fail([f"dataset.{key}.compression_level"], "levels are 0 to 9", "set 9 or less")
    if data.format == "hdf5":
        if not data.fields and data.path is None:
            fail(
                ["dataset.fields", "dataset.format"],
                "no arrays to write",
                "set dataset.fields=[{name: data, shape: [64]}]",
            )
        for i, item in enumerate(data.fields):
            _chunking(config, item, i, fail)
    if data.format == "larcv3" and not data.larcv3.producers:
        fail(
            ["dataset.larcv3.producers", "dataset.format"],
            "no groups to read",
            "set dataset.larcv3.producers=[{name: sparse2d_image}]",
        )


def _chunking(config: Config, item: FieldConfig, index: int, fail: Fail) -> None:
    hdf5 = config.dataset.hdf5
    if hdf5.compression != "none" and not hdf5.chunk_bytes and item.chunk is None:
        fail(
            ["dataset.hdf5.compression", "dataset.hdf5.chunk_bytes"],
            f"only chunked arrays can be compressed, and dataset.fields.{index} ({item.name}) is contiguous",
            "set dataset.hdf5.chunk_bytes=64KiB, or dataset.hdf5.compression=none",
        )


def _positive(shape: list[int], key: str, fail: Fail) -> None:
    if any(length < 1 for length in shape):
        fail([key], "every length must be at least 1", f"set {key}=[64,64], for example")
