"""Copies of batches whose stored samples the GPU decodes, as a part of the copy."""

from __future__ import annotations

import time

import torch

from dlio_torch.formats.core.batch import INDEX, Batch, is_reserved
from dlio_torch.formats.core.device_decoder import DeviceDecoder
from dlio_torch.train.result import DecodeTimes
from dlio_torch.train.to_device import DeviceCopies


class DecodedCopies(DeviceCopies):
    """Decodes the stored samples of each batch on a GPU, and copies its other tensors there.

    A copy begins when the GPU is done with earlier work of the stream.  Otherwise a library that decodes on a stream of
    its own might write to memory that this work still uses.

    Args:
        device: the GPU.
        decoder: of the format.

    Attributes:
        times: time of decoding each batch, its transforms included, until the GPU was done.
    """

    def __init__(self, device: torch.device, decoder: DeviceDecoder) -> None:
        super().__init__(device)
        self.times = DecodeTimes()
        self._decoder = decoder

    def _tensors(self, batch: Batch) -> list[torch.Tensor]:
        user = torch.cuda.current_stream(self._device)
        user.synchronize()
        began = time.perf_counter_ns()
        decoded = self._decoder(batch)
        user.synchronize()
        self.times.append(time.perf_counter_ns() - began, len(batch[INDEX]))
        rest = {name: tensor for name, tensor in batch.items() if name not in decoded and not is_reserved(name)}
        return [*decoded.values(), *super()._tensors(rest)]
