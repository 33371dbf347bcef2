from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from dlio_torch.config.schema import DistConfig
from dlio_torch.dist.base import Communicator, SingleCommunicator
from dlio_torch.dist.launcher import Launch
from dlio_torch.dist.registry import check_horovod, choose_backend, connect
from dlio_torch.errors import ConfigError, MissingPackageError

ALONE = Launch("single", 0, 1, 0)
TORCHRUN = Launch("torchrun", 0, 2, 0)
HOROVODRUN = Launch("horovodrun", 0, 2, 0)
MPIRUN = Launch("mpirun", 0, 2, 0)
SRUN = Launch("srun", 0, 2, 0)
MEETING = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("asked", "launch", "environ", "backend"),
    [
        ("auto", ALONE, {}, "single"),
        ("single", ALONE, {}, "single"),
        ("single", Launch("torchrun", 0, 1, 0), {}, "single"),
        ("auto", TORCHRUN, {}, "torch"),
        ("torch", TORCHRUN, {}, "torch"),
        ("auto", HOROVODRUN, {}, "horovod"),
        ("horovod", HOROVODRUN, {}, "horovod"),
        ("horovod", MPIRUN, {}, "horovod"),
        ("torch", MPIRUN, MEETING, "torch"),
        ("torch", SRUN, {}, "torch"),
        ("mpi", MPIRUN, {}, "mpi"),
        ("mpi", SRUN, {}, "mpi"),
        ("mpi", ALONE, {}, "mpi"),
    ],
)
def test_backend_of_a_launcher(asked: str, launch: Launch, environ: dict[str, str], backend: str) -> None:
    assert choose_backend(asked, launch, environ) == backend  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "launch", "message"),
    [
        (
            "horovod",
            TORCHRUN,
            "dist.backend=horovod does not work with the launcher .*, torchrun; start the ranks with horovodrun",
        ),
        (
            "torch",
            HOROVODRUN,
            "dist.backend=torch does not work with the launcher .*, horovodrun; start the ranks with torchrun",
        ),
        ("single", HOROVODRUN, "dist.backend=single, but horovodrun started 2 ranks"),
        (
            "torch",
            ALONE,
            "dist.backend=torch needs a launcher, but no launcher started this process; start the ranks with torchrun",
        ),
        (
            "horovod",
            ALONE,
            "dist.backend=horovod needs a launcher, but no launcher started this process; start the ranks with "
            "horovodrun",
        ),
        ("torch", MPIRUN, "needs the environment variables MASTER_ADDR and MASTER_PORT"),
        (
            "mpi",
            TORCHRUN,
            "dist.backend=mpi does not work with the launcher .*, torchrun; start the ranks with mpiexec",
        ),
        ("horovod", SRUN, "dist.backend=horovod does not work with the launcher .*, srun;"),
    ],
)
def test_a_backend_that_does_not_fit_the_launcher_is_refused(asked: str, launch: Launch, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        choose_backend(asked, launch, {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("horovod", "mpi4py", "backend"),
    [(True, True, "horovod"), (True, False, "horovod"), (False, True, "mpi"), (False, False, "horovod")],
)
def test_mpirun_takes_the_one_that_talks_mpi(
    monkeypatch: pytest.MonkeyPatch, horovod: bool, mpi4py: bool, backend: str
) -> None:
    monkeypatch.setattr("dlio_torch.dist.registry.horovod_has_mpi", lambda: horovod)
    monkeypatch.setattr("dlio_torch.dist.registry.has_mpi4py", lambda: mpi4py)
    assert choose_backend("auto", MPIRUN, {}) == backend


def test_a_missing_mpi4py_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"needs mpi4py.*pip install 'dlio-torch\[mpi\]'"):
        connect(DistConfig(backend="mpi"), MPIRUN)


def test_without_a_launcher_the_communicator_is_that_of_one_process() -> None:
    comm = connect(DistConfig(), ALONE)
    assert isinstance(comm, SingleCommunicator)
    assert isinstance(comm, Communicator)
    assert comm.gather_objects("x") == ["x"]
    assert comm.broadcast_object("x") == "x"
    assert comm.gradient_reducer(10).size_bytes == 12
    with pytest.raises(ValueError, match="0 bytes"):
        comm.gradient_reducer(0)


def test_a_missing_horovod_names_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError) as caught:
        connect(DistConfig(), HOROVODRUN)
    script = Path(str(caught.value).split("bash ")[1].split(" --python")[0])
    assert script.is_file()
    assert sys.executable in str(caught.value)


@pytest.fixture
def fake_horovod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package horovod as pip leaves it where the build did not see torch."""
    folder = tmp_path / "horovod"
    (folder / "torch").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    for name in [name for name in sys.modules if name.split(".")[0] == "horovod"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def test_a_horovod_without_torch_extension_is_told_apart(fake_horovod: Path) -> None:
    with pytest.raises(MissingPackageError, match=r"has no torch extension.*install_horovod\.sh"):
        check_horovod()


def test_a_horovod_for_another_torch_is_told_apart(fake_horovod: Path) -> None:
    (fake_horovod / "torch" / "mpi_lib_v2.so").write_bytes(b"")
    (fake_horovod / "metadata.json").write_text(json.dumps({"pytorch": "1.0.0"}))
    with pytest.raises(MissingPackageError, match=r"built for torch 1\.0\.0, but the installed torch is"):
        check_horovod()


def test_a_horovod_that_fits_is_accepted(fake_horovod: Path) -> None:
    (fake_horovod / "torch" / "mpi_lib_v2.so").write_bytes(b"")
    (fake_horovod / "metadata.json").write_text(json.dumps({"pytorch": torch.__version__}))
    check_horovod()
