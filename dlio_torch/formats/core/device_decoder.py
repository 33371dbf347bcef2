"""Decoding of batches on a GPU, for formats whose samples a library can decode there."""

from __future__ import annotations

from typing import Protocol

from dlio_torch.formats.core.batch import Batch


class DeviceDecoder(Protocol):
    """Decodes the stored samples of batches on a GPU."""

    def __call__(self, batch: Batch) -> Batch:
        """Decode a batch from main memory, in the order of the GPU's current stream.

        Args:
            batch: with stored samples, in main memory.

        Returns:
            The arrays that were decoded, on the GPU; arrays that need no decoding are left out.

        Raises:
            DataError: a sample cannot be decoded.
            RuntimeError: the GPU has no memory left, or another error of CUDA.
        """
