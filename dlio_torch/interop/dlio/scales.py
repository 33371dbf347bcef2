"""Scales of an imported recipe: enough samples for its batches, and few enough bytes for a laptop."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from dlio_torch.config.resources import Resources
from dlio_torch.config.scaling import scale
from dlio_torch.config.schema import Config, DatasetConfig, ScaleConfig
from dlio_torch.config.yamlfile import Tree
from dlio_torch.interop.dlio.recipe import Recipe

# Steps of one rank, data permitting; data that a scale generates at most, two batches permitting; bytes of one
# checkpoint of a rank.
_STEPS = {"laptop": 8, "tiny": 2}
_DATA = {"laptop": 2 << 30, "tiny": 64 << 20}
_CHECKPOINT = {"laptop": 256 << 20, "tiny": 4 << 20}
_RANKS = 2  # both of two ranks find a batch


def scales(recipe: Recipe, places: Resources) -> None:
    """Adds the options of ``laptop`` and ``tiny`` that must differ from ``conf/scale/``."""
    for name in _DATA:
        tree = places.fragment("scale", name, "import-dlio").tree
        if recipe.get("dataset.format") != "synthetic":  # nothing is written, so nothing need be small
            _samples(recipe, name, tree)
            _evaluation(recipe, name, int(tree["max_samples_eval"]))
        _checkpoint(recipe, name, float(tree["checkpoint_size"]))


def _samples(recipe: Recipe, name: str, tree: Tree) -> None:
    files, per_file = recipe.get("dataset.num_files"), recipe.get("dataset.samples_per_file")
    limits = {key: int(tree[key]) for key in ("max_samples", "max_files", "max_samples_per_file")}
    stream = recipe.get("access.pattern") == "stream"
    need = min(files * per_file, _RANKS * recipe.get("train.batch_size"))
    room = max(1, int(_DATA[name] // _record(recipe)))
    begun = recipe.get("access.interleave", 1) + recipe.get("access.interleave_prefetch", 0)
    abreast = min(files, _RANKS * begun) if stream else 1
    data = DatasetConfig(num_files=files, samples_per_file=per_file)
    scaled = scale(Config(dataset=data, scale=_limited(limits)), fixed=())[0].dataset
    # More steps come from larger files, not from more of them.
    most = min(files, max(limits["max_files"], abreast, math.ceil(need / per_file)))
    wanted = min(room, most * per_file, _STEPS[name] * recipe.get("train.batch_size"))
    if (
        max(need, wanted) <= scaled.num_files * scaled.samples_per_file <= max(need, room)
        and scaled.num_files >= abreast
    ):
        return
    samples = max(need, wanted, min(limits["max_samples"], room, most * per_file))
    if stream:
        # The rank with the fewer files must find a batch in them.
        per = min(per_file, max(math.ceil(samples / most), math.ceil(need / _RANKS / max(1, most // _RANKS))))
    else:
        per = min(per_file, math.ceil(samples / most))
        most = min(most, math.ceil(samples / per))
    why = "enough samples for a batch of two ranks, with few bytes"
    recipe.set(f"scales.{name}.max_samples", most * per, why)
    recipe.set(f"scales.{name}.max_files", most, why)
    recipe.set(f"scales.{name}.max_samples_per_file", per if per < per_file else 0, why)


def _evaluation(recipe: Recipe, name: str, limit: int) -> None:
    files, per_file = recipe.get("dataset.num_files_eval", 0), recipe.get("dataset.samples_per_file_eval", 0)
    if not files:
        return
    need = min(files * per_file, _RANKS * recipe.get("train.eval_batch_size", 1))
    wanted = max(need, min(limit, max(1, int(_DATA[name] // _record(recipe)))))
    wanted = math.ceil(wanted / per_file) * per_file if wanted > per_file else wanted
    if wanted != limit:
        recipe.set(f"scales.{name}.max_samples_eval", wanted, "enough samples for a batch of two ranks, with few bytes")


def _checkpoint(recipe: Recipe, name: str, factor: float) -> None:
    total = sum(file["bytes"] for file in recipe.get("checkpoint.files", [])) or recipe.get("checkpoint.state_bytes", 0)
    if total * factor > _CHECKPOINT[name]:
        small = float(f"{_CHECKPOINT[name] / total:.2g}")
        recipe.set(f"scales.{name}.checkpoint_size", small, "limits the bytes of a rank's checkpoint")


def _record(recipe: Recipe) -> float:
    """Bytes of one sample, at least 1."""
    total = 0.0
    for field in recipe.get("dataset.fields"):
        bits = int("".join(char for char in field["dtype"] if char.isdecimal()))
        total += bits / 8 * math.prod(field["shape"]) * (field.get("length_mean") or 1)
    return max(1.0, float(recipe.get("dataset.image.file_bytes", total)))


def _limited(limits: Mapping[str, int]) -> ScaleConfig:
    return dataclasses.replace(ScaleConfig(), **limits)  # type: ignore[arg-type]
