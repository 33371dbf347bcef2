"""Entries of the tree of an LMDB file, read from its pages without the library.

Layout of pages, nodes and the two meta pages: ``struct MDB_page``, ``MDB_node``, ``MDB_meta`` and ``MDB_db`` of
lmdb/libraries/liblmdb/mdb.c, data version 1, with 64-bit page numbers in the byte order of the machine.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dlio_torch.errors import DataError
from dlio_torch.formats.core.file_errors import os_errors

_HEADER = struct.Struct("=QHHHH")  # page number, padding, flags, ends of the lower and the upper part
_META = struct.Struct("=IIQQ")  # magic, version, address, size of the map
_TREE = struct.Struct("=IHHQQQQQ")  # padding, flags, depth, pages of three kinds, entries, root
_LAST = struct.Struct("=QQ")  # last page, transaction
_NODE = struct.Struct("=HHHH")  # low and high part of a size or page number, flags, size of the key
_PAGE_NUMBER = struct.Struct("=Q")
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_BRANCH, _LEAF = 1, 2
_BIG, _SUBTREE, _DUPLICATES = 1, 2, 4
_NO_PAGE = (1 << 64) - 1
_DEEPEST = 32
_META_BYTES = _HEADER.size + _META.size + 2 * _TREE.size + _LAST.size


@dataclass(frozen=True)
class TreeEntry:
    """One entry of the tree.

    Attributes:
        key: its key.
        offset: first byte of its value in the file.
        size: bytes of the value.
        named_tree: it is the root of a named database, not a value.
    """

    key: bytes
    offset: int
    size: int
    named_tree: bool


class TreePages:
    """Pages of an LMDB file.

    Args:
        path: the data file.
        descriptor: of the open file.

    Attributes:
        size: bytes of the file.
        entries: their number, as the file states it.

    Raises:
        DataError: it is no such file.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size
        self._page_bytes = 0
        newest = -1
        head = os.pread(descriptor, _META_BYTES, 0)
        if len(head) == _META_BYTES:
            self._page_bytes = _TREE.unpack_from(head, _HEADER.size + _META.size)[0]
        for meta in (head, os.pread(descriptor, _META_BYTES, self._page_bytes)):
            if len(meta) < _META_BYTES or _META.unpack_from(meta, _HEADER.size)[:2] != (_MAGIC, _VERSION):
                raise self._damaged("it has no header of LMDB's")
            tree = _TREE.unpack_from(meta, _HEADER.size + _META.size + _TREE.size)
            transaction = _LAST.unpack_from(meta, _META_BYTES - _LAST.size)[1]
            if transaction > newest:
                newest, self.entries, self._root = transaction, tree[6], tree[7]

    def walk(self) -> Iterator[TreeEntry]:
        """Yields all entries in the order of their keys.

        Raises:
            DataError: the tree is damaged.
        """
        if self._root != _NO_PAGE:
            yield from self._below(self._root, 0)

    def _below(self, number: int, depth: int) -> Iterator[TreeEntry]:
        if depth > _DEEPEST:
            raise self._damaged("its tree has a circle")
        try:
            page = self._page(number)
            _, _, flags, lower, _ = _HEADER.unpack_from(page)
            nodes = struct.unpack_from(f"={(lower - _HEADER.size) // 2}H", page, _HEADER.size)
            if flags & _BRANCH:
                for node in nodes:
                    low, high, top, _ = _NODE.unpack_from(page, node)
                    yield from self._below(low | high << 16 | top << 32, depth + 1)
                return
            if not flags & _LEAF:
                raise self._damaged(f"page {number} is not part of a tree")
            for node in nodes:
                yield self._entry(page, number, node)
        except struct.error as error:
            raise self._damaged(f"page {number} is cut or overwritten") from error

    def _entry(self, page: bytes, number: int, node: int) -> TreeEntry:
        low, high, flags, key_bytes = _NODE.unpack_from(page, node)
        size, start = low | high << 16, node + _NODE.size + key_bytes
        key = page[node + _NODE.size : start]
        offset = number * self._page_bytes + start
        if flags & _BIG:
            offset = _PAGE_NUMBER.unpack_from(page, start)[0] * self._page_bytes + _HEADER.size
        if flags & _DUPLICATES:
            raise self._damaged(f"key {key.decode(errors='replace')!r} has several values, which is not supported")
        if offset + size > self.size:
            raise self._damaged(f"the value of {key.decode(errors='replace')!r} goes beyond the end of the file")
        return TreeEntry(key, offset, size, bool(flags & _SUBTREE))

    def _page(self, number: int) -> bytes:
        page = b""
        if 0 < number * self._page_bytes < self.size:
            page = os.pread(self._descriptor, self._page_bytes, number * self._page_bytes)
        if len(page) < max(self._page_bytes, _HEADER.size) or _HEADER.unpack_from(page)[0] != number:
            raise self._damaged(f"page {number} is missing or overwritten")
        return page

    def _damaged(self, problem: str) -> DataError:
        return DataError(
            f"{self._path} cannot be read: {problem}", hint="the file is damaged; generate or fetch it again"
        )


@contextmanager
def open_tree(path: Path) -> Iterator[TreePages]:
    """Opens a data file for the time of the body.

    Raises:
        DataError: it is no such file, or cannot be read.
    """
    with os_errors(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield TreePages(path, descriptor)
        finally:
            os.close(descriptor)
