import contextlib
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dlio_torch import native
from dlio_torch.compute.emulate import Preprocess, make_emulator
from dlio_torch.compute.timers import PythonTimer, open_timer
from dlio_torch.config.schema import ComputeConfig
from dlio_torch.errors import ConfigError

HAS_NATIVE = open_timer().exact
needs_native = pytest.mark.skipif(not HAS_NATIVE, reason="needs a C compiler")


def timer_of(kind, threads=1):
    if kind == "python":
        return PythonTimer("test", threads=threads)
    if not HAS_NATIVE:
        pytest.skip("needs a C compiler")
    return open_timer(threads=threads)


@pytest.mark.parametrize("kind", ["native", "python"])
@pytest.mark.parametrize(("mode", "threads"), [("sleep", 1), ("spin", 1), ("spin", 3)])
@pytest.mark.parametrize("ns", [1, 1_000, 200_000, 4_000_000, 130_000_000])
def test_never_shorter_than_asked(kind, mode, threads, ns):
    with make_emulator(
        ComputeConfig(mode=mode, threads=threads), seed=1, rank=0, timer=timer_of(kind, threads)
    ) as emulator:
        start = time.monotonic_ns()
        achieved = emulator.spend(ns)
        assert time.monotonic_ns() - start >= achieved >= ns


@pytest.mark.parametrize("mode", ["sleep", "spin", "none"])
@pytest.mark.parametrize("ns", [0, -5])
def test_nothing_is_spent_where_nothing_is_asked(mode, ns):
    with make_emulator(ComputeConfig(mode=mode), seed=1, rank=0) as emulator:
        assert emulator.spend(ns) == 0


def test_mode_none_spends_nothing_but_knows_the_request():
    emulator = make_emulator(ComputeConfig(mode="none", step_s=3600), seed=1, rank=0)
    assert emulator.requested_ns(0) == 3600 * 10**9
    assert emulator.spend(emulator.requested_ns(0)) == 0
    assert emulator.describe()["mode"] == "none"


def test_requests_are_deterministic_and_differ_between_ranks():
    config = ComputeConfig(mode="none", step_s=1e-3, stdev_s=2e-4, distribution="gamma", eval_step_s=5e-4)

    def walk(seed, rank):
        return [make_emulator(config, seed=seed, rank=rank).requested_ns(step) for step in range(5)]

    assert walk(3, 0) == walk(3, 0)
    assert len({tuple(walk(seed, rank)) for seed in (3, 4) for rank in (0, 1)}) == 4


def test_evaluation_steps_have_their_mean_and_the_relative_spread():
    config = ComputeConfig(mode="none", step_s=1e-3, stdev_s=2e-4, distribution="normal", eval_step_s=5e-3)
    emulator = make_emulator(config, seed=3, rank=0)
    times = [emulator.requested_eval_ns(step) for step in range(5000)]
    mean = sum(times) / len(times)
    assert mean == pytest.approx(5e6, rel=0.02)
    assert (sum((t - mean) ** 2 for t in times) / len(times)) ** 0.5 == pytest.approx(1e6, rel=0.05)
    assert make_emulator(ComputeConfig(eval_step_s=2e-3), seed=1, rank=0).requested_eval_ns(9) == 2_000_000
    constant = make_emulator(ComputeConfig(step_s=1.0, eval_step_s=0.25), seed=1, rank=0)
    assert (constant.requested_ns(0), constant.requested_eval_ns(0)) == (10**9, 25 * 10**7)


def test_unknown_mode_and_impossible_spread_are_configuration_errors():
    with pytest.raises(ConfigError, match="use sleep, spin, cuda or none"):
        make_emulator(ComputeConfig(mode="magic"), seed=1, rank=0)
    with pytest.raises(ConfigError, match="has no effect"):
        make_emulator(ComputeConfig(step_s=1, stdev_s=1), seed=1, rank=0)


def test_description_says_what_spent_the_time():
    config = ComputeConfig(mode="spin", step_s=1e-3, stdev_s=1e-3, distribution="normal", threads=2)
    with make_emulator(config, seed=1, rank=0) as emulator:
        facts = emulator.describe()
    assert facts["clock"] == "CLOCK_MONOTONIC"
    assert facts["threads"] == 2
    assert facts["mean_s"] == pytest.approx(1.29e-3, rel=0.01)
    assert (facts["exact"], facts["how"]) == (emulator.exact, emulator.implementation)


@needs_native
def test_helper_threads_are_busy_beside_the_caller():
    with make_emulator(ComputeConfig(mode="spin", threads=3), seed=1, rank=0) as emulator:
        # CPU time of the process beyond that of this thread; other threads of the test run are idle.
        others = 0
        for _ in range(50):
            process, thread = time.process_time_ns(), time.thread_time_ns()
            emulator.spend(20_000_000)
            others += (time.process_time_ns() - process) - (time.thread_time_ns() - thread)
            if others > 20_000_000:
                break
        assert others > 20_000_000


def helpers():
    names = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # ended meanwhile
            names.append((task / "comm").read_text())
    return names.count("dlio-compute\n")


@needs_native
def test_helper_threads_start_once_and_end_with_close():
    emulator = make_emulator(ComputeConfig(mode="spin", threads=4), seed=1, rank=0)
    assert helpers() == 0
    for _ in range(3):
        emulator.spend(100_000)
        assert helpers() == 3
    emulator.close()
    emulator.close()
    # The kernel lists a thread for a moment after it was joined.
    deadline = time.monotonic() + 30
    while helpers() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert helpers() == 0


