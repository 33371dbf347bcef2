"""Guards: an error of the hook never reaches the program, and one of the program does not show the hook."""

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


def hide(error: BaseException) -> None:
    """Removes the frame of the calling function from an error's traceback; the caller then raises it with ``raise``.

    Python 3.10 keeps the frame.
    """
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next
