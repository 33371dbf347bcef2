"""Patches of the functions that save and load states: ``torch.save``, ``torch.load`` and distributed checkpoints."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType, ModuleType
from typing import Any, Literal

from dlio_torch.iotrace.recorder.torch_hook.guards import guarded, hide
from dlio_torch.iotrace.recorder.torch_hook.patched_names import calling_frame, local_tensor
from dlio_torch.iotrace.recorder.torch_hook.state_items import state_items
from dlio_torch.iotrace.recorder.torch_hook.torch_recorder import TorchRecorder, clock

_MOST_OBJECTS = 200_000  # of a state, that are looked at
_OPS = {"save": "checkpoint", "load": "load"}
_DCP = "torch.distributed.checkpoint"

State = Callable[[tuple[Any, ...], Mapping[str, Any], Any], Any]
"""The state of a call, by its arguments, named arguments and result."""


def patch_serialization(module: ModuleType, recorder: TorchRecorder) -> None:
    """Patches ``torch.serialization``."""
    calls = _Calls(recorder)
    _replace(module, "save", "torch", calls.timed("torch.save", _first_argument))
    _replace(module, "load", "torch", calls.timed("torch.load", _result))


def patch_distributed_save(module: ModuleType, recorder: TorchRecorder) -> None:
    """Patches ``torch.distributed.checkpoint.state_dict_saver``."""
    calls = _Calls(recorder)
    for name in ("save", "async_save"):
        _replace(module, name, _DCP, calls.timed(f"dcp.{name}", _first_argument))


def patch_distributed_load(module: ModuleType, recorder: TorchRecorder) -> None:
    """Patches ``torch.distributed.checkpoint.state_dict_loader``."""
    calls = _Calls(recorder)
    _replace(module, "load", _DCP, calls.timed("dcp.load", _first_argument))


def _replace(module: ModuleType, name: str, package: str, patch: Callable[[Any], Any]) -> None:
    """Patches a function of a module, also under the name that a package has imported already."""
    original = getattr(module, name, None)
    if original is None:  # another version
        return
    patched = patch(original)
    for place in (module, sys.modules.get(package)):
        if place is not None and vars(place).get(name) is original:
            setattr(place, name, patched)


def _first_argument(arguments: tuple[Any, ...], named: Mapping[str, Any], result: Any) -> Any:
    return arguments[0] if arguments else named.get("obj", named.get("state_dict"))


def _result(arguments: tuple[Any, ...], named: Mapping[str, Any], result: Any) -> Any:
    return result


class _Nesting(threading.local):
    """Depth of the recorded calls of a thread."""

    depth = 0


_nesting = _Nesting()


class _Calls:
    """Functions that record calls of others.

    A distributed checkpoint calls ``torch.save`` for its parts, and ``async_save`` calls ``save`` in another thread:
    calls within a call are not recorded, nor those of ``save`` and ``torch.save`` beside an ``async_save``.

    Args:
        recorder: the recorder.
    """

    def __init__(self, recorder: TorchRecorder) -> None:
        self._recorder = recorder
        self._begin, self._end = guarded(recorder, self._begin_call), guarded(recorder, self._end_call)

    def timed(self, call: str, state: State) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """A decorator that records each call of a function.

        Args:
            call: name of the function in the records.
            state: gets the saved or loaded state of a call.
        """
        return functools.partial(self._timed, call=call, state=state)

    def _timed(self, original: Callable[..., Any], call: str, state: State) -> Callable[..., Any]:
        @functools.wraps(original)
        def function(*arguments: Any, **named: Any) -> Any:
            if _nesting.depth or _is_of_async_save():
                return original(*arguments, **named)
            start_ns = self._begin()
            _nesting.depth += 1
            try:
                result = original(*arguments, **named)
            except BaseException as error:
                self._recorder.activity.end(clock())
                hide(error)
                raise
            finally:
                _nesting.depth -= 1
            self._end(call, start_ns, state(arguments, named, result), _path(call, arguments, named))
            return result

        return function

    def _begin_call(self) -> int:
        return self._recorder.activity.begin()

    def _end_call(self, call: str, start_ns: int, state: Any, path: str | None) -> None:
        end_ns = clock()
        kind: Literal["save", "load"] = "load" if call.endswith("load") else "save"
        tensors, size = count_tensors(state)
        self._recorder.add(_OPS[kind], start_ns, end_ns, file=path, bytes=size)
        self._recorder.fact(
            {
                "kind": kind,
                "call": call,
                "path": path,
                "start_ns": start_ns,
                "end_ns": end_ns,
                "tensors": tensors,
                "bytes": size,
                "state": state_items(state),
            }
        )
        self._recorder.activity.end(clock())


def _is_of_async_save() -> bool:
    """Whether this thread belongs to the executor of ``async_save``."""
    is_main = threading.get_ident() == threading.main_thread().ident
    frame: FrameType | None = None if is_main else calling_frame(2)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(f"{_DCP}._async_"):
            return True
        frame = frame.f_back
    return False


def _path(call: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> str | None:
    """The file or folder that a call names."""
    if call.startswith("dcp."):
        place = named.get("checkpoint_id")
        for name in ("storage_writer", "storage_reader"):
            place = place or getattr(named.get(name), "path", None)
    else:
        position = 1 if call == "torch.save" else 0
        place = arguments[position] if len(arguments) > position else named.get("f")
        place = getattr(place, "name", place) if not isinstance(place, str | os.PathLike) else place
    return os.path.abspath(os.fspath(place)) if isinstance(place, str | os.PathLike) else None


def count_tensors(state: Any) -> tuple[int, int]:
    """Number of tensors of a state, and the bytes of their storages, each counted once.

    Args:
        state: containers, modules, optimizers and what else has a ``state_dict``.
    """
    tensor_class = sys.modules["torch"].Tensor
    seen: set[int] = set()
    storages: dict[Any, int] = {}
    tensors, waiting = 0, [state]
    while waiting and len(seen) < _MOST_OBJECTS:
        value = waiting.pop()
        if id(value) in seen or value is None or isinstance(value, str | bytes | int | float):
            continue
        seen.add(id(value))
        if isinstance(value, tensor_class):
            tensors += 1
            key, size = _storage(local_tensor(value))
            storages[key] = size
        else:
            waiting += _parts(value)
    return tensors, sum(storages.values())


def _parts(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if not isinstance(value, type) and callable(getattr(type(value), "state_dict", None)):
        return list(getattr(value, "__dict__", {}).values())
    return []


def _storage(tensor: Any) -> tuple[Any, int]:
    try:
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        return (address or id(tensor)), storage.nbytes()
    except Exception:  # sparse tensors, and those of other libraries
        return id(tensor), tensor.numel() * tensor.element_size()
