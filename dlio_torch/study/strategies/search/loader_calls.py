"""The calls of PyTorch and of file libraries that a configuration stands for, as text to copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dlio_torch.config.schema import Config
from dlio_torch.data.engines import registry as engines
from dlio_torch.formats.core.call_text import CodeText, call_text
from dlio_torch.formats.core.facts import Call
from dlio_torch.formats.core.registry import facts


def loader_call(config: Config, ranks: int) -> Call:
    """The loader: a ``DataLoader``, torchdata's nodes where threads read ahead, which it cannot do, or our own."""
    local = engines.facts(config.loader.engine).call(config)
    if local is not None:
        return local
    batch = config.train.batch_size // (ranks if config.train.batch_scope == "global" else 1)
    if config.loader.read_threads:
        return "torchdata.nodes (a DataLoader has no reader threads)", _nodes(config, ranks, batch)
    return "DataLoader(...)", call_text("torch.utils.data.DataLoader", ["dataset"], _options(config, ranks, batch))


def _options(config: Config, ranks: int, batch: int) -> dict[str, Any]:
    loader = config.loader
    options: dict[str, Any] = {"batch_size": batch}
    if config.access.pattern == "samples":
        if ranks > 1 or config.access.order not in ("sequential", "shuffled"):
            options["sampler"] = CodeText(_sampler(config, ranks))
        else:
            options["shuffle"] = config.access.order == "shuffled"
    options |= {
        "drop_last": config.access.tail == "drop",
        "num_workers": loader.num_workers,
        "pin_memory": loader.pin_memory,
    }
    if loader.num_workers:
        options["prefetch_factor"] = loader.prefetched
        options["persistent_workers"] = loader.persistent_workers
        if loader.multiprocessing_context:
            options["multiprocessing_context"] = loader.multiprocessing_context
    if not loader.in_order:
        options["in_order"] = False
    return options


def _sampler(config: Config, ranks: int) -> str:
    shuffled = config.access.order == "shuffled"
    if config.access.order not in ("sequential", "shuffled"):
        return "sampler"  # an order of the application's own
    if ranks > 1:
        return f"torch.utils.data.DistributedSampler(dataset, shuffle={shuffled})"
    return f"torch.utils.data.{'RandomSampler' if shuffled else 'SequentialSampler'}(dataset)"


def _nodes(config: Config, ranks: int, batch: int) -> str:
    loader = config.loader
    # More reads at a time than batches ahead cannot be.
    reading = min(loader.read_threads, loader.prefetch_batches)
    waiting = loader.prefetch_batches - reading
    lines = [
        "import torchdata.nodes as tn",
        "",
        "batches = torch.utils.data.BatchSampler(",
        f"    {_sampler(config, ranks)}, batch_size={batch}, drop_last={config.access.tail == 'drop'}",
        ")",
        "",
        "",
        "def read(indices):",
        "    return torch.utils.data.default_collate([dataset[i] for i in indices])",
        "",
        "",
        f'node = tn.ParallelMapper(tn.SamplerWrapper(batches), read, num_workers={reading}, method="thread")',
    ]
    if waiting:
        lines.append(f"node = tn.Prefetcher(node, prefetch_factor={waiting})")
    if loader.pin_memory:
        lines.append("node = tn.PinMemory(node)")
    return "\n".join([*lines, "loader = tn.Loader(node)"])


def data_calls(config: Config, searched: Sequence[str]) -> Iterator[Call]:
    """Calls that write and open the files, for the options of the data that were searched."""
    if not any(key.split(".")[0] == "dataset" for key in searched):
        return
    yield from facts(config.dataset.format).calls(config)
