"""Configurations from Python: the same as on the command line, and every mistake an error of one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dlio_torch
from dlio_torch.config.compose import compose as composed
from dlio_torch.errors import ConfigError, DataError, DlioError

TINY = ["scale=tiny", "train.epochs=2"]


def test_a_configuration_is_that_of_the_command_line(tmp_path: Path) -> None:
    config = dlio_torch.compose("minimal", TINY)
    assert config == composed(["recipe=minimal", *TINY]).config
    assert config == dlio_torch.compose(recipe="minimal", overrides=tuple(TINY))
    path = tmp_path / "mine.yaml"
    path.write_text("train: {epochs: 7}\ndataset: {fields: [{name: x, shape: [4]}]}\n")
    assert dlio_torch.compose(path).train.epochs == 7
    assert dlio_torch.compose(str(path)).scale.name == "as_written"


def test_ranks_share_what_a_scale_leaves() -> None:
    options = ["scale=laptop", "train.batch_scope=global"]
    few, many = (dlio_torch.compose("cosmic_tagger", options, world_size=ranks) for ranks in (1, 4))
    assert few.recipe == many.recipe
    with pytest.raises(ConfigError, match="world_size=0"):
        dlio_torch.compose("minimal", world_size=0)


MISTAKES: list[tuple[Callable[[], Any], type[DlioError], str]] = [
    (lambda: dlio_torch.compose("no_such"), ConfigError, "recipe=no_such (argument): no such recipe"),
    (dlio_torch.compose, ConfigError, "recipe= (argument): missing"),
    (lambda: dlio_torch.compose(3), ConfigError, "recipe=3: expected a name or a path, not int"),  # type: ignore[arg-type]
    (lambda: dlio_torch.compose("minimal", "scale=tiny"), ConfigError, "expected a list of texts, not str"),
    (lambda: dlio_torch.compose("minimal", [1]), ConfigError, "overrides: 1 is no text but int"),  # type: ignore[list-item]
    (lambda: dlio_torch.compose("minimal", {"a": 1}), ConfigError, "not dict"),  # type: ignore[arg-type]
    (lambda: dlio_torch.compose("minimal", ["scale"]), ConfigError, "argument 'scale' (argument): expected key=value"),
    (lambda: dlio_torch.compose("minimal", ["seed=1", "seed=2"]), ConfigError, "seed=2 (argument): the key is given"),
    (lambda: dlio_torch.compose("minimal", ["loader.num_worker=1"]), ConfigError, "did you mean loader.num_workers?"),
    (lambda: dlio_torch.compose(overrides=["dataset.path=/nowhere/x"]), DataError, "/nowhere/x does not exist"),
    (lambda: dlio_torch.dataset("minimal"), ConfigError, "not str; write compose"),  # type: ignore[arg-type]
    (lambda: dlio_torch.loader({"recipe": 1}), ConfigError, "not dict"),  # type: ignore[arg-type]
    (
        lambda: dlio_torch.dataset(dlio_torch.compose("minimal"), overrides=TINY),
        ConfigError,
        "a configuration, and recipe= or overrides= as well",
    ),
    (lambda: dlio_torch.loader(recipe="minimal", rank=2, world_size=2), ConfigError, "rank=2, but world_size=2"),
    (lambda: dlio_torch.loader(recipe="minimal", rank="0"), ConfigError, "rank='0': expected a whole"),  # type: ignore[arg-type]
    (lambda: dlio_torch.datapipe(recipe="minimal", world_size=True), ConfigError, "world_size=True"),
    (lambda: dlio_torch.run(recipe="minimal", ranks=0), ConfigError, "ranks=0: expected a whole number"),
    (lambda: dlio_torch.run(recipe="minimal", overrides=["scale=x"]), ConfigError, "scale=x (argument)"),
    (lambda: dlio_torch.load_run("/nowhere"), DataError, "/nowhere is not the folder of a run"),
    (lambda: dlio_torch.load_run(None), ConfigError, "path=None: expected a path"),  # type: ignore[arg-type]
    (lambda: dlio_torch.emulated_step(-1), ConfigError, "seconds=-1 is not a duration"),
    (lambda: dlio_torch.emulated_step(float("nan")), ConfigError, "seconds=nan"),
    (lambda: dlio_torch.emulated_step("1"), ConfigError, "seconds='1'"),  # type: ignore[arg-type]
    (lambda: dlio_torch.emulated_step(0, "fast"), ConfigError, "mode='fast'"),  # type: ignore[arg-type]
    (lambda: dlio_torch.iotrace.record(3).__enter__(), ConfigError, "path=3"),
    (lambda: dlio_torch.iotrace.record("x", include="data").__enter__(), ConfigError, "write include=['data']"),
]


@pytest.mark.parametrize(("call", "kind", "text"), MISTAKES, ids=[text for _, _, text in MISTAKES])
def test_a_mistake_is_an_error_of_one_line(
    call: Callable[[], Any],
    kind: type[DlioError],
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind) as caught:
        call()
    line = str(caught.value)
    assert text in line
    assert "\n" not in line
    assert caught.value.hint
    assert "command line" not in line
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_the_package_lists_its_functions() -> None:
    names = {"compose", "run", "load_run", "Run", "dataset", "datapipe", "loader", "emulated_step", "iotrace", "errors"}
    assert names <= set(dir(dlio_torch))
    for name in names:
        assert getattr(dlio_torch, name).__doc__
    with pytest.raises(AttributeError, match="no_such"):
        dlio_torch.no_such  # type: ignore[attr-defined]  # noqa: B018
