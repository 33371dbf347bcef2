import time

import pytest
import torch

from dlio_torch.compute import cuda
from dlio_torch.compute.emulate import make_emulator
from dlio_torch.config.schema import ComputeConfig
from dlio_torch.errors import PreconditionError


class FakeGpu:
    """What :mod:`torch.cuda` offers to the emulator: one stream whose kernels take cycles/rate ns."""

    def __init__(self, cycles_per_ns=2.0):
        self.rate = cycles_per_ns
        self.kernels = []
        self.free_at = 0

    def is_available(self):
        return True

    def current_device(self):
        return 0

    def get_device_name(self, device):
        return "Fake GPU"

    def Stream(self, device):
        return self

    def stream(self, stream):
        return stream

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def _sleep(self, cycles):
        assert isinstance(cycles, int)
        self.kernels.append(cycles)
        self.free_at = max(self.free_at, time.monotonic_ns()) + round(cycles / self.rate)

    def Event(self, enable_timing):
        return FakeEvent(self)


class FakeEvent:
    def __init__(self, gpu):
        self.gpu = gpu

    def record(self, stream):
        self.at = max(self.gpu.free_at, time.monotonic_ns())

    def synchronize(self):
        time.sleep(max(0, self.at - time.monotonic_ns()) / 1e9)

    def elapsed_time(self, end):
        return (end.at - self.at) / 1e6


@pytest.fixture
def gpu(monkeypatch):
    gpu = FakeGpu()
    monkeypatch.setattr(torch, "cuda", gpu)
    return gpu


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_missing_gpu_is_a_precondition_with_a_remedy():
    with pytest.raises(PreconditionError, match=r"compute\.mode=cuda needs a GPU.*use compute\.mode=spin"):
        make_emulator(ComputeConfig(mode="cuda"), seed=1, rank=0)


def test_broken_gpu_is_a_precondition(gpu, monkeypatch):
    def fail(device):
        raise RuntimeError("CUDA error: no kernel image is available")

    monkeypatch.setattr(gpu, "Stream", fail)
    with pytest.raises(PreconditionError, match="no kernel image"):
        make_emulator(ComputeConfig(mode="cuda"), seed=1, rank=0)


def test_rate_is_calibrated_and_the_time_is_reached(gpu):
    with make_emulator(ComputeConfig(mode="cuda"), seed=1, rank=0) as emulator:
        assert emulator.details["cycles_per_ns"] == pytest.approx(2.0, rel=0.2)
        assert emulator.implementation.endswith("Fake GPU")
        for ns in (1_000, 300_000, 5_000_000):
            assert emulator.spend(ns) >= ns


def test_long_step_is_queued_in_slices(gpu, monkeypatch):
    monkeypatch.setattr(cuda, "SLICE_NS", 2_000_000)
    queue = cuda.CudaQueue()
    gpu.kernels.clear()
    queue._run(9_000_000)
    assert len(gpu.kernels) == 5
    assert sum(gpu.kernels) == pytest.approx(9_000_000 * gpu.rate, rel=0.2)


def test_rate_follows_the_clock_of_the_gpu(gpu):
    queue = cuda.CudaQueue()
    gpu.rate = 1.0
    for _ in range(30):
        queue._run(1_000_000)
    assert queue.cycles_per_ns == pytest.approx(1.0, rel=0.2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_real_gpu_reaches_the_time():
    with make_emulator(ComputeConfig(mode="cuda"), seed=1, rank=0) as emulator:
        for ns in (100_000, 1_000_000, 120_000_000):
            assert emulator.spend(ns) >= ns
