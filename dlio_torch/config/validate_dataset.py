"""Checks of the options of ``dataset``: the data must be possible to generate or to read."""

from __future__ import annotations

from dlio_torch.config.check import Fail
from dlio_torch.config.extensions import all_facts, format_facts
from dlio_torch.config.schema import Config, FieldConfig

_DTYPES = frozenset(
    ["bool", "float16", "float32", "float64"] + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)

MOST_SAMPLES = 1 << 40
"""Largest number of training samples; evaluation samples are numbered from here on."""


def check_dataset(config: Config, fail: Fail) -> None:
    """Refuse arrays and format options from which no file can be generated.

    Args:
        config: a complete configuration.
        fail: raises the error; called with keys, problem and remedy.

    Raises:
        ConfigError: naming the keys, their values and what to change.
    """
    data = config.dataset
    if config.verify and data.path is not None:
        fail(
            ["verify", "dataset.path"],
            "samples can be verified only if this program generated them",
            "set verify=false, or leave dataset.path out",
        )
    facts = format_facts(config)
    if facts.in_memory and data.path is not None:
        fail(
            ["dataset.format", "dataset.path"],
            f"{facts.name} samples are generated in memory, so no file is read",
            "leave dataset.path out, or choose the format of the files",
        )
    for files, samples in (("num_files", "samples_per_file"), ("num_files_eval", "samples_per_file_eval")):
        if data.path is None and getattr(data, files) * getattr(data, samples) > MOST_SAMPLES:
            fail(
                [f"dataset.{files}", f"dataset.{samples}"],
                f"a data set has at most {MOST_SAMPLES} samples",
                "set fewer files, or fewer samples per file",
            )
    names: set[str] = set()
    for i, item in enumerate(data.fields):
        key = f"dataset.fields.{i}"
        if item.dtype not in _DTYPES:
            fail([f"{key}.dtype"], "no such element type", f"types are {', '.join(sorted(_DTYPES))}")
        if item.name in names or not item.name.strip("/"):
            fail([f"{key}.name"], "array names must be unique and not empty", "rename one of them")
        names.add(item.name)
        _positive(item.shape, f"{key}.shape", fail)
        _positive(item.chunk or [], f"{key}.chunk", fail)
        if item.length_stdev and not item.length_mean:
            fail(
                [f"{key}.length_stdev", f"{key}.length_mean"],
                "a standard deviation of the length needs a mean length",
                f"set {key}.length_mean, or {key}.length_stdev=0",
            )
    _once(config, fail)
    for known in all_facts():
        known.check_options(config, fail)
    facts.check(config, fail)


def _once(config: Config, fail: Fail) -> None:
    """Refuse elements of ``dataset.once`` whose file cannot be generated or read."""
    layouts: dict[str, tuple[int, list[FieldConfig]]] = {}
    for i, item in enumerate(config.dataset.once):
        key = f"dataset.once.{i}"
        if format_facts(config).in_memory:
            fail(
                [key, "dataset.format"], "samples that are generated in memory have no files", "leave dataset.once out"
            )
        if not item.name:
            if item.fields or item.columns:
                fail(
                    [f"{key}.name", f"{key}.fields"],
                    "a file of samples is opened if the name is empty, so arrays and columns need a file name",
                    f"set a file name, for example {key}.name=stats.h5",
                )
            continue
        if "/" in item.name or item.name.startswith((".", "dlio_torch.")) or item.name in ("train", "eval"):
            fail(
                [f"{key}.name"],
                "this name cannot be used for a file next to the data",
                f"choose another name, for example {key}.name=stats.h5",
            )
        if not item.fields:
            fail([f"{key}.fields"], "the file has no arrays to read", f"set {key}.fields=[{{name: mean, shape: []}}]")
        if layouts.setdefault(item.name, (item.rows, item.fields)) != (item.rows, item.fields):
            fail(
                [f"{key}.name", f"{key}.fields"],
                "an earlier element of dataset.once describes the same file with other rows or fields",
                "give both elements the same rows and fields",
            )
        for field in item.fields:
            if item.columns and (
                len(field.shape) != 1 or not 0 <= min(item.columns) <= max(item.columns) < field.shape[0]
            ):
                fail(
                    [f"{key}.columns"],
                    f"array {field.name} does not have these columns",
                    "give a one-dimensional array, and column indices below its length",
                )
            if field.length_mean or field.select:
                fail(
                    [f"{key}.fields"],
                    f"array {field.name} has length_mean or select, but arrays of dataset.once have a fixed shape "
                    "and are read whole",
                    "remove length_mean and select",
                )


def _positive(shape: list[int], key: str, fail: Fail) -> None:
    if any(length < 1 for length in shape):
        fail([key], "every length in a shape must be at least 1", f"write a shape such as {key}=[64,64]")
