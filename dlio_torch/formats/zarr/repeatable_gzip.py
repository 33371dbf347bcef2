"""Gzip codec of Zarr whose output depends on its input alone, as that of all other codecs does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zarr.codecs import GzipCodec

if TYPE_CHECKING:
    from zarr.core.array_spec import ArraySpec
    from zarr.core.buffer import Buffer

_TIME = slice(4, 8)  # seconds since 1970 in the header of a gzip stream (RFC 1952); 0: not stated


class RepeatableGzipCodec(GzipCodec):
    """Zarr's own codec, which states the time of compression in each chunk; here it is 0."""

    async def _encode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Buffer | None:
        stored = await super()._encode_single(chunk_bytes, chunk_spec)
        if stored is None:
            return None
        content = bytearray(stored.to_bytes())
        content[_TIME] = bytes(4)
        return chunk_spec.prototype.buffer.from_bytes(bytes(content))
