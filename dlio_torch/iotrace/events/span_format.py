"""Binary format of a ``.spans`` file: a header, then records of 48 bytes."""

from __future__ import annotations

import struct

MAGIC = b"DLIOSPAN"
VERSION = 1
HEADER = struct.Struct("<8sIIiiqqq")
"""Header: magic, version, record size, rank, pid, anchor (monotonic ns, wall-clock ns), 1 if ended early."""
RECORD = struct.Struct("<qqqqiIII")
"""Fields of a record: start ns, end ns, offset, bytes, step, file, tid, op.

The op is stored last.  A record that SIGKILL cut short has op 0, and the reader leaves it out.
"""
ENDED_EARLY = struct.Struct("<q")
"""The last field of the header: 1 if the recording ended early."""
assert HEADER.size == RECORD.size
