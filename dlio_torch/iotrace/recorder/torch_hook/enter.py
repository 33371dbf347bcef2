"""Starts the import hook inside a recorded program; the preloaded library runs this file by its path."""

from __future__ import annotations

import os
import sys


def enter(file: str, events: str, rank: int, limit_bytes: int) -> None:
    """Starts the hook, or notes why it cannot start.

    Args:
        file: path of this file.
        events: the events folder.
        rank: rank of this process.
        limit_bytes: size that each of its files may reach.
    """
    # The library writes a code point beyond 16 bits as two.
    events = events.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    try:
        _start(os.path.abspath(os.path.join(file, *[os.pardir] * 5)), events, rank, limit_bytes)
    except KeyboardInterrupt:
        import _thread

        _thread.interrupt_main()  # the program gets it where it would have got it
    except Exception as error:
        _note(events, rank, f"{type(error).__name__}: {error}")


def _start(root: str, events: str, rank: int, limit_bytes: int) -> None:
    """Imports the hook from its own package, which the program's modules and search path do not show.

    Args:
        root: folder that holds the package.
        events: see above.
        rank: see above.
        limit_bytes: see above.
    """
    package = "dlio_torch"
    folder = os.path.join(root, package)
    theirs = {name: module for name, module in sys.modules.items() if name.split(".")[0] == package}
    is_ours = getattr(theirs.get(package), "__file__", None) == os.path.join(folder, "__init__.py")
    if not is_ours:
        for name in theirs:
            del sys.modules[name]
    try:
        if not is_ours:
            _import_package(package, folder)
        from dlio_torch.iotrace.recorder.torch_hook.hook import start

        start(events, rank, limit_bytes)
    finally:
        if not is_ours:
            for name in [name for name in sys.modules if name.split(".")[0] == package]:
                del sys.modules[name]
            sys.modules.update(theirs)


def _import_package(name: str, folder: str) -> None:
    import importlib.util

    path = os.path.join(folder, "__init__.py")
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=[folder])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def _note(events: str, rank: int, reason: str) -> None:
    import json

    text = f"what the program asked torch for is not recorded: {reason}"
    path = os.path.join(events, f"rank{rank}-{os.getpid()}.torch")
    try:
        with open(path, "a") as file:
            file.write(json.dumps({"kind": "note", "text": text}) + "\n")
    except OSError:
        pass


if __name__ == "dlio_torch_hook":
    enter(*(globals()[name] for name in ("__file__", "events", "rank", "limit_bytes")))
