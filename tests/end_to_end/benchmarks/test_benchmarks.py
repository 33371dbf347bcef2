"""The harness of the benchmarks, and that each of them gives its rows and files, whatever the times."""

from __future__ import annotations

import csv
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import REPO

from benchmarks.harness import command
from benchmarks.harness.rounds import Unavailable, interleave
from benchmarks.harness.tables import Missing, Spread, Table, comma_separated, markdown
from benchmarks.peers.names import PEERS


def result(folder: Path, name: str) -> dict:
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def test_every_way_is_measured_once_a_round_and_each_round_begins_with_another():
    calls = []
    ways = {name: lambda name=name: calls.append(name) or {"value": len(calls)} for name in "abc"}
    found = interleave(ways, 3, warmups=0)
    assert "".join(calls) == "abcbcacab"
    assert found.values("b", "value") == [2, 4, 9]
    assert found.ratios("b", "value", "a") == [2, 4 / 6, 9 / 8]
    assert found.ratio("a", "value", "a") == (1, 1, 1)


def test_warm_up_rounds_do_not_count():
    values = iter(range(10))
    found = interleave({"a": lambda: {"value": next(values)}}, 2, warmups=3)
    assert found.values("a", "value") == [3, 4]


def test_a_way_that_cannot_be_measured_is_left_out_with_its_reason_and_the_others_go_on():
    turns = iter([{"value": 1.0}])

    def breaks():
        for figures in turns:
            return figures
        raise Unavailable("it broke")

    found = interleave({"breaks": breaks, "works": lambda: {"value": 2.0}}, 3, warmups=0)
    assert found.dropped == {"breaks": "it broke"}
    assert found.values("works", "value") == [2.0] * 3
    with pytest.raises(Unavailable, match="it broke"):
        found.ratios("works", "value", "breaks")


def test_a_spread_is_the_median_with_quartiles():
    assert Spread.of([5, 1, 4, 2, 3]) == (3, 2, 4)
    assert Spread.of([7]) == (7, 7, 7)


def test_tables_say_what_was_not_measured_and_csv_keeps_all_digits():
    rows = [{"way": "a, b", "MB/s": Spread(1234.5678, 1, 2), "ratio": None}]
    assert markdown(rows) == "| way | MB/s | ratio |\n|---|---:|---:|\n| a, b | 1,235 [1, 2] | - |\n"
    [row] = csv.DictReader(comma_separated(rows).splitlines())
    assert row == {
        "way": "a, b", "MB/s": "1234.5678", "MB/s, low quartile": "1", "MB/s, high quartile": "2", "ratio": "",
    }  # fmt: skip


class Example:
    """An example."""

    NAME = "example"
    __doc__ = "An example.\n\nMore about it."

    def add_arguments(self, parser):
        parser.add_argument("--number", type=int, default=1)

    def run(self, arguments):
        yield Table("example", [{"row": arguments.number}], "A title.")
        yield Missing("other", "pip install other", "one place")
        yield Missing("other", "pip install other", "another place")
        yield Table("example", [{"row": 2}])


