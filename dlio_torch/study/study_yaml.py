"""``study.yaml``: the definition of a study, written when the study begins and read when it is resumed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from dlio_torch import __version__
from dlio_torch.errors import DataError
from dlio_torch.study.model import Axis, Study

_VERSION = 1


def to_yaml(study: Study, cwd: Path, digests: Mapping[int, str]) -> str:
    """Returns the text of ``study.yaml``.

    Args:
        study: what is asked; its definition is a file of its own.
        cwd: folder in which its runs are started.
        digests: number of a point -> digest of its configuration.
    """
    about = asdict(study)
    about.pop("definition")
    for axis in about["axes"]:
        axis.pop("default")
    result = {
        "version": _VERSION,
        "dlio_torch": __version__,
        "cwd": str(cwd),
        "study": json.loads(json.dumps(about)),  # lists, which YAML has, for tuples
        "points": dict(digests),
    }
    text: str = yaml.safe_dump(result, sort_keys=False, allow_unicode=True, width=120)
    return text


def read(path: Path) -> tuple[Study, Path, dict[int, str]]:
    """Reads ``study.yaml``: the study, the folder in which it was begun, and the digests of its points.

    Raises:
        DataError: it cannot be read, or is damaged.
    """
    try:
        result = yaml.safe_load(path.read_text(encoding="utf-8"))
        digests = {int(number): str(digest) for number, digest in result["points"].items()}
        return _study(result["study"]), Path(result["cwd"]), digests
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}", hint="check the permissions of the file") from None
    except (yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} is damaged: {error!r}", hint="begin a new study") from None


def _study(data: Mapping[str, Any]) -> Study:
    axes = tuple(
        Axis(
            axis["key"],
            tuple(axis["values"]),
            None if axis["settings"] is None else {label: tuple(axi) for label, axi in axis["settings"].items()},
            axis.get("compared", True),
        )
        for axis in data["axes"]
    )
    lists = {key: tuple(data[key]) for key in ("settings", "figures", "sources")}
    lists["scaled"] = tuple(data.get("scaled", ()))
    return Study(**{**data, **lists, "axes": axes})
