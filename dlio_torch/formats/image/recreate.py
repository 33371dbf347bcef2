"""Options that generate images like existing ones: class folders, and sizes in pixels and bytes."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import Config, DatasetConfig, FieldConfig
from dlio_torch.errors import DataError
from dlio_torch.formats.core.data_description import DataDescription
from dlio_torch.formats.core.recreation import ObservedReads, Recreation
from dlio_torch.formats.image.completeness import check_complete
from dlio_torch.formats.image.folder_format import ImageFolderFormat
from dlio_torch.formats.image.folder_specs import IMAGE
from dlio_torch.formats.image.options import ImageConfig

_MOST_HEADERS = 256
_ROUNDS = 2
_TRIALS = 32  # generated images whose sizes are compared
_LEAST_SIDE = 8
_MOST_SPREAD = 0.5
_AXES = 3
_CHANNELS = (1, 3, 4)


def recreate(description: DataDescription, reads: ObservedReads) -> Recreation:
    """The recreation of existing images."""
    step = max(1, len(reads.files) // _MOST_HEADERS)
    headers, sizes = [], []
    for path in reads.files[::step]:
        with suppress(DataError):  # damaged images are not generated
            headers.append(check_complete(path))
        sizes.append(os.stat(path).st_size)
    widths, heights = ([getattr(header, side) for header in headers] for side in ("width", "height"))
    options: dict[str, Any] = {
        **description.options,
        "width_mean": max(_LEAST_SIDE, round(np.mean(widths))),
        "height_mean": max(_LEAST_SIDE, round(np.mean(heights))),
        "side_stdev": round(min(float(np.std(widths) / np.mean(widths)), _MOST_SPREAD), 3),
        **reads.buffer_option(),
    }
    _add_file_sizes(options, np.array(sizes))
    evidence = _add_transform(options, reads)
    # Generated images of one size are stacked only where a field states it.
    size = [options["height_mean"], options["width_mean"], 3]
    fields = (FieldConfig(IMAGE, "uint8", size),) if options.get("transform") == "none" and evidence else ()
    suffixes = sorted({path.suffix.lower() for path in reads.files} - {".jpg", ".jpeg"})
    differences = [f"images of {', '.join(suffixes)} are generated as JPEG"] if suffixes else []
    classes = description.details.get("classes", 0)
    return Recreation(
        fields,
        options,
        {"num_subfolders": classes},
        samples_per_file=1,
        evidence=evidence,
        differences=tuple(differences),
    )


def _add_file_sizes(options: dict[str, Any], sizes: npt.NDArray[np.int64]) -> None:
    """Adds the file size with which generated files have these sizes in the mean, and their spread.

    The noise of a generated image is interpolated, so that its file misses the size by some tenths of a percent.
    """
    options |= {"file_bytes": round(sizes.mean()), "file_bytes_stdev": round(float(sizes.std()), 1)}
    for _ in range(_ROUNDS):
        config = DatasetConfig(format="imagefolder", image=ImageConfig(**options))
        generated = np.array(ImageFolderFormat(config, Config().seed).generated_sizes(_TRIALS))
        narrower = max(options["file_bytes_stdev"] ** 2 + sizes.var() - generated.var(), 0.0) ** 0.5
        options["file_bytes"] += round(sizes.mean() - generated.mean())
        options["file_bytes_stdev"] = round(float(narrower), 1)


def _add_transform(options: dict[str, Any], reads: ObservedReads) -> dict[str, str]:
    """Adds the transform that gives images of the batches' size; returns its evidence, empty if it is not known."""
    image = next((array for array in reads.arrays if len(array.shape) == _AXES), None)
    if image is None:
        return {}
    sides = image.shape[1:] if image.shape[0] in _CHANNELS else image.shape[:2]
    shown = f"batches hold images of {sides[0]} x {sides[1]} pixels"
    if sides == (options["height_mean"], options["width_mean"]) and not options["side_stdev"]:
        options["transform"] = "none"
        evidence = {"transform": f"{shown}, the size in the files"}
    elif sides[0] == sides[1]:
        options |= {"transform": "random_resized_crop", "size": sides[0]}
        evidence = {"transform": f"{shown}, and those of the files differ from it", "size": shown}
    else:
        return {}
    if image.dtype.endswith("float32") and image.shape[0] in _CHANNELS:
        options["to_tensor"] = True
        evidence["to_tensor"] = f"batches hold float32 images of {image.shape[0]} x {sides[0]} x {sides[1]}"
    return evidence
