"""Makes the pages in ``docs/examples/``: a traced run, a study, and a log of Darshan.

``python docs/make_examples.py [--log FILE] [NAME ...]`` runs what each page shows, in a new folder. It needs the extra
``report``, and ``logs`` for the page of a log. The pages name no folder and no machine of their author.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

OUTPUT = Path(__file__).parent / "examples"
REPO = Path(__file__).resolve().parent.parent
RUN = ["recipe=cosmic_tagger", "trace.posix=true"]
STUDY = ["recipe=minimal", "loader.num_workers=0,1,2", "train.batch_size=2,4", "name=workers"]
NAMES = ("run", "study", "log")
LARGEST = 1_000_000
"""Bytes of a page."""


def run_page(folder: Path, output: Path, settings: Sequence[str] = RUN) -> None:
    """The report of a traced run."""
    command(["run", *settings, "output.dir=run"], folder)
    command(["report", "run", "--output", "run.html"], folder)
    publish(folder / "run.html", output, folder)


def study_page(folder: Path, output: Path, settings: Sequence[str] = STUDY) -> None:
    """The page of a study by ``sweep``."""
    command(["sweep", *settings, "output=study"], folder)
    command(["report", "study", "--output", "study.html"], folder)
    publish(folder / "study.html", output, folder)


def log_page(folder: Path, output: Path, log: Path) -> None:
    """The report of a log, of Darshan for example, with the name of its file."""
    shutil.copyfile(log, folder / log.name)
    command(["report", log.name, "--output", "log.html"], folder)
    publish(folder / "log.html", output, folder)


def command(arguments: Sequence[str], folder: Path) -> None:
    """Run dlio_torch in a folder."""
    subprocess.run([sys.executable, "-m", "dlio_torch", *arguments], cwd=folder, check=True)


def publish(page: Path, output: Path, folder: Path) -> None:
    """Copy a page without the names of folders and of this machine.

    Raises:
        ValueError: the page is too large for the documentation.
    """
    text = page.read_text(encoding="utf-8")
    kernel = platform.release()
    for name, shown in {
        str(folder): "/scratch",
        sys.prefix: "/opt/venv",
        str(REPO): "/opt/dlio_torch",
        socket.gethostname(): "node01",
        kernel: kernel.partition("-")[0],
    }.items():
        text = text.replace(name, shown)
    if len(text.encode()) > LARGEST:
        raise ValueError(f"{page.name} has {len(text.encode())} bytes; make the example smaller, at most {LARGEST}")
    output.write_text(text, encoding="utf-8")


def main() -> int:
    """Make the pages that are named, or all of them."""
    parser = argparse.ArgumentParser(description="Make the example pages of the documentation.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(NAMES)}; without names: all")
    parser.add_argument("--log", type=Path, help="log of Darshan, for the page log")
    options = parser.parse_args()
    names = options.names or list(NAMES)
    if unknown := sorted({*names} - {*NAMES}):
        parser.error(f"there is no page {unknown[0]}; the pages are {', '.join(NAMES)}")
    if "log" in names and options.log is None:
        parser.error("the page log needs a log: --log FILE; or name the other pages")
    OUTPUT.mkdir(exist_ok=True)
    for name in names:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            if name == "log":
                log_page(folder, OUTPUT / "log.html", options.log.resolve())
            else:
                {"run": run_page, "study": study_page}[name](folder, OUTPUT / f"{name}.html")
        print(OUTPUT / f"{name}.html", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
