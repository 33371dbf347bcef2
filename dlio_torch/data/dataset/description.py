"""Description of a generated data set (``dlio_torch.json``): writing, reading and comparison with a run.

It is also the marker that lists the files of the data set, for ``clean``: by the pattern of their names and the most
files that each split has had.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from dlio_torch.config.schema import Config
from dlio_torch.data.dataset.checksum import CHECKSUMS
from dlio_torch.data.dataset.manifest import SPLITS, VERSION, data_folder, fingerprint, generated_manifests
from dlio_torch.errors import DataError
from dlio_torch.formats.core.format import Format
from dlio_torch.ownership.marker import KEY, made_by
from dlio_torch.ownership.names import LOCK, MARKER, numbers

DESCRIPTION = MARKER


def describe(config: Config, fmt: Format, parameters: dict[str, float] | None = None) -> dict[str, Any]:
    """Content of ``dlio_torch.json``; without ``parameters`` the format computes them."""
    return {
        "version": VERSION,
        "recipe": config.recipe,
        "fingerprint": fingerprint(config, fmt),
        "seed": config.seed,
        "samples_per_file": config.dataset.samples_per_file,
        "samples_per_file_eval": config.dataset.samples_per_file_eval,
        "layout": fmt.layout_options(),
        "parameters": fmt.parameters() if parameters is None else parameters,
    }


def with_list(recorded: dict[str, Any], config: Config, fmt: Format) -> dict[str, Any]:
    """Content of ``dlio_torch.json`` with the files of ``config`` added to its list of files."""
    before = recorded.get("files")
    most = {split: before[split] for split in SPLITS if isinstance(before, dict) and type(before.get(split)) is int}
    for split, manifest in generated_manifests(config, fmt).items():
        most[split] = max(manifest.num_files, most.get(split, 0))
    folder = data_folder(config, fmt)
    files = [LOCK, CHECKSUMS]
    for split in sorted(most):
        files += _entries(split, most[split], config.dataset.num_subfolders, fmt)
    return {**recorded, "files": most, KEY: made_by("data", folder, config.recipe, files)}


def _entries(split: str, files: int, subfolders: int, fmt: Format) -> list[str]:
    folder = f"{split}/{numbers(subfolders - 1, 5)}" if subfolders else split
    return fmt.listed(f"{folder}/{split}_{numbers(files - 1, 7)}")


def read_description(folder: Path) -> dict[str, Any] | None:
    """Reads ``dlio_torch.json``; ``None`` if the folder does not have the file yet.

    Raises:
        DataError: the file is damaged, or belongs to another data set.
    """
    path = folder / DESCRIPTION
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        parameters = content["parameters"]
        if not all(isinstance(value, float | int) for value in parameters.values()):
            raise TypeError("some parameters are not numbers")
        if not folder.name.endswith(f"-{content['fingerprint']}"):
            raise ValueError(f"the file describes the data set {content['fingerprint']}")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror or error}",
            hint="correct dataset.root, or the permissions of the file",
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} is damaged ({error})", hint=f"remove {folder} and generate the data again") from error
    return dict(content)


def check_description(recorded: dict[str, Any], config: Config, fmt: Format) -> None:
    """Raise unless ``dlio_torch.json`` describes the data set that the run's configuration describes.

    Its name tells data sets apart; what it says may have been changed, or copied from another one.

    Raises:
        DataError: names the first thing that differs.
    """
    mine = json.loads(json.dumps(describe(config, fmt, parameters={})))
    for key in ("version", "seed", "samples_per_file", "samples_per_file_eval", "layout"):
        theirs, ours, item = recorded.get(key), mine[key], key
        if isinstance(theirs, dict) and isinstance(ours, dict) and theirs != ours:
            item, *_ = sorted(name for name in {*theirs, *ours} if theirs.get(name) != ours.get(name))
            theirs, ours, item = theirs.get(item), ours.get(item), f"{key}.{item}"
        if theirs != ours:
            folder = data_folder(config, fmt)
            raise DataError(
                f"{folder / DESCRIPTION} states {item}={json.dumps(theirs)}, but this run's configuration requires "
                f"{json.dumps(ours)}",
                hint=f"the file was changed or belongs to another data set; remove {folder} and generate the data "
                "again",
            )


def use_description(recorded: dict[str, Any], folder: Path, fmt: Format) -> None:
    """Use the parameters with which a data set was generated.

    Raises:
        DataError: some are missing, or are no numbers.
    """
    parameters = recorded["parameters"]
    try:
        if not all(map(math.isfinite, parameters.values())):
            raise ValueError("a parameter is not a finite number")
        fmt.use_parameters(parameters)
    except (ValueError, LookupError) as error:
        raise DataError(
            f"{folder / DESCRIPTION}: the parameters do not belong to format {fmt.name} ({error})",
            hint=f"the file was changed or belongs to another data set; remove {folder} and generate the data again",
        ) from error
