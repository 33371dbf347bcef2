"""Start of the hook: which function patches which module of torch and torchdata."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from dlio_torch.iotrace.recorder.torch_hook.fetchers import patch_fetchers
from dlio_torch.iotrace.recorder.torch_hook.import_watcher import ImportWatcher
from dlio_torch.iotrace.recorder.torch_hook.loader_iterators import patch_iterators, patch_stateful_iterators
from dlio_torch.iotrace.recorder.torch_hook.node_iterators import (
    patch_node_adapters,
    patch_node_functions,
    patch_node_loader,
    patch_node_mapper,
)
from dlio_torch.iotrace.recorder.torch_hook.state_calls import (
    patch_distributed_load,
    patch_distributed_save,
    patch_serialization,
)
from dlio_torch.iotrace.recorder.torch_hook.torch_recorder import TorchRecorder
from dlio_torch.iotrace.recorder.torch_hook.worker_loops import patch_worker_loop

_PATCHES: dict[str, Callable[[ModuleType, TorchRecorder], None]] = {
    "torch.utils.data._utils.fetch": patch_fetchers,
    "torch.utils.data._utils.worker": patch_worker_loop,
    "torch.utils.data.dataloader": patch_iterators,
    "torch.serialization": patch_serialization,
    "torch.distributed.checkpoint.state_dict_saver": patch_distributed_save,
    "torch.distributed.checkpoint.state_dict_loader": patch_distributed_load,
    "torchdata.stateful_dataloader.worker": patch_worker_loop,
    "torchdata.stateful_dataloader.stateful_dataloader": patch_stateful_iterators,
    "torchdata.nodes.loader": patch_node_loader,
    "torchdata.nodes._apply_udf": patch_node_functions,
    "torchdata.nodes.map": patch_node_mapper,
    "torchdata.nodes.adapters": patch_node_adapters,
}


def start(events: str, rank: int, limit_bytes: int) -> None:
    """Patches the modules that are imported, and those that will be.

    Args:
        events: the events folder.
        rank: rank of this process.
        limit_bytes: size that its spans, and its facts, may reach.
    """
    recorder = TorchRecorder(Path(events), rank, limit_bytes)
    watcher = ImportWatcher({name: _guarded(patch, recorder) for name, patch in _PATCHES.items()})
    watcher.start()
    atexit.register(recorder.close)


def _guarded(patch: Callable[[ModuleType, TorchRecorder], None], recorder: TorchRecorder) -> Callable[..., None]:
    """The patch as a function of the module, which notes an error and does not raise it."""

    def call(module: ModuleType) -> None:
        try:
            patch(module, recorder)
        except Exception as error:
            recorder.note(f"{module.__name__} could not be patched: {type(error).__name__}: {error}")

    return call
