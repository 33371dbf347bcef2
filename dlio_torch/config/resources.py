"""Finds files in ``conf/`` and ``recipes/``: in the user's folders first, then in those of the package.

A user's folders are named in the environment variable ``DLIO_TORCH_PATH``, separated by colons; each
may hold ``conf/<group>/<choice>.yaml`` and ``recipes/<name>.yaml``.  The shipped ones lie inside the
installed package, or at the top of a checkout.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from dlio_torch.config.fields import nearest
from dlio_torch.config.yamlfile import MAX_CHARACTERS, Document, parse_document
from dlio_torch.errors import ConfigError

PATH_VARIABLE = "DLIO_TORCH_PATH"
RECIPE_IN_FOLDER = "recipe.yaml"
"""Name of the recipe in a folder that a path names, such as a result of the verb ``fit``."""

# One path component without dots, so that no stem or suffix of it means anything.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")


@dataclass(frozen=True)
class Root:
    """A folder that contains ``conf/`` and ``recipes/``; messages show its files as ``prefix + relative path``."""

    folder: Path
    prefix: str


@dataclass(frozen=True)
class Resources:
    """The folders that are searched for recipes and fragments, in order of precedence.

    Attributes:
        roots: the user's folders, then the shipped one.
        cwd: folder to which relative recipe paths refer.
    """

    roots: tuple[Root, ...]
    cwd: Path

    def recipes(self) -> dict[str, Path]:
        """Maps the name of each recipe to its file, sorted by name."""
        return self._names("recipes")

    def choices(self, group: str) -> dict[str, Path]:
        """Maps the name of each fragment of ``group`` to its file, sorted by name."""
        return self._names(f"conf/{group}")

    def recipe(self, name: str, source: str) -> tuple[str, Document]:
        """Loads a recipe by shipped name or by path; returns its name and content.

        A path contains a slash or ends in ``.yaml`` or ``.yml``; anything else is a name.

        Raises:
            ConfigError: there is none, it cannot be read, or it is malformed.
        """
        if is_path(name):
            return self._recipe_file(name, source)
        known = self.recipes()
        path = known.get(name)
        if path is None:
            raise ConfigError(
                f"recipe={name} ({source}): no such recipe",
                hint=f"{_meant(name, known)}recipes are {_listed(known)}; to use your own file, give its path, for "
                f"example recipe=./{_safe_stem(name)}.yaml",
            )
        return name, self._with_paths(self._load(path, f"recipe={name} ({source})"), path)

    def fragment(self, group: str, choice: str, source: str) -> Document:
        """Loads the fragment ``conf/<group>/<choice>.yaml``, or the file of options that a path names.

        Raises:
            ConfigError: there is none, it cannot be read, or it is malformed.
        """
        known = self.choices(group)
        if is_path(choice):
            return self._file(f"{group}={choice}", choice, source, f"{group} is chosen among {_listed(known)}", group)
        path = known.get(choice)
        if path is None:
            advice = f"choices are {_listed(known)}" if known else f"set its options one by one: {group}.<option>=..."
            raise ConfigError(
                f"{group}={choice} ({source}): no such choice of {group}", hint=f"{_meant(choice, known)}{advice}"
            )
        return self._with_paths(self._load(path, f"{group}={choice} ({source})"), path, group)

    def _recipe_file(self, name: str, source: str) -> tuple[str, Document]:
        known = f"shipped recipes are {_listed(self.recipes())}"
        within = f"{name.rstrip('/')}/{RECIPE_IN_FOLDER}"
        path = within if self._is_file(within) else name
        return _safe_stem(name), self._file(f"recipe={name}", path, source, known)

    def _is_file(self, name: str) -> bool:
        try:
            return (self.cwd / Path(name).expanduser()).is_file()
        except (OSError, ValueError, RuntimeError):  # the message on the path itself follows
            return False

    def _file(self, setting: str, name: str, source: str, known: str, group: str = "") -> Document:
        """Loads the YAML file that a path names.

        Args:
            setting: the argument.
            name: the path.
            source: of the argument.
            known: choices by name, for messages.
            group: that the keys of the file belong to; empty: it is a recipe.
        """
        asker = f"{setting} ({source})"
        example = f"{setting.partition('=')[0]}=./my.yaml"
        try:
            path = (self.cwd / Path(name).expanduser()).resolve()
            is_file, is_folder = path.is_file(), path.is_dir()
            there = sorted(p.name for p in path.parent.glob("*.y*ml")) if not is_file else []
        except (OSError, ValueError, RuntimeError) as error:  # a name too long, a NUL, an unknown ~user
            raise ConfigError(
                f"{asker}: the path cannot be used: {error}", hint=f"name a YAML file, for example {example}"
            ) from None
        if is_folder:
            raise ConfigError(
                f"{asker}: the path is a folder, and a YAML file is needed",
                hint=f"name a file in the folder, for example {setting.rstrip('/')}/config.yaml",
            )
        if not is_file and path.exists():
            raise ConfigError(
                f"{asker}: the path is not a regular file", hint=f"name a YAML file, for example {example}"
            )
        if not is_file:
            raise ConfigError(f"{asker}: no such file", hint=f"{_meant(path.name, dict.fromkeys(there, path))}{known}")
        return self._with_paths(self._load(path, asker, label=name), path, group)

    def _with_paths(self, document: Document, path: Path, group: str = "") -> Document:
        """The content of a file with absolute paths; shipped files name no files of data."""
        if path.is_relative_to(self.roots[-1].folder):
            return document
        from dlio_torch.config.file_paths import with_file_paths

        return with_file_paths(document, path.parent, group)

    def _names(self, folder: str) -> dict[str, Path]:
        paths: dict[str, Path] = {}
        for root in reversed(self.roots):
            for path in (root.folder / folder).glob("*.yaml"):
                if _NAME.fullmatch(path.stem):
                    paths[path.stem] = path
        return dict(sorted(paths.items()))

    def _load(self, path: Path, asker: str, label: str | None = None) -> Document:
        return read_document(path, asker, label or self._label(path))

    def _label(self, path: Path) -> str:
        for root in self.roots:
            if path.is_relative_to(root.folder):
                return root.prefix + path.relative_to(root.folder).as_posix()
        return str(path)


def read_document(path: Path, asker: str, label: str) -> Document:
    """Reads and parses the YAML file ``path``.

    Args:
        path: the file.
        asker: start of messages: the key that names the file.
        label: its name in messages about its content.

    Raises:
        ConfigError: it cannot be read, or it is malformed.
    """
    try:
        # One character more than permitted is enough to know, and a device file cannot fill memory.
        # A pipe would be waited for, possibly without end.
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(
                f"{asker}: {path} is not a regular file", hint="name a YAML file, for example recipe=./my.yaml"
            )
        # Some files of the kernel are regular and give what they have only when there is something.
        with open(path, "rb", opener=_without_waiting) as file:
            text = (file.read(4 * MAX_CHARACTERS + 1) or b"").decode("utf-8")
    except OSError as error:
        raise ConfigError(
            f"{asker}: cannot read {path}: {error.strerror}", hint=f"check the permissions of {path}"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(
            f"{asker}: {path} is not UTF-8 text", hint="name a YAML file, for example recipe=./my.yaml"
        ) from None
    return parse_document(text, label)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def find(cwd: Path, environ: Mapping[str, str]) -> Resources:
    """Returns the folders to search, for the working directory ``cwd`` and the environment ``environ``."""
    roots = [
        Root((cwd / entry).resolve(), entry.rstrip("/") + "/")
        for entry in environ.get(PATH_VARIABLE, "").split(":")
        if entry
    ]
    return Resources((*roots, Root(shipped(), "")), cwd)


def shipped() -> Path:
    """Returns the folder that contains the shipped ``conf/`` and ``recipes/``."""
    package = Path(str(resources.files("dlio_torch")))
    installed = package / "_resources"
    return installed if installed.is_dir() else package.parent


def is_path(text: str) -> bool:
    """Returns whether ``text`` names a file of the user, and not a shipped recipe or fragment."""
    return "/" in text or text.endswith((".yaml", ".yml"))


def is_name(text: str) -> bool:
    """Returns whether ``text`` is allowed as the name of a recipe: one path component of safe characters."""
    return _NAME.fullmatch(text) is not None


def _safe_stem(name: str) -> str:
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", Path(name).stem).lstrip("-")[:100]
    return stem or "recipe"


def _meant(name: str, known: Mapping[str, Path]) -> str:
    close = nearest(name, list(known))
    return f"did you mean {close[0]}? " if close else ""


def _listed(known: Mapping[str, Path]) -> str:
    return ", ".join(known) if known else "none"
