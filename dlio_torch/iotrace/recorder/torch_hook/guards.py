"""Guards: an error of the hook never reaches the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dlio_torch.iotrace.recorder.torch_hook.torch_recorder import TorchRecorder

Result = TypeVar("Result")


def guarded(recorder: TorchRecorder, function: Callable[..., Result]) -> Callable[..., Result | None]:
    """The function with its errors noted instead of raised; it then returns None."""

    def call(*arguments: Any, **named: Any) -> Result | None:
        try:
            return function(*arguments, **named)
        except Exception as error:
            recorder.fail(error)
            return None

    return call