FORK = """
import os, sys
from dlio_torch.compute.emulate import make_emulator
from dlio_torch.compute.timers import PythonTimer, open_timer
from dlio_torch.config.schema import ComputeConfig
timer = PythonTimer("test", threads=3) if sys.argv[1] == "python" else open_timer(threads=3)
emulator = make_emulator(ComputeConfig(mode="spin", threads=3), seed=1, rank=0, timer=timer)
emulator.spend(2_000_000)
pid = os.fork()
if pid == 0:
    assert len(os.listdir("/proc/self/task")) == 1
    achieved = emulator.spend(2_000_000)
    started = len(os.listdir("/proc/self/task")) - 1
    emulator.close()
    os._exit(0 if achieved >= 2_000_000 and (started == 2 or sys.argv[1] == "python") else 9)
assert os.waitpid(pid, 0)[1] == 0
pid = os.fork()
if pid == 0:
    emulator.close()  # without a spin in the child there is nothing to end
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert emulator.spend(2_000_000) >= 2_000_000
print("whole")
"""


@pytest.mark.parametrize("kind", ["native", "python"])
def test_threads_are_made_anew_after_fork(kind):
    timer_of(kind).close()
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK, kind]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("whole\n", "")


INTERRUPT = """
import sys, time
from dlio_torch.compute.emulate import Preprocess, make_emulator
from dlio_torch.compute.timers import PythonTimer, open_timer
from dlio_torch.config.schema import ComputeConfig
kind, mode, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
timer = PythonTimer("test", threads=threads) if kind == "python" else open_timer(threads=threads)
config = ComputeConfig(mode="sleep" if mode == "burn" else mode, threads=threads, preprocess_s=1000)
try:
    with make_emulator(config, seed=1, rank=0, timer=timer) as emulator:
        print("ready", flush=True)
        Preprocess(config, timer=timer).burn(1) if mode == "burn" else emulator.spend(10**12)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("kind", ["native", "python"])
@pytest.mark.parametrize(("mode", "threads"), [("sleep", 1), ("spin", 1), ("spin", 2), ("burn", 1)])
def test_interrupt_ends_a_long_wait(kind, mode, threads):
    timer_of(kind).close()
    command = [sys.executable, "-c", INTERRUPT, kind, mode, str(threads)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout.readline() == "ready\n"
            time.sleep(0.05)
            child.send_signal(signal.SIGINT)
            assert child.communicate(timeout=60) == ("interrupted\n", "")
        finally:
            child.kill()


@pytest.mark.parametrize("kind", ["native", "python"])
@pytest.mark.parametrize("mode", ["sleep", "spin"])
def test_other_python_threads_run_meanwhile(kind, mode):
    seen = []
    stop = threading.Event()

    def work():
        while not stop.is_set():
            seen.append(time.monotonic_ns())
            time.sleep(0.001)

    with make_emulator(ComputeConfig(mode=mode), seed=1, rank=0, timer=timer_of(kind)) as emulator:
        thread = threading.Thread(target=work)
        thread.start()
        try:
            start = time.monotonic_ns()
            end = start + emulator.spend(400_000_000)
        finally:
            stop.set()
            thread.join()
    assert any(start < moment < end for moment in seen)


def test_without_native_code_the_emulator_works_and_says_so(monkeypatch):
    def unavailable(name):
        raise native.NativeUnavailable("no C compiler: set CC, or install cc, gcc or clang")

    monkeypatch.setattr(native, "open_library", unavailable)
    for mode in ("sleep", "spin"):
        with make_emulator(ComputeConfig(mode=mode, threads=2), seed=1, rank=0) as emulator:
            assert not emulator.exact
            assert emulator.implementation == "no C compiler: Python fallback"
            assert emulator.spend(3_000_000) >= 3_000_000
    assert Preprocess(ComputeConfig(preprocess_s=1e-3)).burn(2) >= 2_000_000


@pytest.mark.parametrize("kind", ["native", "python"])
@pytest.mark.parametrize("samples", [0, 1, 7])
def test_preprocess_uses_cpu_time_of_the_calling_thread(kind, samples):
    preprocess = Preprocess(ComputeConfig(preprocess_s=2e-3), timer=timer_of(kind))
    before = time.thread_time_ns()
    used = preprocess.burn(samples)
    after = time.thread_time_ns()
    assert used >= samples * 2_000_000
    assert after - before >= used
    assert (used == 0) == (samples == 0)


def test_preprocess_without_time_opens_nothing(monkeypatch):
    monkeypatch.setattr(native, "open_library", None)
    assert Preprocess(ComputeConfig()).burn(100) == 0


def test_preprocess_travels_to_a_worker():
    preprocess = Preprocess(ComputeConfig(preprocess_s=1e-4))
    assert preprocess.burn(1) >= 100_000
    assert pickle.loads(pickle.dumps(preprocess)).burn(3) >= 300_000


def test_preprocess_in_several_threads():
    preprocess = Preprocess(ComputeConfig(preprocess_s=1e-3))
    used = []
    threads = [threading.Thread(target=lambda: used.append(preprocess.burn(5))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(used) == 4
    assert min(used) >= 5_000_000
