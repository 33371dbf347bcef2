"""Facts about loaders of ``torchdata.nodes``, which are graphs of nodes, as values for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dlio_torch.iotrace.recorder.torch_hook.descriptions import class_of, name_of, sampler_fact


def nodes_of(loader: Any) -> list[Any]:
    """All nodes of a loader, from its root to its sources."""
    waiting, nodes = [loader.root], []
    while waiting:
        node = waiting.pop()
        nodes.append(node)
        waiting += [source for source in _sources(node) if not any(source is known for known in (*waiting, *nodes))]
    return nodes


def _sources(node: Any) -> Iterator[Any]:
    for name in ("source", "source_nodes"):
        value = vars(node).get(name)
        if isinstance(value, dict):
            yield from value.values()
        elif value is not None:
            yield value


def reader_of(function: Any) -> Any:
    """The object that a node's function belongs to (a data set, for its method), else the function itself."""
    function = getattr(function, "map_fn", function)  # of nodes that map whole batches
    return getattr(function, "__self__", function)


def dataset_of(loader: Any) -> Any:
    """The data set of a loader: the reader of the node nearest to the sampler, or the iterable at the source."""
    for node in reversed(nodes_of(loader)):
        values = vars(node)
        if "map_fn" in values:
            return reader_of(values["map_fn"])
        if "iterable" in values and not _gives_keys(values["iterable"]):
            return values["iterable"]
    return loader.root


def _gives_keys(iterable: Any) -> bool:
    return isinstance(iterable, range)


def dataset(dataset: Any, number: int, loader: Any) -> dict[str, Any]:
    """Description of the data set of a loader."""
    is_sized = hasattr(type(dataset), "__len__") and hasattr(type(dataset), "__getitem__")
    return {
        "kind": "dataset",
        "id": number,
        "class": name_of(dataset) if callable(dataset) else class_of(dataset),
        "style": "nodes",
        "length": len(dataset) if is_sized else None,
    }


def batch_size(loader: Any) -> int | None:
    """Number of items that a loader joins to a batch; None if it joins none."""
    return next((vars(node)["batch_size"] for node in nodes_of(loader) if "batch_size" in vars(node)), None)


def loader(loader: Any, number: int, dataset_number: int) -> dict[str, Any]:
    """Description of a loader."""
    nodes = [vars(node) for node in nodes_of(loader)]
    mappers = [node for node in nodes if "map_fn" in node]
    workers = sum(node.get("num_workers", 0) for node in mappers)
    sampler = next((node["sampler"] for node in nodes if "sampler" in node), None)
    return {
        "kind": "loader",
        "id": number,
        "class": class_of(loader),
        "dataset": dataset_number,
        "batch_size": batch_size(loader),
        "drop_last": any(node.get("drop_last", False) for node in nodes),
        "sampler": {"class": None} if sampler is None else sampler_fact(sampler),
        "batch_sampler": None,
        "num_workers": workers,
        "prefetch_factor": next((node["prefetch_factor"] for node in nodes if "prefetch_factor" in node), None),
        "pin_memory": any("_pin_memory_device" in node for node in nodes),
        "start_method": next((_start_method(node) for node in mappers if node.get("num_workers")), None),
        "persistent_workers": False,
        "in_order": all(node.get("in_order", True) for node in mappers),
        "timeout_s": 0,
        "collate": name_of(mappers[0]["map_fn"]) if len(mappers) > 1 else None,
    }


def _start_method(mapper: dict[str, Any]) -> str:
    if mapper.get("method") == "process":
        return str(mapper.get("multiprocessing_context") or "process")
    return "thread"
