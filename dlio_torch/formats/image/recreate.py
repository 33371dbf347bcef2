"""Options that generate images like existing ones: class folders, and sizes in pixels and bytes."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.data_description import DataDescription
from dlio_torch.formats.core.recreation import ObservedReads, Recreation
from dlio_torch.formats.image.completeness import check_complete

_MOST_HEADERS = 256
_LEAST_SIDE = 8
_MOST_SPREAD = 0.5


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
        "file_bytes": round(np.mean(sizes)),
        "file_bytes_stdev": round(float(np.std(sizes)), 1),
    }
    suffixes = sorted({path.suffix.lower() for path in reads.files} - {".jpg", ".jpeg"})
    differences = [f"images of {', '.join(suffixes)} are generated as JPEG"] if suffixes else []
    classes = description.details.get("classes", 0)
    return Recreation((), options, {"num_subfolders": classes}, samples_per_file=1, differences=tuple(differences))
