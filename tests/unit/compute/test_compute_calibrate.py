import json
import os
import subprocess
import sys

import pytest

from dlio_torch.compute import calibrate
from dlio_torch.compute.calibrate import Calibration, choose_spin_tail_ns, load_or_measure
from dlio_torch.compute.timers import PythonTimer


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(calibrate, "PROBES", 3)


def stored(folder):
    (path,) = folder.iterdir()
    return path


def test_is_measured_once_and_then_read(tmp_path):
    folder = tmp_path / "cache"
    first = load_or_measure(folder=folder)
    assert stored(folder).name.startswith("calibration-")
    record = json.loads(stored(folder).read_text())
    assert record == first.to_dict()
    record["spin_tail_ns"] = 123_456
    stored(folder).write_text(json.dumps(record))
    assert load_or_measure(folder=folder).spin_tail_ns == 123_456
    assert load_or_measure(folder=folder, force=True).spin_tail_ns != 123_456


def test_figures_are_possible(tmp_path):
    found = load_or_measure(folder=tmp_path)
    assert 100_000 <= found.spin_tail_ns <= 500_000
    assert 0 < found.spin_cpu_share <= 1
    for error in (found.sleep_alone, found.sleep, found.spin):
        assert 0 <= error.median_ns <= error.p95_ns <= error.max_ns
    assert Calibration.from_dict(json.loads(json.dumps(found.to_dict()))) == found


@pytest.mark.parametrize(
    "damage",
    [
        lambda record: "",
        lambda record: "{",
        lambda record: "[]",
        lambda record: json.dumps(record)[:-20],
        lambda record: json.dumps(record | {"schema": 0}),
        lambda record: json.dumps({key: value for key, value in record.items() if key != "spin"}),
        lambda record: json.dumps(record | {"colour": "red"}),
        lambda record: json.dumps(record | {"spin": 5}),
        lambda record: json.dumps(record | {"spin_tail_ns": "long"}),
        lambda record: json.dumps(record | {"spin_tail_ns": 10**12}),
        lambda record: json.dumps(record | {"cpu_model": "another"}),
        lambda record: json.dumps(record | {"kernel": "another"}),
        lambda record: json.dumps(record | {"exact": not record["exact"]}),
    ],
)
def test_record_that_is_damaged_or_of_another_machine_is_replaced(damage, tmp_path):
    good = load_or_measure(folder=tmp_path).to_dict()
    path = stored(tmp_path)
    path.write_text(damage(good | {"measured_at": "long ago"}))
    again = load_or_measure(folder=tmp_path)
    assert again.measured_at != "long ago"
    assert json.loads(stored(tmp_path).read_text()) == again.to_dict()


def test_folder_that_cannot_be_written_only_costs_the_measurement(tmp_path):
    (tmp_path / "file").write_text("")
    assert load_or_measure(folder=tmp_path / "file").spin_tail_ns >= 100_000


def test_many_ranks_at_once_leave_one_whole_record(tmp_path):
    code = "from dlio_torch.compute.calibrate import load_or_measure; load_or_measure()"
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    ranks = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(3)]
    assert [rank.wait(timeout=120) for rank in ranks] == [0, 0, 0]
    names = [path for path in (tmp_path / "dlio_torch").iterdir() if path.is_file()]
    assert len(names) == 1
    assert Calibration.from_dict(json.loads(names[0].read_text()))


def test_fallback_is_measured_too():
    found = calibrate.measure(PythonTimer("no C compiler: Python fallback"))
    assert not found.exact
    assert found.implementation == "no C compiler: Python fallback"


@pytest.mark.parametrize(
    ("overshoots", "tail"),
    [
        ([5_000] * 10, 100_000),
        ([152_001] * 10, 160_000),
        ([9_000_000] * 10, 500_000),
        ([60_000] * 95 + [10**7] * 5, 100_000),
    ],
)
def test_spin_tail_covers_nine_sleeps_of_ten(overshoots, tail):
    assert choose_spin_tail_ns(overshoots) == tail
