"""Classes of images, by the folders in which they lie, as torchvision's ImageFolder numbers them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from dlio_torch.formats.image.options import SUFFIXES


class ClassFolders:
    """Class numbers of the folders in which files lie: the position of a folder among its siblings.

    Each folder of folders is listed once.
    """

    def __init__(self) -> None:
        self._numbers: dict[Path, dict[str, int]] = {}

    def number(self, path: Path) -> int:
        """Position of the folder of ``path`` among its siblings, sorted by name.

        Raises:
            OSError: they cannot be listed.
        """
        folder = path.absolute().parent
        numbers = self._numbers.get(folder.parent)
        if numbers is None:
            names = class_names(folder.parent)
            numbers = self._numbers[folder.parent] = {name: number for number, name in enumerate(names)}
        return numbers[folder.name]


class ClassTree:
    """Class numbers of files at any depth below the class folders of one folder.

    Args:
        root: holds the class folders.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(class_names(self._root))}

    def number(self, path: Path) -> int:
        """Number of the class folder of ``path``, which may be the path of a staged copy.

        Raises:
            OSError: the class folders cannot be listed.
            LookupError: the file lies in no class folder.
        """
        return self._numbers[self.name_of(path).partition("/")[0]]

    def name_of(self, path: Path) -> str:
        """Path of a file, or of its staged copy, below the root.

        Raises:
            LookupError: it is no file of this tree.
        """
        whole = path.absolute()
        if whole.is_relative_to(self._root):
            return whole.relative_to(self._root).as_posix()
        parts = whole.parts[1:]
        for first in range(len(parts)):  # the copy has the same path below another folder
            name = "/".join(parts[first:])
            if (self._root / name).exists():
                return name
        raise LookupError(f"{path} is no file below {self._root}")


def class_names(root: Path) -> list[str]:
    """Names of the class folders below ``root``, in the order of their numbers; links to folders count.

    Raises:
        OSError: they cannot be listed.
    """
    with os.scandir(root) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir())


def image_names(root: Path, *, classes: bool) -> list[str]:
    """Paths of the images below ``root``, in the order of ImageFolder: by class, folder and name.

    Args:
        root: the folder.
        classes: images lie in class folders; those beside the class folders are left out.

    Raises:
        OSError: a folder cannot be listed.
    """
    return [name for name in file_names(root, classes=classes) if name.lower().endswith(SUFFIXES)]


def file_names(root: Path, *, classes: bool) -> Iterator[str]:
    """Yields the paths of all files where :func:`image_names` looks for images, in the same order."""
    tops = [root / name for name in class_names(root)] if classes else [root]
    for top in tops:
        for folder, name in _below(top):
            yield f"{os.path.relpath(folder, root)}/{name}".removeprefix("./")


def _below(top: Path) -> Iterator[tuple[str, str]]:
    """Folder and name of each file below ``top``; links to folders are followed, but not to a folder above them."""
    folders: list[tuple[str, list[str]]] = []
    for folder, inner, names in os.walk(top, followlinks=True, onerror=_raise):
        folders.append((folder, names))
        inner[:] = [name for name in inner if not _leads_back(os.path.join(folder, name))]
    for folder, names in sorted(folders):
        yield from ((folder, name) for name in sorted(names))


def _leads_back(path: str) -> bool:
    """Whether a folder is a link to a folder in which it lies itself."""
    if not os.path.islink(path):
        return False
    target = os.path.realpath(path)
    return os.path.commonpath([target, os.path.realpath(os.path.dirname(path))]) == target


def _raise(error: OSError) -> None:
    raise error
