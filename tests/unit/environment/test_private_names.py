"""Names that torch, torchdata and Python keep to themselves are used in one module, and one of the import hook."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import dlio_torch
from dlio_torch.environment import private_names
from dlio_torch.iotrace.recorder.torch_hook import patched_names

PACKAGE = Path(dlio_torch.__file__).parent
# Documented, in spite of their underscore; a name of the type stubs alone; a module of another library.
PUBLIC = {"os._exit", "sys._current_frames", "ctypes._NamedFuncPointer", "backend._structdefs"}
OF_NAMED_TUPLES = {"_replace", "_fields", "_asdict"}
OF_EACH = ("_shutdown_workers", "_MapDatasetFetcher")  # a name that the module uses
REFLECTION = {"getattr", "hasattr", "setattr", "delattr"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def own_names(tree: ast.Module) -> set[str]:
    """What a module defines, and sets on its objects: the private names that it may use of any object."""
    own = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "cls"):
            own.add(node.attr)
    return own


def foreign(source: str) -> Iterator[str]:
    """Private names of other modules that a source uses, by attribute, by reflection or by import."""
    tree = ast.parse(source)
    own = own_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            used = ast.unparse(node)
            if is_private(node.attr) and node.attr not in own | OF_NAMED_TUPLES and used not in PUBLIC:
                yield used
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in REFLECTION:
            name = node.args[1]
            if isinstance(name, ast.Constant) and is_private(str(name.value)) and name.value not in own:
                yield ast.unparse(node)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] != "dlio_torch":
            parts = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            if any(map(is_private, parts)):
                yield ast.unparse(node)


@pytest.mark.parametrize(
    "source",
    [
        "loader._shutdown_workers()",
        "from torch.utils.data._utils import signal_handling",
        "queues.Queue._on_queue_feeder_error = print",
        "workers = getattr(iterator, '_workers', ())",
    ],
)
def test_such_a_name_is_found(source: str) -> None:
    assert len(list(foreign(source))) == 1


def test_a_module_may_use_its_own() -> None:
    assert not list(foreign("class A:\n    def __init__(self, other):\n        self._a = other._a"))


def test_one_module_uses_them_and_one_of_the_hook_in_other_programs() -> None:
    modules = Path(private_names.__file__), Path(patched_names.__file__)
    assert all(
        any(name in used for used in foreign(path.read_text())) for path, name in zip(modules, OF_EACH, strict=True)
    )
    others = (path for path in sorted(PACKAGE.rglob("*.py")) if path not in modules)
    found = [f"{path.relative_to(PACKAGE)}: {used}" for path in others for used in foreign(path.read_text())]
    assert found == []
