"""Parser of arrays in a pickled dictionary (``numpy.savez(path, name=dictionary)``), which unpickles nothing.

A pickle is a program, and loading one of unknown origin runs it.  Its opcodes can be read without being run: they
say which bytes follow them, and the elements of an array are the bytes behind the flag of its element order (the
state of ``numpy.ndarray.__setstate__``: version, shape, dtype, order, elements).

:class:`UnpicklerFile` asks the file for the same things, in the same order, as CPython's C unpickler does, so that
the system calls below are those of ``numpy.load(path, allow_pickle=True)``.  Source: python/cpython,
Modules/_pickle.c: ``_Unpickler_ReadFromFile``, ``_Unpickler_SkipConsumed``, ``_Unpickler_ReadInto``, ``load_frame``
and ``load_counted_binbytes``.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.core.buffered_file import PARSING

_PREFETCH = 128 << 10  # bytes that the unpickler peeks at
_WIDTHS = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_OPCODES = {opcode.code.encode("latin-1"): opcode for opcode in pickletools.opcodes}
_LINES = {"GLOBAL": 2, "INST": 2}  # others have one
_BYTES = frozenset(["SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"])  # read into memory of their own
_PUTS = frozenset(["MEMOIZE", "BINPUT", "LONG_BINPUT"])
_GETS = frozenset(["BINGET", "LONG_BINGET"])
_ORDERS: dict[str, Literal["C", "F"]] = {"NEWFALSE": "C", "NEWTRUE": "F"}


class PickleError(Exception):
    """The bytes are not a pickle, or the pickle is truncated."""


class UnpicklerFile:
    """File object that is read with the same calls as by the C unpickler.

    Args:
        file: positioned at the pickle; has ``peek``, as the members of an archive do.
        size: bytes from there to its end.

    Raises:
        PickleError: more is asked for than there is.
    """

    def __init__(self, file: Any, size: int) -> None:
        self._file = file
        self._left = size  # not given out yet
        self._buffer = b""
        self._next = 0  # first byte of the buffer that is not given out
        self._skipped = 0  # up to where the file has been moved on

    def read(self, count: int) -> bytes:
        """Reads the next ``count`` bytes, through the buffer if they are few."""
        self._take(count)
        if count > len(self._buffer) - self._next:
            self._fill(count)
        self._next += count
        return self._buffer[self._next - count : self._next]

    def read_into_memory(self, count: int) -> bytes:
        """Reads the next ``count`` bytes: buffered bytes first, the rest in one call."""
        self._take(count)
        begin = self._buffer[self._next : self._next + count]
        self._next += len(begin)
        if len(begin) == count:
            return begin
        self._skip()
        rest = self._file.read(count - len(begin))  # readinto() of an archive's member is this
        if len(rest) < count - len(begin):
            raise PickleError("the pickle is truncated")
        return begin + rest if begin else bytes(rest)

    def readline(self) -> bytes:
        """Reads the next line."""
        end = self._buffer.find(b"\n", self._next) + 1
        if not end:
            self._skip()
            self._set(self._file.readline(), peeked=False)
            end = len(self._buffer)
        line = self._buffer[self._next : end]
        self._next = end
        self._take(len(line))
        if not line.endswith(b"\n"):
            raise PickleError("the pickle is truncated")
        return line

    def read_frame(self, count: int) -> None:
        """Read the next ``count`` bytes into the buffer."""
        self.read(count)
        self._next -= count
        self._left += count

    def end(self) -> None:
        """Set the position of the file to the end of the bytes that were consumed."""
        self._skip()

    def _take(self, count: int) -> None:
        if count > self._left:
            raise PickleError(f"the pickle announces {count} more bytes but has only {self._left}")
        self._left -= count

    def _skip(self) -> None:
        if self._next > self._skipped:
            self._file.read(self._next - self._skipped)
            self._skipped = self._next

    def _fill(self, count: int) -> None:
        self._skip()
        if count < _PREFETCH:
            self._set(self._file.peek(_PREFETCH), peeked=True)
            if count <= len(self._buffer):
                return
        self._set(self._file.read(count), peeked=False)
        if count > len(self._buffer):
            raise PickleError("the pickle is truncated")

    def _set(self, content: bytes, *, peeked: bool) -> None:
        self._buffer, self._next = content, 0
        self._skipped = 0 if peeked else len(content)


@dataclass(frozen=True)
class Elements:
    """Elements of one array in a pickle.

    Attributes:
        order: ``C`` or ``F``: which index changes fastest, the last or the first.
        content: their bytes.
    """

    order: Literal["C", "F"]
    content: bytes


def read_elements(file: Any, size: int) -> Iterator[Elements]:
    """Yields the elements of each array in a pickle, in order.

    Args:
        file: see :class:`UnpicklerFile`.
        size: bytes of the pickle.

    Raises:
        PickleError: this is no pickle, or it is cut short.
    """
    source, before, last = UnpicklerFile(file, size), "", b""
    shared: dict[int, bytes] = {}  # Python has one object for equal bytes of length 0 or 1, which is pickled once
    memoized = 0
    while True:
        code = source.read(1)
        opcode = _OPCODES.get(code)
        if opcode is None:
            raise PickleError(f"the pickle has the unknown opcode {code!r}")
        name = opcode.name
        if name == "STOP":
            source.end()
            return
        argument = _argument(source, opcode)
        if name in _PUTS:
            place = int.from_bytes(argument, "little") if argument else memoized
            memoized += 1
            if before in _BYTES and len(last) < 2:
                shared[place] = last
        content = argument if name in _BYTES else None
        if name in _GETS:
            content = shared.get(int.from_bytes(argument, "little"))
        if content is not None and before in _ORDERS:
            yield Elements(_ORDERS[before], content)
        before, last = name, argument


def _argument(source: UnpicklerFile, opcode: pickletools.OpcodeInfo) -> bytes:
    """Reads the argument of an opcode; returns arguments of fixed length and bytes objects."""
    if opcode.arg is None:
        return b""
    if opcode.arg.n == pickletools.UP_TO_NEWLINE:
        for _ in range(_LINES.get(opcode.name, 1)):
            source.readline()
        return b""
    if opcode.arg.n >= 0:
        argument = source.read(opcode.arg.n)
        if opcode.name == "FRAME":
            source.read_frame(int.from_bytes(argument, "little"))
        return argument
    count = int.from_bytes(source.read(_WIDTHS[opcode.arg.n]), "little")
    if opcode.name in _BYTES:
        return source.read_into_memory(count)
    source.read(count)
    return b""


def write_dictionary(file: IO[bytes], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write a dictionary as ``numpy.savez`` does: as a pickled array of one object."""
    np.lib.format.write_array(file, np.asanyarray(dict(arrays)), allow_pickle=True)


