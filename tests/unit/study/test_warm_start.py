"""Which runs need a process of their own from the start."""

from __future__ import annotations

import pytest

from dlio_torch.config.compose import compose
from dlio_torch.errors import ConfigError
from dlio_torch.study.resolve import resolve
from dlio_torch.study.study_arguments import changed, parse
from dlio_torch.study.warm_start import needs_fresh_start


@pytest.mark.parametrize(
    ("settings", "ranks", "fresh"),
    [
        ((), 1, False),
        (("loader.num_workers=2", "loader.multiprocessing_context=spawn"), 1, False),
        (("loader.replay=batches",), 1, False),
        (("trace.spans=true",), 1, False),
        ((), 2, True),
        (("train.device=cuda",), 1, True),
        (("compute.mode=cuda",), 1, True),
        (("loader.pin_memory=true",), 1, True),
        (("train.device=cuda", "loader.prefetch_to_device=2"), 1, True),
        (("trace.posix=true",), 1, True),
        (("loader.replay=reads",), 1, True),
        (("dist.backend=mpi",), 1, True),
    ],
)
def test_a_run_that_cannot_be_forked_starts_fresh(settings: tuple[str, ...], ranks: int, fresh: bool) -> None:
    config = compose(["recipe=minimal", "scale=tiny", *settings], environ={}).config
    assert needs_fresh_start(config, ranks) is fresh


def test_points_know_how_their_trials_start() -> None:
    study, _ = parse(["recipe=minimal", "scale=tiny", "trace.posix=false,true", "ranks=1,2"])
    assert study.start == "warm"
    starts = {(one.point.values[0][1], one.point.ranks): one.point.fresh for one in resolve(study)[0]}
    assert starts == {("false", 1): False, ("false", 2): True, ("true", 1): True, ("true", 2): True}


def test_a_study_can_start_all_trials_fresh() -> None:
    study, _ = parse(["recipe=minimal", "start=fresh"])
    assert study.start == "fresh"
    assert study.settings == parse(["recipe=minimal"])[0].settings
    assert changed(study, ["start=warm"]).start == "warm"
    with pytest.raises(ConfigError, match=r"start=cold \(command line\): expected warm or fresh"):
        parse(["recipe=minimal", "start=cold"])
