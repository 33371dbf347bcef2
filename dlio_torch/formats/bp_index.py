"""Where the blocks of variables lie in a folder of BP4 or BP5, as its own index says.

BP4's index lists the characteristics of each block (ADIOS2's utility bp4dbg reads the same).  BP5's metadata are
records of FFS, a format that describes itself: ``mmd.0`` has the names, types and places of all fields
(``BP5Base.h`` and ``fm_internal.h`` of ADIOS2 say what they mean).  What is not understood is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from dlio_torch.errors import DataError
from dlio_torch.formats.bp4_index import read_bp4
from dlio_torch.formats.bp5_index import read_bp5
from dlio_torch.formats.bp_block import Block, Unread
from dlio_torch.formats.bp_folder import INDEX, METADATA

OTHER_WAY = "set loader.engine=dataloader, which reads through the ADIOS2 library"
_VERSION, _ENDIAN = 37, 36  # bytes of the header


def read_blocks(folder: Path, names: Sequence[str]) -> dict[str, list[list[Block]]]:
    """The blocks of variables, by steps in which there are any.

    Args:
        folder: complete, as ``bp_folder.check_complete`` says.
        names: of the variables.

    Raises:
        DataError: the index is damaged, or says something that only the library understands.
    """
    try:
        index = (folder / INDEX).read_bytes()
        metadata = (folder / METADATA).read_bytes()
        if index[_ENDIAN]:
            raise Unread("it was written in the other byte order")
        read = read_bp4 if index[_VERSION] == 4 else read_bp5
        return read(folder, index, metadata, names)
    except Unread as error:
        raise DataError(f"{folder}: {error}", hint=OTHER_WAY) from error
    except OSError as error:
        raise DataError(f"{folder} is incomplete: {error.strerror}: {error.filename}", hint=OTHER_WAY) from error
    except (struct.error, LookupError, ValueError, OverflowError, MemoryError) as error:
        raise DataError(f"{folder}: its index is damaged: {error}", hint="generate or fetch it again") from error
