"""Averages a gradient with Horovod's own optimizer, as an application does."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from dlio_torch.dist.base import element_count

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Horovod 0.28.1 predates deprecations in its dependencies
    import horovod.torch as hvd

_WEIGHT = 2**20
_BIAS = 2**10


class HorovodReducer:
    """Averages a gradient by a backward pass and a step of ``hvd.DistributedOptimizer``.

    The gradient is cut into tensors as a network's is, large weights and small biases.  The backward
    pass goes through one node for each of them, the last one first, and computes nothing: the values
    are in ``gradient`` already, as after an accumulation of gradients.  Autograd then calls the hooks
    that the optimizer has set on each parameter, and these hand the tensors to Horovod one after the
    other; ``step()`` waits for them.  So names, sizes, order, fusion and compression are those of an
    application.  What differs: its tensors come as its layers are computed, these come all at once.
    (``synchronize()`` alone would hand them over, too, but in the order of a Python set, another one
    on each rank.)

    The parameters take no memory, and no update is made.  Horovod sets its hooks only with two
    ranks or more; one rank reduces nothing.

    Args:
        size_bytes: size of the gradient; rounded up to whole elements.
        compression: ``none``, or ``fp16``: float16 on the way, float32 again in ``gradient``.
        groups: number of fixed groups that the tensors are put into; ``None``: none.
        device: device of the gradient.
    """

    def __init__(
        self,
        size_bytes: int,
        compression: str = "none",
        groups: int | None = None,
        device: torch.device | None = None,
    ) -> None:
        count = element_count(size_bytes)
        self.size_bytes = count * 4
        self.gradient = [torch.zeros(size, device=device) for size in layer_sizes(count)]
        self._device = device
        named = []
        for number, gradient in enumerate(self.gradient):
            # One element seen at every position: shaped like the gradient, without its memory.
            parameter = torch.nn.Parameter(torch.zeros(1, device=device).expand(gradient.shape))
            parameter.grad = gradient
            named.append((f"{tensor_prefix(count)}{number:04d}", parameter))
        self._optimizer = hvd.DistributedOptimizer(
            _NoUpdate([parameter for _, parameter in named]),
            named_parameters=named,
            compression=getattr(hvd.Compression, compression),
            op=hvd.Average,
            groups=None if groups is None else min(groups, len(named)),
        )
        loss = torch.zeros((), requires_grad=True)
        for _, parameter in named:
            loss = _Layer.apply(loss, parameter)  # type: ignore[no-untyped-call]
        self._loss = loss

    def step(self) -> None:
        """See ``GradientReducer.step``; on a GPU it returns when the GPU holds the result."""
        self._loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
        self._optimizer.step()
        if self._device is not None and self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


class _Layer(torch.autograd.Function):
    """A layer without computation, whose backward pass marks the gradient of its parameter as complete."""

    @staticmethod
    def forward(ctx: Any, loss: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
        return loss.view_as(loss)

    @staticmethod
    def backward(ctx: Any, loss: torch.Tensor) -> tuple[torch.Tensor, None]:
        # None adds nothing to the gradient; the hooks of its accumulator are called all the same.
        return loss, None


class _NoUpdate(torch.optim.Optimizer):
    """An optimizer that updates nothing: only the allreduce that precedes the update is needed."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {})

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Do nothing."""


def tensor_prefix(count: int) -> str:
    """Returns the prefix of the names of a gradient's tensors; ``count`` is the number of elements."""
    return f"gradient.{count}."


def layer_sizes(count: int) -> list[int]:
    """Divide ``count`` elements into tensors like those of a network: weights of 4 MiB, biases of 4 KiB in between.

    A small gradient is cut in proportion, into 16 tensors or so.
    """
    weight = min(_WEIGHT, -(-count // 8))
    bias = min(_BIAS, -(-weight // 8))
    sizes: list[int] = []
    while count:
        sizes.append(min(count, bias if len(sizes) % 2 else weight))
        count -= sizes[-1]
    return sizes
