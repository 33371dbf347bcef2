"""Record of a benchmark's results: the machine, the versions, the load, and the result files."""

from __future__ import annotations

import json
import os
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.harness.tables import Missing, Part, Row, Table, comma_separated, markdown
from dlio_torch.environment.machine import describe
from dlio_torch.syserrors import refused
from dlio_torch.units import format_size


class Record:
    """Results of one benchmark, written again after each part, so that a killed benchmark leaves its results.

    Args:
        name: of the benchmark; its files begin with it.
        title: what it measures.
        arguments: what it was called with.
        folder: where files are written; None: nowhere.
    """

    def __init__(self, name: str, title: str, arguments: Namespace, folder: Path | None) -> None:
        self.name, self._title, self._folder = name, title, folder
        self._arguments = {key: _plain(value) for key, value in sorted(vars(arguments).items())}
        place = arguments.directory or tempfile.gettempdir()
        self.environment: dict[str, Any] = {
            "began_at": _now(),
            "load_before": os.getloadavg(),
            **describe({"directory": place}),
        }
        self._tables: dict[str, tuple[str, list[Row]]] = {}
        self.missing: list[Missing] = []
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise refused(
                    (f"--output {folder} cannot be created"), error, elsewhere="choose another folder"
                ) from error

    @property
    def rows(self) -> dict[str, list[Row]]:
        """Rows by table, of the parts finished until now."""
        return {name: rows for name, (_, rows) in self._tables.items()}

    def add(self, part: Part) -> None:
        """Adds the results of a part, and writes the files."""
        if isinstance(part, Missing):
            self.missing.append(part)
        else:
            assert isinstance(part, Table)
            self._tables.setdefault(part.name, (part.title, []))[1].extend(part.rows)
        self.write()

    def write(self) -> None:
        """Writes ``NAME.md``, ``NAME.json`` and one CSV file per table with the present results."""
        self.environment |= {"ended_at": _now(), "load_after": os.getloadavg()}
        if self._folder is None:
            return
        for name, rows in self.rows.items():
            stem = self.name if name == self.name else f"{self.name}.{name}"
            (self._folder / f"{stem}.csv").write_text(comma_separated(rows), encoding="utf-8")
        (self._folder / f"{self.name}.md").write_text(self.text(), encoding="utf-8")
        record = {
            "benchmark": self.name,
            "arguments": self._arguments,
            "environment": self.environment,
            "tables": self.rows,
            "missing": [part._asdict() for part in self.missing],
        }
        text = json.dumps(record, indent=2, default=str) + "\n"
        (self._folder / f"{self.name}.json").write_text(text, encoding="utf-8")

    def text(self) -> str:
        """All results as Markdown text."""
        lines = [f"## {self.name}", self._title, self.machine()]
        for title, rows in self._tables.values():
            lines += [title] if title else []
            lines.append(markdown(rows).rstrip())
        lines += [self.left_out()] if self.missing else []
        return "\n\n".join(lines) + "\n"

    def left_out(self) -> str:
        """Text on the figures that were not measured, and the reasons."""
        places: dict[tuple[str, str], list[str]] = {}
        for way, why, where in self.missing:
            places.setdefault((way, why), []).extend([where] if where else [])
        return "\n".join(f"- {way}{_where(parts)}: not measured; {why}." for (way, why), parts in places.items())

    def machine(self) -> str:
        """The machine and its software in two lines; ``NAME.json`` contains all details."""
        of = self.environment
        cpu, mount, versions = of["cpu"], of["mounts"]["directory"], of["versions"]
        loads = " to ".join(f"{of[key][0]:.1f}" for key in ("load_before", "load_after") if key in of)
        memory = of["memory"]["total_bytes"]
        return (
            f"{cpu['model'] or cpu['machine']}, {cpu['cores_usable']} of {cpu['cores']} cores, "
            f"{'unknown' if memory is None else format_size(memory)} of memory, kernel {of['kernel']}, "
            f"{mount['file_system'] or 'unknown'} file system; load {loads}.  "
            f"Python {versions['python']}, torch {versions['torch']}, h5py {versions['h5py']}, "
            f"commit {of['git_commit'] or 'unknown'}, {of['began_at']}."
        )


def _where(parts: Sequence[str]) -> str:
    """The first few parts, and the number of others."""
    if not parts:
        return ""
    more = [f"and {len(parts) - 2} more parts"] if len(parts) > 3 else parts[2:]
    return f" ({'; '.join([*parts[:2], *more])})"


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
