"""Ranks on two nodes, emulated by network namespaces: each launcher starts its own, they meet over the network."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from namespaces import HOSTS, need_namespaces, torchrun
from ranks import SUPPORT

from dlio_torch.iotrace.events.event_table import read_events
from dlio_torch.run_directory import run_state
from dlio_torch.run_directory.run_dir import RunDir

PROGRAM = SUPPORT / "trouble.py"
OPTIONS = (
    *("recipe=minimal", "scale=paper", "dataset.num_files=4", "dataset.samples_per_file=8", "train.epochs=2"),
    *("dataset.fields.0.shape=[8,8]", "compute.step_s=2ms"),
    *("train.allreduce_bytes=1KiB", "output.dir=run", "output.progress=false"),
)


@pytest.mark.ranks
def test_two_nodes_generate_together_and_each_reads_its_own_copy(tmp_path: Path) -> None:
    arguments = ["verify=true", "access.partition=files", "access.order=sequential", "stage.dir=$LOCAL"]
    env = [{"TROUBLE": "none::", "LOCAL": str(tmp_path / host)} for host in HOSTS]
    with need_namespaces() as nodes:
        ended = torchrun(nodes, 1, [PROGRAM, *OPTIONS, *arguments], cwd=tmp_path, env=env)
    assert [node.exit_code for node in ended] == [0, 0], [node.stderr for node in ended]
    directory = RunDir(tmp_path / "run")
    summary = directory.read_json(directory.summary)
    assert summary["world_size"] == 2
    assert summary["verified_samples"] == 64
    assert "Results: " in ended[0].stdout
    assert ended[1].stdout == ""
    rows = summary["stage"]["ranks"]
    assert [(row["rank"], row["host"], row["files"]) for row in rows] == [(0, "one", 2), (1, "two", 2)]
    for host, row in zip(HOSTS, rows, strict=True):
        assert Path(row["folder"]).parent == tmp_path / host
        assert list((tmp_path / host).iterdir()) == []
    table = read_events(directory.events)
    assert [(process.rank, process.host) for process in table.processes] == [(0, "one"), (1, "two")]
    frame = table.frame
    assert Counter(frame[frame["op"] == "generate"]["rank"]) == {0: 2, 1: 2}
    staged = frame[frame["op"] == "stage"]
    assert Counter(staged["rank"]) == {0: 2, 1: 2}
    assert staged["bytes"].sum() == summary["stage"]["bytes"]
    for rank, row in enumerate(rows):
        of_rank = frame[(frame["op"] == "read") & (frame["rank"] == rank)]["file"].dropna()
        assert len(of_rank)
        assert all(file.startswith(row["folder"]) for file in of_rank)


@pytest.mark.ranks
def test_a_node_that_is_cut_off_ends_the_others_in_time(tmp_path: Path) -> None:
    env = [{"TROUBLE": f"1:step:cut={HOSTS[1]}"}] * 2
    with need_namespaces() as nodes:
        ended = torchrun(nodes, 1, [PROGRAM, *OPTIONS], cwd=tmp_path, env=env)
    assert [node.exit_code for node in ended] == [1, 1]
    for node, other in ((0, 1), (1, 0)):
        line = rf"rank {other} \(pid \d+, host {HOSTS[other]}\) did not enter allreduce of the gradient .*"
        assert re.search(rf"{line}: the rank does not answer", ended[node].stderr), ended[node].stderr
        assert re.findall(r"exitcode +: (-?\d+)", ended[node].stderr) == ["1"]
    state = run_state.read(tmp_path / "run" / "state.json")
    assert state is not None
    assert state.state == "failed"