def test_the_command_prints_and_writes_each_table_once_with_the_machine(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "MEMBERS", ("example",))
    monkeypatch.setattr(command, "load", lambda name: Example())
    assert command.main(["example", "--number", "7", "--output", str(tmp_path), "--directory", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "A title.\n\n| row |\n|---:|\n| 7 |\n| 2 |\n" in printed
    assert "- other (one place; another place): not measured; pip install other." in printed
    assert (tmp_path / "example.csv").read_text() == "row\n7\n2\n"
    assert "| 7 |\n| 2 |\n" in (tmp_path / "example.md").read_text()
    record = result(tmp_path, "example")
    assert record["tables"] == {"example": [{"row": 7}, {"row": 2}]}
    assert record["arguments"]["number"] == 7
    assert {"cpu", "kernel", "memory", "mounts", "versions", "git_commit", "load_before", "load_after"} <= set(
        record["environment"]
    )


def test_names_and_options_that_do_not_exist_are_refused(capsys):
    assert command.main(["nonesuch"]) == 2
    assert "loaders" in capsys.readouterr().err
    for words, told in (
        (["span_cost", "--rounds", "0"], "argument --rounds: expected a whole number of at least 1, not '0'"),
        (["span_cost", "--directory", "/nowhere"], "argument --directory: there is no folder '/nowhere'; create it"),
        (["--directory", "/nowhere"], "argument --directory: there is no folder '/nowhere'; create it"),
        (["fuzz", "--directory", "x" * 300], "argument --directory: there is no folder 'xxx"),
    ):
        with pytest.raises(SystemExit) as ended:
            command.main(words)
        assert ended.value.code == 2
        [line] = capsys.readouterr().err.splitlines()
        assert told in line
    assert command.main(["span_cost", "--output", "/proc/nowhere"]) == 3
    [line] = [line for line in capsys.readouterr().err.splitlines() if "error" in line or "cannot" in line]
    assert line.startswith("span_cost: --output /proc/nowhere cannot be created: ")


def test_the_list_names_every_benchmark(capsys):
    assert command.main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(command.MEMBERS)


def test_loaders_are_measured_and_peers_that_are_not_here_are_named(tmp_path):
    # In a process of its own: it forks workers.
    arguments = [
        sys.executable, "-m", "benchmarks", "loaders", "--quick", "--layouts", "npy,peers",
        "--ways", "ours, decoupled;ours, dataloader;loop;DataLoader, 2;nodes",
        "--output", str(tmp_path), "--directory", str(tmp_path),
    ]  # fmt: skip
    subprocess.run(arguments, cwd=REPO, capture_output=True, text=True, timeout=250, check=True)
    record = result(tmp_path, "loaders")
    rows = record["tables"]["loaders"]
    ways = {layout: {row["way"] for row in rows if row["layout"] == layout} for layout in ("npy", "peers")}
    assert {
        "two threads that only read", "limit", "ours, decoupled", "ours, dataloader", "ours, dataloader, 2 workers",
        "loop over numpy, mapped", "torch DataLoader, 2 workers", "torchdata.nodes, 2 threads",
    } <= ways["npy"]  # fmt: skip
    assert {"ours, decoupled", "torch DataLoader, 2 workers"} <= ways["peers"]
    for row in rows:
        assert row["cache"] == "warm"
        assert row["MB/s"][0] > 0
        if row["way"] == "two threads that only read":
            assert row["of the baseline"] == [1, 1, 1]
    here = {way for found in ways.values() for way in found}
    missing = {one["way"]: one["why"] for one in record["missing"]}
    for peer in PEERS:
        is_installed = all(
            importlib.util.find_spec(name.partition(".")[0]) for name in peer.imports
        )  # and not among --ways
        is_told = missing.get(peer.name) == f"pip install {peer.packages}"
        assert is_told or is_installed or any(peer.name in way for way in here)


@pytest.mark.parametrize(
    "words",
    [["loaders", "--layouts", "npy,nope"], ["busy_thread", "--layouts", "nope"], ["busy_thread", "--loaders", "x"]],
)
def test_what_is_not_known_is_one_line(words, tmp_path, capsys):
    assert command.main([*words, "--quick", "--directory", str(tmp_path)]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert f"{words[1]}={words[2]}: there is no" in line
    assert "; known are " in line


@pytest.mark.parametrize("words", [
    ["loaders", "--sizes=4k"], ["loaders", "--orders=random"], ["direct_io", "--sizes=0"],
    ["busy_thread", "--sizes=4,6"], ["busy_thread", "--prefetch-bytes=-1"],
])  # fmt: skip
def test_a_value_that_is_no_good_is_one_line(words, tmp_path, capsys):
    assert command.main([*words, "--quick", "--directory", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert words[1] in error.splitlines()[-1]
    assert "; " in error.splitlines()[-1]
    assert "Traceback" not in error


def test_small_benchmarks_run_together(tmp_path, capsys):
    options = ["--quick", "--output", str(tmp_path), "--directory", str(tmp_path)]
    assert command.main(["hdf5_read", "span_cost", "busy_thread", *options]) == 0
    titles = [line for line in capsys.readouterr().out.splitlines() if line.startswith("## ")]
    assert titles == ["## hdf5_read", "## span_cost", "## busy_thread"]
    busy = result(tmp_path, "busy_thread")
    assert {row["loader"] for row in busy["tables"]["busy_thread"]} == {"decoupled, 1 thread", "decoupled, 1 worker"}
    for row in busy["tables"]["busy_thread"]:
        assert min(row[f"{case}, MB/s"][0] for case in ("alone", "beside a process", "beside a thread")) > 0
    own_core = {row["reader"] for row in busy["tables"]["busy_thread"]} >= {"anywhere", "on a core of its own"}
    assert own_core or any(way["why"] == "there is one CPU" for way in busy["missing"])
    rows = result(tmp_path, "hdf5_read")["tables"]["hdf5_read"]
    assert len({row["layout"] for row in rows}) * 3 == len(rows)
    assert {row["reader"] for row in rows} == {"h5py slicing", "by sample", "by block"}
    calls = list(csv.DictReader((tmp_path / "span_cost.csv").read_text().splitlines()))
    assert [(row["call"], row["recorder"]) for row in calls] == [
        ("add", "off"), ("add", "on"), ("with span", "off"), ("with span", "on"), ("add, 4 threads", "on"),
    ]  # fmt: skip


def peer_dlio(folder: Path, ways: str, *more: str) -> None:
    arguments = ["--quick", "--formats", "npz", "--directory", str(folder), "--output", str(folder)]
    assert command.main(["peer_dlio", *arguments, "--ways", ways, *more]) == 0


FAKE = """#!{python}
import datetime, json, pathlib, sys
if "-c" in sys.argv:
    print("2.0.0")
    sys.exit()
assert sys.argv[1:3] == ["-m", "dlio_benchmark.main"]
options = dict(word.lstrip("+").removeprefix("workload.").split("=", 1) for word in sys.argv[3:])
now = datetime.datetime.now()
said = [str(now + datetime.timedelta(seconds=part)).replace(" ", "T") for part in range(5)]
if options["workflow.generate_data"] == "True":
    print("[INFO]", said[0], "Starting data generation")
    print("[INFO]", said[2], "Generation done")
    sys.exit()
assert options["dataset.format"] == "npz" and options["train.computation_time"] == "0"
folder = pathlib.Path(options["output.folder"])
folder.mkdir(exist_ok=True)
epochs = {{"1": {{"start": said[1], "end": said[2]}}, "2": {{"start": said[2], "end": said[3]}}}}
(folder / "per_epoch_stats.json").write_text(json.dumps(epochs))
"""
"""Says what dlio-benchmark says: two seconds of generation, two epochs of a second."""


def test_the_dlio_benchmark_stands_beside_this_tool(tmp_path):
    python = tmp_path / "python"
    python.write_text(FAKE.format(python=sys.executable))
    python.chmod(0o755)
    peer_dlio(
        tmp_path, "dlio-benchmark;alone;python -m dlio_torch, loader.engine=decoupled", "--dlio-python", str(python)
    )
    record = result(tmp_path, "peer_dlio")
    assert record["missing"] == []
    trained = {row["way"]: row for row in record["tables"]["peer_dlio"]}
    generated = {row["way"]: row for row in record["tables"]["generation"]}
    assert generated["dlio-benchmark"]["writing (s)"] == pytest.approx([2, 2, 2], abs=1e-3)
    assert generated["generation alone"]["writing (s)"][0] > 0
    assert trained["dlio-benchmark"]["samples/s"] == pytest.approx([16, 16, 16], rel=1e-3)
    assert trained["dlio-benchmark"]["start-up (s)"][0] > 1
    ours = trained["python -m dlio_torch, loader.engine=decoupled"]
    assert ours["samples/s of dlio-benchmark's"][0] == pytest.approx(ours["samples/s"][0] / 16, rel=1e-2)
    assert 0 < ours["start-up (s)"][0] < ours["command (s)"][0]
    assert trained["loader alone, loader.engine=decoupled"]["start-up (s)"] is None


def test_without_the_dlio_benchmark_it_says_what_to_install(tmp_path):
    peer_dlio(tmp_path, "alone")
    record = result(tmp_path, "peer_dlio")
    [missing] = record["missing"]
    assert missing["way"] == "dlio-benchmark"
    assert "dlio-benchmark==2.0.0" in missing["why"]
    assert {row["samples/s of dlio-benchmark's"] for row in record["tables"]["peer_dlio"]} == {None}
