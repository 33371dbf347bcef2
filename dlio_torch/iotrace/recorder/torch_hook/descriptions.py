"""Facts about loaders, data sets, samplers and the process, as values for JSON."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from dlio_torch.iotrace.recorder.torch_hook.patched_names import asked_length, dataset_kind

_WRAPPERS = ("_IterDataPipeSerializationWrapper", "_MapDataPipeSerializationWrapper")
_PIPES = ("IterDataPipe", "MapDataPipe")
_KINDS = ("map", "iterable")  # of torch.utils.data.dataloader._DatasetKind
_SAMPLER_PROPERTIES = ("num_samples", "replacement", "num_replicas", "rank", "shuffle", "seed", "drop_last", "epoch")
_WORLDS = ("WORLD_SIZE", "HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
_LAUNCHERS = {
    "TORCHELASTIC_RUN_ID": "torchrun",
    "HOROVOD_RANK": "horovod",
    "OMPI_COMM_WORLD_RANK": "openmpi",
    "PMIX_RANK": "pmix",
    "PMI_RANK": "pmi",
    "SLURM_STEP_ID": "slurm",
}


def json_text(fact: Mapping[str, Any]) -> str:
    """A fact as one line of JSON; values that JSON does not know become text."""
    return json.dumps(fact, separators=(",", ":"), default=str)


def name_of(thing: Any) -> str:
    """Module and name of a class or function; those of its class for any other object."""
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}.{named.__qualname__}"


def class_of(thing: object) -> str:
    """Module and name of an object's class."""
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def unwrapped(dataset: Any) -> Any:
    """The data set that the program gave to a loader, which wraps DataPipes."""
    return vars(dataset)["_datapipe"] if type(dataset).__name__ in _WRAPPERS else dataset


def dataset(dataset: Any, number: int, loader: Any) -> dict[str, Any]:
    """Description of the data set of a ``DataLoader``."""
    is_pipe = any(base.__name__ in _PIPES and base.__module__.startswith("torch.") for base in type(dataset).__mro__)
    style = "datapipe" if is_pipe else _KINDS[dataset_kind(loader)]
    return {
        "kind": "dataset",
        "id": number,
        "class": class_of(dataset),
        "style": style,
        "length": _length(dataset, loader, is_sized=style == "map"),
    }


def _length(dataset: Any, loader: Any, *, is_sized: bool) -> int | None:
    # Of iterable data sets only what the program has asked for itself: their lengths may be costly.
    if not is_sized:
        return asked_length(loader)
    try:
        return len(dataset)
    except Exception:
        return None


def dataset_of(loader: Any) -> Any:
    """The data set of a ``DataLoader``."""
    return unwrapped(loader.dataset)


def loader(loader: Any, number: int, dataset_number: int) -> dict[str, Any]:
    """Description of a ``DataLoader``."""
    sampler, batch_sampler = loader.sampler, loader.batch_sampler
    if batch_sampler is not None:
        sampler = getattr(batch_sampler, "sampler", batch_sampler)
    return {
        "kind": "loader",
        "id": number,
        "class": class_of(loader),
        "dataset": dataset_number,
        "batch_size": loader.batch_size,
        "drop_last": bool(loader.drop_last),
        "sampler": sampler_fact(sampler),
        "batch_sampler": None if batch_sampler is None else class_of(batch_sampler),
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor if loader.num_workers else None,
        "pin_memory": bool(loader.pin_memory),
        "start_method": _start_method(loader) if loader.num_workers else None,
        "persistent_workers": bool(loader.persistent_workers),
        "in_order": bool(getattr(loader, "in_order", True)),
        "timeout_s": loader.timeout,
        "collate": name_of(loader.collate_fn),
    }


def sampler_fact(sampler: Any) -> dict[str, Any]:
    """Description of a sampler: its class, and its attributes that are numbers, truth values or None."""
    values = dict(vars(sampler)) if hasattr(sampler, "__dict__") else {}
    if type(sampler).__module__.startswith("torch."):  # the properties of others may do anything
        values |= {name: getattr(sampler, name) for name in _SAMPLER_PROPERTIES if hasattr(sampler, name)}
    public = {name: value for name, value in values.items() if not name.startswith("_") and name != "class"}
    plain = {name: value for name, value in public.items() if value is None or type(value) in (int, bool)}
    return {"class": class_of(sampler), **plain}


def _start_method(loader: Any) -> str:
    context = loader.multiprocessing_context
    if context is None:
        # Without choosing it for the program, which may still set another one.
        return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    return str(context.get_start_method())


def versions(modules: Mapping[str, ModuleType]) -> dict[str, Any]:
    """Versions of the libraries that are imported."""
    names = ("torch", "torchdata")
    known = {name: getattr(modules.get(name), "__version__", None) for name in names}
    return {name: None if version is None else str(version) for name, version in known.items()}


def ranks(variables: Mapping[str, str], modules: Mapping[str, ModuleType]) -> dict[str, Any]:
    """Number of ranks, and their launcher, from ``torch.distributed`` and the launcher's variables."""
    distributed = modules.get("torch.distributed")
    sizes = (variables.get(name, "") for name in _WORLDS)
    world = next((int(size) for size in sizes if size.isdecimal()), None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        world = distributed.get_world_size()
    return {"world_size": world, "launcher": next((_LAUNCHERS[name] for name in _LAUNCHERS if name in variables), None)}
