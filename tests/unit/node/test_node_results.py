"""Tables, page and system file of a measured node, made of a record."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from node_records import limits, node_record

from dlio_torch import cli
from dlio_torch.config.compose import compose
from dlio_torch.errors import DataError
from dlio_torch.node.node_directory import NodeDirectory, is_node
from dlio_torch.node.node_page import write_node_page
from dlio_torch.node.node_text import print_node
from dlio_torch.node.request_rate import RequestRate
from dlio_torch.node.system_file import system_text


def printed() -> str:
    stream = io.StringIO()
    print_node(node_record(), stream)
    return stream.getvalue()


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip()]


def test_the_terminal_shows_verdict_limits_and_settings() -> None:
    text = printed()
    assert "improve decoding first." in " ".join(text.split())
    table = rows(text)
    assert ["decode", "500", "500", "MiB/s", "0.625", "300"] in table
    assert ["storage_large", "4,000", "3.91", "GiB/s", "5", "-"] in table
    assert "not measured: copy_pinned: there is no GPU" in text
    assert not any(row[0] == "copy_pinned" for row in table)


def test_combinations_are_sorted_and_a_failed_one_says_why() -> None:
    text = printed()
    table = [row for row in rows(text) if row[0] == "dataloader"]
    assert [row[1] for row in table] == ["2", "0", "4"]
    assert table[0][2:] == ["none", "false", "100", "100.0", "%"]
    assert table[2][2:] == ["none", "false", "-", "-"]
    assert "not measured: dataloader, 4 workers: killed by SIGKILL" in text


def test_the_page_has_a_bar_for_each_limit_and_the_demand(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra report is not installed")
    page = write_node_page(node_record(), tmp_path, tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count('role="img"') == 1
    for bar in ("storage_recipe-0", "storage_recipe-1", "decode-0", "decode-1", "storage_large-0"):
        assert f'id="node-{bar}"' in page
    assert 'id="node-storage_large-1"' not in page  # not measured with all others
    assert ">demand<" in page
    assert "improve decoding first." in page
    assert "copy_pinned was not measured: there is no GPU" in page
    assert "dataloader, 4 workers was not measured: killed by SIGKILL" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_a_page_without_any_limit_has_no_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra report is not installed")
    record = node_record(limits(decode=None), [])
    page = write_node_page(record, tmp_path, tmp_path / "report.html").read_text(encoding="utf-8")
    assert 'role="img"' not in page
    assert "no limit of this node could be measured" in page


def test_the_system_file_is_read_as_a_system(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(system_text(node_record(), path.stem))
    composed = compose(["recipe=minimal", f"system={path}"])
    system = composed.config.system
    assert (system.name, system.ranks_per_node, system.cores_per_node) == ("mine", 8, 2)
    assert system.read_bytes_per_s == system.client_bytes_per_s == 4000 * (1 << 20)
    assert (system.target_requests_per_s, system.request_latency_s) == (50_000, 1e-4)
    for key in ("targets", "metadata_ops_per_s", "network_bytes_per_s", "write_bytes_per_s"):
        assert composed.sources[f"system.{key}"] == "default"
        assert f"#   {key}" in path.read_text()


def test_the_system_file_leaves_out_what_was_not_measured(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    record = node_record(limits(storage_large=None), [], RequestRate(why="the folder\nis full"))
    path.write_text(system_text(record, path.stem))
    text = path.read_text()
    assert "#   read_bytes_per_s, client_bytes_per_s: large reads of the storage were not measured\n" in text
    assert "#   target_requests_per_s, request_latency_s: the folder is full\n" in text
    system = compose(["recipe=minimal", f"system={path}"]).config.system
    assert (system.read_bytes_per_s, system.request_latency_s) == (0, 0)


def test_report_writes_the_page_of_a_directory_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="the extra report is not installed")
    directory = NodeDirectory.create(tmp_path / "runs", "minimal")
    directory.save(node_record())
    assert is_node(directory.path)
    assert cli.main(["report", str(directory.path)]) == 0
    assert directory.report.is_file()
    assert cli.main(["report", f"output.root={tmp_path / 'runs'}"]) == 0
    assert f"newest node: {directory.path}" in capsys.readouterr().err


def test_a_damaged_result_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = NodeDirectory.create(tmp_path / "runs", "minimal")
    for content in ("{", json.dumps({"schema_version": "0"}), "[]"):
        directory.result.write_text(content)
        with pytest.raises(DataError):
            directory.read()
    assert cli.main(["report", str(directory.path)]) == 3
    assert "is not the result of this version" in capsys.readouterr().err


def test_clean_removes_a_measured_node_by_path_and_by_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    first, second, other = (NodeDirectory.create("runs", name) for name in ("minimal", "minimal", "resnet50"))
    for directory in (first, second, other):
        directory.save(node_record())
    (second.path / "notes.txt").write_text("mine")
    assert cli.main(["clean", str(first.path), "--yes"]) == 0
    assert not first.path.exists()
    assert cli.main(["clean", "recipe=minimal", "--yes"]) == 0
    assert [path.name for path in second.path.iterdir()] == ["notes.txt"]
    assert other.result.is_file()
    assert "notes.txt" in capsys.readouterr().out
