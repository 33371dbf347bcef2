"""Options that generate shards like existing ones: images of the same size in pixels and bytes, and how they decode."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dlio_torch.config.schema import FieldConfig
from dlio_torch.formats.core.array_specs import specs_of
from dlio_torch.formats.core.data_description import DataDescription
from dlio_torch.formats.core.recreation import ObservedArray, ObservedReads, Recreation
from dlio_torch.formats.webdataset.member_codec import encoded, pixels
from dlio_torch.formats.webdataset.members import SampleMember, kind_of_extension
from dlio_torch.formats.webdataset.samples import grouped
from dlio_torch.formats.webdataset.tar_headers import streamed_members, tar_members

_QUALITIES = (90, 100)
_NOISES = (1, 255)
_CHANNELS = {1: "l8", 3: "rgb8", 4: "rgba8"}
_TRIALS = 2


def recreate(description: DataDescription, reads: ObservedReads) -> Recreation:
    """The recreation of existing shards; the description is that of one of them."""
    shard, is_plain = reads.files[0], description.details["compressed"] == "no"
    options: dict[str, Any] = {**description.options, "compression": "none" if is_plain else "gzip"}
    evidence: dict[str, str] = {}
    fields = []
    for field in description.fields:
        if kind_of_extension(field.name) != "image":
            fields.append(field)
            continue
        shape = _image_shape(shard, field.name, plain=is_plain)
        image = FieldConfig(field.name, "uint8", list(shape))
        fields.append(image)
        options |= {"decode": _decode(reads.arrays, shape), **_sizes(image, field.length_mean)}
        evidence["decode"] = f"batches hold arrays of shape {_shapes(reads.arrays)}"
        evidence["quality"] = evidence["noise"] = (
            f"members *.{field.name} have {field.length_mean:.0f} bytes in the mean"
        )
    options |= reads.buffer_option()
    left_out = [array for array in description.arrays if array.name not in {field.name for field in fields}]
    differences = [f"the member {array.name} is not generated" for array in left_out]
    return Recreation(tuple(fields), options, evidence=evidence, differences=tuple(differences))


def _image_shape(shard: Path, extension: str, *, plain: bool) -> tuple[int, ...]:
    """Height, width and channels of the first image with this extension."""
    from PIL import Image

    headers = tar_members(shard) if plain else streamed_members(shard)
    info = next(sample[extension] for sample in grouped(headers, shard) if extension in sample)
    with open(shard, "rb") as file:
        file.seek(info.offset_data)
        with Image.open(io.BytesIO(file.read(info.size))) as image:
            channels = len(image.getbands())
            return (image.height, image.width, channels) if channels > 1 else (image.height, image.width)


def _decode(arrays: Sequence[ObservedArray], shape: tuple[int, ...]) -> str:
    """Decoder that gives arrays like those of the batches; those of bytes are not decoded."""
    images = [array for array in arrays if len(array.shape) in (2, 3)]
    if not images and arrays:
        return "basic"
    channels = shape[2] if len(shape) > 2 else 1
    if images:
        first = images[0].shape
        if images[0].dtype.endswith("float32") and 3 in (first[0], first[-1]) and channels == 3:
            return "torchrgb" if first[0] == 3 else "rgb"
        channels = next((length for length in (first[0], first[-1]) if length in _CHANNELS), 1) if len(first) > 2 else 1
    return _CHANNELS.get(channels, "rgb8")


def _sizes(field: FieldConfig, wanted_bytes: float) -> dict[str, int]:
    """Quality and noise with which generated images have about as many bytes; at the usual quality if it suffices."""
    (spec,) = specs_of([field])
    member = SampleMember((field.name,), "image", decoded=True, field=spec, spec=spec)

    def mean_bytes(quality: int, noise: int) -> float:
        images = (pixels(0, number, 0, spec.shape, noise) for number in range(_TRIALS))
        return float(np.mean([len(encoded(member, image, quality)) for image in images]))

    quality = next((entry for entry in _QUALITIES if mean_bytes(entry, _NOISES[1]) >= wanted_bytes), _QUALITIES[-1])
    low, high = _NOISES
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if mean_bytes(quality, middle) < wanted_bytes else (low, middle)
    return {"quality": quality, "noise": low}


def _shapes(arrays: Sequence[ObservedArray]) -> str:
    return ", ".join(" x ".join(map(str, array.shape)) or "1" for array in arrays) or "unknown"
