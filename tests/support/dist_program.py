"""What a rank does in the contract tests: ``python dist_program.py <case> [argument]``."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import sys
import time
from typing import Any

from dlio_torch.config.schema import DistConfig
from dlio_torch.dist.base import Communicator
from dlio_torch.dist.registry import connect
from dlio_torch.errors import DlioError

FOR_EVER_S = 600.0


def collectives(argument: str) -> None:
    import pytest
    import torch

    name, _, asked = argument.partition(":")
    comm = connect(DistConfig(backend=asked or "auto"))  # type: ignore[arg-type]
    rank, size = comm.rank, comm.world_size
    assert isinstance(comm, Communicator)
    assert comm.name == name
    assert comm.local_rank == rank  # one host
    assert comm.gather_objects(rank) == (list(range(size)) if rank == 0 else None)

    for root in range(size):
        value: Any = {"root": root, "data": b"x" * 100_000} if rank == root else "another type"
        assert comm.broadcast_object(value, root) == {"root": root, "data": b"x" * 100_000}
        # Values of another type and length on each rank.
        mine = [None, "text", (1, 2), {"a": [3]}][rank % 4]
        gathered = comm.gather_objects(mine, root)
        assert gathered == ([[None, "text", (1, 2), {"a": [3]}][r % 4] for r in range(size)] if rank == root else None)

    for dtype in (torch.float32, torch.float64, torch.int32, torch.int64):
        for count in (1, 3, 4 * 2**20 // dtype.itemsize):
            tensor = torch.arange(count, dtype=dtype) % 1000 + rank
            expected = (torch.arange(count, dtype=dtype) % 1000) * size + sum(range(size))
            result = comm.allreduce(tensor)
            assert result is tensor
            assert torch.equal(result, expected), (dtype, count)
    with pytest.raises(TypeError, match="bfloat16"):
        comm.allreduce(torch.ones(2, dtype=torch.bfloat16))

    for size_bytes, whole in ((1, 4), (10, 12), (4 * 2**20 + 1, 4 * 2**20 + 4)):
        reducer = comm.gradient_reducer(size_bytes)
        assert reducer.size_bytes == whole
        if size > 1:
            assert sum(part.numel() for part in reducer.gradient) * 4 == whole
        for step in range(3):
            for number, part in enumerate(reducer.gradient):
                part.fill_(float(rank + step + number % 5))
            reducer.step()
            for number, part in enumerate(reducer.gradient):
                expected = torch.full_like(part, sum(range(size)) / size + step + number % 5)
                assert torch.allclose(part, expected), (size_bytes, step, number)

    # Nobody passes the barrier before the last one has come.
    if rank == size - 1:
        time.sleep(0.3)
    came = time.time()
    comm.barrier()
    passed = time.time()
    every = comm.gather_objects((came, passed))
    assert every is None or max(c for c, _ in every) <= min(p for _, p in every)
    comm.close()
    print(f"done {rank} {size} {comm.detail}")


def close_late(argument: str) -> None:
    """The given rank comes to its end half a second after the others, and lingers after its goodbye."""
    comm = connect(DistConfig())
    late = comm.rank == int(argument)
    time.sleep(0.5 if late else 0)
    comm.close()
    comm.fail("after close() this does nothing", 9)
    comm.close()
    time.sleep(0.3 if late else 0)
    print("done")


def late_root(argument: str) -> None:
    """Rank 0 works before it broadcasts; the others leave their cores meanwhile."""
    comm = connect(DistConfig(backend=argument))  # type: ignore[arg-type]
    comm.barrier()
    if comm.rank == 0:
        time.sleep(0.5)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    comm.broadcast_object(None)
    print("sleeps", resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before)
    comm.close()


def fail(argument: str) -> None:
    """The given rank fails; the others wait in an allreduce that it never joins."""
    import torch

    comm = connect(DistConfig())
    comm.on_failure.append(lambda line, code: print(f"hook: {line} [{code}]"))
    comm.barrier()
    if comm.rank == int(argument):
        comm.fail("the disk\nis full", 3)
        comm.fail("a second call does nothing", 4)
        sys.exit(3)
    comm.allreduce(torch.ones(2**20))
    print("the allreduce returned")


def all_fail(argument: str) -> None:
    """Every rank meets the same error at once."""
    comm = connect(DistConfig())
    comm.barrier()
    comm.fail("the same everywhere", int(argument))
    sys.exit(int(argument))


def killed(argument: str) -> None:
    """The given rank is killed; the others wait for it in a reduction of gradients."""
    comm = connect(DistConfig())
    reducer = comm.gradient_reducer(2**20)
    reducer.step()
    if comm.rank == int(argument):
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        reducer.step()


def stuck_exit(argument: str) -> None:
    """The failing rank's interpreter would never exit by itself."""
    import atexit

    comm = connect(DistConfig())
    if comm.rank == int(argument):
        atexit.register(time.sleep, FOR_EVER_S)
        comm.fail("stuck", 5)
        sys.exit(5)
    time.sleep(FOR_EVER_S)