def read_dictionary(
    file: Any, size: int, specs: Sequence[ArraySpec], path: Path, name: str
) -> Iterator[npt.NDArray[Any]]:
    """Yields the arrays of a pickled dictionary in order; number and sizes must match ``specs``.

    Args:
        file: an open member, at its begin.
        size: bytes of the member.
        specs: the arrays.
        path: the archive, for errors.
        name: of the member, for errors.

    Raises:
        DataError: it holds something else.
        PickleError: it is damaged.
    """
    _check_header(file, path, name)
    wanted = iter(specs)
    for elements in read_elements(file, size - file.tell()):
        spec = next(wanted, None)
        if spec is None:
            raise _miscounted(path, name, f"more than {len(specs)}", len(specs))
        yield _array(elements, spec, path)
    left = len(list(wanted))
    if left:
        raise _miscounted(path, name, str(len(specs) - left), len(specs))


def _check_header(file: IO[bytes], path: Path, name: str) -> None:
    version = np.lib.format.read_magic(file)
    known = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in known:
        raise DataError(
            f"{path}: member {name} has an unsupported NPY header version {version}",
            hint="store the object with version 1.0 or 2.0 of the NPY format",
        )
    with PARSING:
        shape, _, dtype = known[version](file)
    if dtype != np.dtype("O") or shape != ():
        raise DataError(
            f"{path}: member {name} is {dtype}{list(shape)}, not a pickled dictionary",
            hint=f"remove {name} from dataset.npz.pickled, and name it in dataset.fields",
        )


def _array(elements: Elements, spec: ArraySpec, path: Path) -> npt.NDArray[Any]:
    row = math.prod(spec.shape) * spec.dtype.itemsize
    rows, rest = divmod(len(elements.content), row)
    if rest or not (spec.variable or rows == 1):
        raise DataError(
            f"{path}: array {spec.name} has {len(elements.content)} bytes, but "
            f"{'a row' if spec.variable else 'the array'} in dataset.fields has {row} bytes",
            hint="correct dataset.fields, which must have the order of the dictionary",
        )
    shape = (rows, *spec.shape) if spec.variable else spec.shape
    array = np.empty(shape, spec.dtype)
    array[...] = np.frombuffer(elements.content, spec.dtype).reshape(shape, order=elements.order)
    return array


def _miscounted(path: Path, name: str, there: str, wanted: int) -> DataError:
    return DataError(
        f"{path}: the dictionary {name} holds {there} arrays, but dataset.fields name {wanted} arrays of {name}",
        hint=f"name each array in dataset.fields as {name}/KEY, in the order of the dictionary",
    )
