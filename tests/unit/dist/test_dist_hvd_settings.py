"""Horovod's settings: which of option, variable and default is in force, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from dlio_torch.config.schema import DistConfig, HorovodConfig
from dlio_torch.dist.hvd_settings import put_in_force
from dlio_torch.dist.launcher import Launch
from dlio_torch.dist.registry import connect
from dlio_torch.errors import ConfigError
from dlio_torch.report.ranks_text import horovod_text

NAMES = ("fusion_threshold_bytes", "cycle_time_s", "cache_capacity")


def test_what_nobody_set_is_horovod_s_default() -> None:
    environ: dict[str, str] = {}
    settings = put_in_force(HorovodConfig(), False, environ)
    assert [settings[name] for name in NAMES] == [128 * 2**20, 0.001, 1024]
    assert set(settings["set_by"].values()) == {"default"}
    assert environ == {}
    assert horovod_text(settings) == "tensor fusion up to 128 MiB, cycle time 1 ms, response cache of 1024 tensors"


def test_options_reach_the_environment() -> None:
    environ = {"OTHER": "1"}
    options = HorovodConfig(
        fusion_threshold_bytes=0, cycle_time_s=0.0025, cache_capacity=7, groups=4, compression="fp16"
    )
    settings = put_in_force(options, True, environ)
    assert environ == {
        "OTHER": "1",
        "HOROVOD_FUSION_THRESHOLD": "0",
        "HOROVOD_CYCLE_TIME": "2.5",
        "HOROVOD_CACHE_CAPACITY": "7",
        "HOROVOD_TIMELINE": "DYNAMIC",
    }
    assert [settings[name] for name in NAMES] == [0, 0.0025, 7]
    assert horovod_text(settings) == (
        "no tensor fusion (option), cycle time 2.50 ms (option), response cache of 7 tensors (option), 4 tensor "
        "groups, gradients compressed to fp16"
    )


def test_variables_count_where_no_option_is_set() -> None:
    environ = {"HOROVOD_CYCLE_TIME": "3.5", "HOROVOD_CACHE_CAPACITY": "0"}
    settings = put_in_force(HorovodConfig(fusion_threshold_bytes=1024), False, environ)
    assert [settings[name] for name in NAMES] == [1024, 0.0035, 0]
    assert settings["set_by"] == {
        "fusion_threshold_bytes": "option",
        "cycle_time_s": "HOROVOD_CYCLE_TIME",
        "cache_capacity": "HOROVOD_CACHE_CAPACITY",
    }
    assert horovod_text(settings).endswith(
        "cycle time 3.50 ms (HOROVOD_CYCLE_TIME), no response cache (HOROVOD_CACHE_CAPACITY)"
    )


def test_what_horovod_tunes_is_not_known() -> None:
    environ = {"HOROVOD_AUTOTUNE": "1"}
    settings = put_in_force(HorovodConfig(cycle_time_s=0.005), False, environ)
    assert [settings[name] for name in NAMES] == [None, 0.005, None]
    assert "tuned by Horovod: cache_capacity" in horovod_text(settings)


def test_an_option_may_repeat_a_variable() -> None:
    environ = {"HOROVOD_CYCLE_TIME": "5.0", "HOROVOD_TIMELINE": "DYNAMIC"}
    assert put_in_force(HorovodConfig(cycle_time_s=0.005), True, environ)["cycle_time_s"] == 0.005


@pytest.mark.parametrize(
    ("options", "timeline", "environ", "message"),
    [
        (
            {"cycle_time_s": 0.005},
            False,
            {"HOROVOD_CYCLE_TIME": "1"},
            "cycle_time_s=0.005 contradicts .*HOROVOD_CYCLE_TIME=1;",
        ),
        ({}, False, {"HOROVOD_FUSION_THRESHOLD": "64MB"}, "HOROVOD_FUSION_THRESHOLD='64MB' is not a whole number"),
        ({}, False, {"HOROVOD_CYCLE_TIME": "-1"}, "HOROVOD_CYCLE_TIME='-1' is not a number of at least 0"),
        ({}, True, {"HOROVOD_TIMELINE": "/tmp/t"}, "trace.horovod=true contradicts .*HOROVOD_TIMELINE=/tmp/t"),
    ],
)
def test_contradictions_are_refused(
    options: dict[str, Any], timeline: bool, environ: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        put_in_force(HorovodConfig(**options), timeline, environ)


def test_a_cycle_that_stops_everything_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"dist\.horovod\.cycle_time_s=40: every collective waits"):
        put_in_force(HorovodConfig(cycle_time_s=40.0), False, {})


def test_other_backends_refuse_what_only_horovod_has() -> None:
    config = DistConfig(horovod=HorovodConfig(cycle_time_s=0.005))
    with pytest.raises(
        ConfigError, match=r"dist\.horovod\.cycle_time_s=0\.005 needs Horovod, but the ranks use torch; "
    ):
        connect(config, Launch("torchrun", 0, 2, 0))
    with pytest.raises(
        ConfigError, match=r"trace\.horovod=true needs Horovod, but a run of one process does not use it"
    ):
        connect(DistConfig(), Launch("single", 0, 1, 0), timeline=True)
    connect(config, Launch("single", 0, 1, 0)).close()  # a recipe's settings, and no gradient to reduce