def sleeping_child() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(FOR_EVER_S)  # unless it is killed


def children(argument: str) -> None:
    """All ranks have children that ignore SIGTERM; rank 1 is killed, or fails."""
    how, method = argument.split(":")
    comm = connect(DistConfig())
    context = multiprocessing.get_context(method)
    pids = []
    for _ in range(2):
        child = context.Process(target=sleeping_child, daemon=True)
        child.start()
        pids.append(child.pid)
    print("children", *pids, flush=True)
    comm.barrier()
    if comm.rank == 1:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        comm.fail("with children", 3)
        sys.exit(3)
    time.sleep(FOR_EVER_S)


def never_connects(argument: str) -> None:
    """The given rank fails before it connects; the others wait for it no longer than the timeout."""
    if argument == next(os.environ[name] for name in ("RANK", "HOROVOD_RANK", "PMI_RANK") if name in os.environ):
        sys.exit(2)
    connect(DistConfig(timeout_s=2.0))
    print("connected")


def never_comes(argument: str) -> None:
    """The given rank does not join a collective for longer than the timeout."""
    import torch

    comm = connect(DistConfig(timeout_s=6.0))
    comm.barrier()
    if comm.rank == int(argument):
        time.sleep(FOR_EVER_S)
    try:
        comm.allreduce(torch.ones(8))
    except DlioError as error:
        comm.fail(str(error), error.exit_code)
        print(error)
        sys.exit(error.exit_code)


def backend(argument: str) -> None:
    connect(DistConfig(backend=argument))  # type: ignore[arg-type]


def reduction(argument: str) -> None:
    """A reducer and an application of its size hand Horovod the same tensors in the same order."""
    import torch

    comm = connect(DistConfig())
    from horovod.torch import optimizer

    from dlio_torch.dist.hvd_reducer import HorovodReducer, hvd

    handed: list[tuple[str, int, str]] = []

    def spy(name: str) -> None:
        plain = getattr(optimizer, name)

        def watched(given: Any, *arguments: Any, **named: Any) -> Any:
            for tensor in [given] if isinstance(given, torch.Tensor) else given:
                handed.append((named["name"], tensor.numel(), str(tensor.dtype)))
            return plain(given, *arguments, **named)

        setattr(optimizer, name, watched)

    spy("allreduce_async_")
    spy("grouped_allreduce_async_")

    def average(reducer: HorovodReducer, step: int) -> list[tuple[str, int, str]]:
        for number, part in enumerate(reducer.gradient):
            part.fill_(comm.rank + number + step)
        handed.clear()
        reducer.step()
        for number, part in enumerate(reducer.gradient):
            assert part.dtype == torch.float32
            assert torch.equal(part, torch.full_like(part, 0.5 + number + step)), (number, step)
        return list(handed)

    reducer = HorovodReducer(int(argument))
    held = reducer._optimizer.param_groups[0]["params"]
    assert len(held) == len(reducer.gradient) > 1
    # The parameters take no memory of their own.
    assert sum(parameter.untyped_storage().nbytes() for parameter in held) == 4 * len(held)
    assert sum(gradient.nbytes for gradient in reducer.gradient) == reducer.size_bytes == int(argument)
    names = [reducer._optimizer._parameter_names[parameter] for parameter in held]
    expected = [(n, g.numel(), "torch.float32") for n, g in zip(names, reducer.gradient, strict=True)]
    assert average(reducer, 0) == average(reducer, 1) == expected[::-1]

    # A network with as many weights: each layer adds to what the one before it made.
    weights = [torch.nn.Parameter(torch.ones(g.numel())) for g in reducer.gradient]
    sgd = torch.optim.SGD(weights, lr=0.1)
    trained = hvd.DistributedOptimizer(sgd, named_parameters=list(zip(names, weights, strict=True)))
    for _ in range(2):
        handed.clear()
        output = torch.ones(())
        for weight in weights:
            output = output * 0.5 + weight.mean()
        output.backward()
        trained.step()
        assert handed == expected[::-1]
        trained.zero_grad()

    half = average(HorovodReducer(int(argument), compression="fp16"), 2)
    assert half == [(name, size, "torch.float16") for name, size, _ in expected[::-1]]
    grouped = average(HorovodReducer(int(argument), groups=3), 3)
    assert len({name for name, _, _ in grouped}) == 3
    assert sorted(size for _, size, _ in grouped) == sorted(size for _, size, _ in expected)
    comm.close()
    print("done")


if __name__ == "__main__":
    try:
        globals()[sys.argv[1]](sys.argv[2] if len(sys.argv) > 2 else "")
    except DlioError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
