"""Files that are no recipes, and recipes that mean harm: refused in one line, soon, and nothing is executed."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest

from dlio_torch import cli
from dlio_torch.config import yamlfile
from dlio_torch.config.compose import compose
from dlio_torch.config.resources import find
from dlio_torch.errors import ConfigError
from dlio_torch.interop.dlio.files import read_workload
from dlio_torch.study import study_file

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{after}: &{after} [{', '.join([f'*{before}'] * 9)}]\n" for before, after in zip("abcdefg", "bcdefgh", strict=True)
)
CONTENTS = {
    "laughs": LAUGHS.encode(),
    "deep": b"a: " + b"[" * 100_000,
    "python": b"seed: !!python/object/apply:os.system ['touch owned']",
    "NUL": b"seed: \0",
    "UTF-16": "seed: 1".encode("utf-16"),
    "latin": b"description: \xe4",
    "two documents": b"seed: 1\n---\nseed: 2",
    "digits": b"seed: " + b"9" * 100_000,
    "half a character": b'description: "\\ud800"',
    "NUL in text": b'dataset: {root: "a\\0b"}',
    "infinite": b"compute: {step_s: 1e999}",
}


def refused(path: Path) -> list[str]:
    """What each reader of YAML says of a file."""
    places = find(path.parent, {})
    said = []
    for read in (
        lambda: compose([f"recipe=./{path.name}"], cwd=path.parent, environ={}),
        lambda: study_file.load(f"./{path.name}", places),
        lambda: read_workload(str(path)),
    ):
        try:
            read()
        except ConfigError as error:
            said.append(str(error))
    assert all(line.isprintable() for line in said)
    return said


@pytest.mark.parametrize("kind", CONTENTS)
def test_content(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_bytes(CONTENTS[kind])
    said = refused(tmp_path / "mine.yaml")
    assert "mine.yaml" in said[0]  # a workload may hold any text: what becomes of it is refused later
    assert not (tmp_path / "owned").exists()


def test_a_text_of_too_many_values_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yamlfile, "MAX_NODES", 100)
    for text in ("\n".join(f"k{i}: 1" for i in range(300)), f"a: [{'1,' * 300}]"):
        with pytest.raises(ConfigError, match="more than 100 values"):
            yamlfile.parse_document(text + "\n]", "mine.yaml")  # the mistake at the end is not seen


def test_what_is_no_regular_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    os.mkfifo("fifo.yaml")
    Path("zero.yaml").symlink_to("/dev/zero")
    Path("loop.yaml").symlink_to("loop.yaml")
    Path("folder.yaml").mkdir()
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("socket.yaml")
    with Path("large.yaml").open("wb") as file:
        file.truncate(2 << 30)
    for path in sorted(tmp_path.iterdir()):
        said = refused(path)
        assert len(said) == 3, path
        if path.name in ("fifo.yaml", "zero.yaml", "socket.yaml"):
            assert all("not a regular file" in line or "is no regular file" in line for line in said), said


def test_fragments_of_a_users_folder(tmp_path: Path) -> None:
    folder = tmp_path / "conf/loader"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_bytes(CONTENTS["laughs"])
    os.mkfifo(folder / "pipe.yaml")
    (tmp_path / "secret.yaml").write_text("num_workers: 1")
    for name in ("mine", "pipe", "../../secret", "..", "", "/etc/passwd", "mine.yaml", "a\nb", "$HOME"):
        with pytest.raises(ConfigError) as caught:
            compose(["recipe=minimal", f"loader={name}"], cwd=tmp_path, environ={"DLIO_TORCH_PATH": str(tmp_path)})
        assert str(caught.value).isprintable()
        assert (name if name.startswith("/") else "loader") in str(caught.value)


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    arguments = ["recipe=minimal", "scale=tiny", "storage.limits=off", f"dataset.root={folder / 'data'}"]
    assert cli.main([*arguments, f"output.dir={folder / 'run'}"]) == 0
    return folder / "run"


@pytest.mark.parametrize(
    ("name", "kind"),
    [("config.yaml", "date"), ("config.yaml", "pipe"), ("config.yaml", "HTML"), ("sources.yaml", "deep")],
)
def test_a_report_of_a_run_whose_configuration_means_harm(
    name: str, kind: str, small_run: Path, tmp_path: Path
) -> None:
    contents = {"date": b"a: 9999-99-99", "deep": CONTENTS["deep"]}
    contents["HTML"] = b"dataset.format: <script>alert(1)</script>\n<b>: <i>\nexpect: [{metric: x, value: y}]"
    run = tmp_path / "run"
    shutil.copytree(small_run, run)
    (run / name).unlink()
    if kind == "pipe":
        os.mkfifo(run / name)
    else:
        (run / name).write_bytes(contents[kind])
    assert cli.main(["report", str(run)]) == 0
    assert "<script>alert(1)" not in (run / "report.html").read_text(encoding="utf-8")
