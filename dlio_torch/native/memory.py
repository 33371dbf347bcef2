"""Memory addresses of arrays, for calls to C functions."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt


def address_of(array: npt.NDArray[Any]) -> int:
    """Address of the first element of ``array``; the caller keeps the array alive."""
    address: int = array.__array_interface__["data"][0]
    return address
