"""Strategies that draw the command lines of the benchmark ``fuzz``, one for each kind of case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hypothesis import strategies as st

from benchmarks.fuzzing import values
from dlio_torch.study.verb_keys import KEYS


@dataclass(frozen=True)
class Case:
    """One call of the command line.

    Attributes:
        kind: the strategy that drew it.
        argv: arguments.
        files: content of files that lie in its folder, by name.
        environ: variables that differ; None: taken away.
        then: a second call after a first one that was done; it must be done, too.
    """

    kind: str
    argv: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    environ: Mapping[str, str | None] = field(default_factory=dict)
    then: tuple[str, ...] = ()


# What keeps a run short, whatever else is drawn; not drawn by `usual`.
_SHORT = ("scale=tiny", "storage.limits=off", "output.progress=false", "dist.timeout_s=30s", "loader.timeout_s=30s")
# They would wait, not run: a rank of a world that is not there.
_LEFT_OUT = frozenset(("dist.backend", "storage.limits", "output.progress", "dist.timeout_s", "loader.timeout_s"))


def _usable(prefixes: tuple[str, ...] = ()) -> list[values.Option]:
    return [
        option
        for option in values.scalars()
        if option.key not in values.PLACES | _LEFT_OUT
        and option.path[0] not in ("system", "expect", "scale", "description")
        and (not prefixes or option.key.startswith(prefixes))
    ]


@st.composite
def plausible(draw: st.DrawFn) -> Case:
    """Draws plausible command lines: a recipe at a tiny scale, fragments, some options changed."""
    argv = [f"recipe={draw(st.sampled_from(('minimal', 'minimal', *values.recipes())))}", *_SHORT]
    argv += draw(st.lists(values.picks(), max_size=2))
    if draw(st.booleans()):
        argv.append(values.fields_of(draw))
    formats = ("hdf5", "npy", "npz", "csv", "tfrecord", "indexed_binary", "jpeg", "png", "synthetic", "parquet",
               "netcdf", "hdf5_volume", "larcv3", "silo", "netcdf_cf", "adios2")  # fmt: skip
    if draw(st.integers(0, 2)) == 0:
        argv.append(f"dataset.format={draw(st.sampled_from(formats))}")
    options = _usable()
    near = _usable(("access.", "loader.", "train.", "checkpoint.", "cache.", "dataset.num", "dataset.samples"))
    for option in draw(st.lists(st.sampled_from(options) | st.sampled_from(near), max_size=5)):
        argv.append(f"{option.key}={draw(values.usual(option))}")
    verb = draw(st.sampled_from(("run",) * 8 + ("generate", "train")))
    return Case("plausible", (verb, *argv))


@st.composite
def huge(draw: st.DrawFn) -> Case:
    """Draws command lines with one or two valid numbers that exceed any machine, at the scale of the paper."""
    base = draw(st.sampled_from(("minimal", "minimal", *values.recipes())))
    options = [o for o in _usable() if o.kind in ("int", "float", "values")]
    argv = [f"recipe={base}", "scale=tiny", "storage.limits=off"]
    argv += draw(st.lists(values.picks(), max_size=1))
    for option in draw(st.lists(st.sampled_from(options), min_size=1, max_size=2, unique_by=lambda o: o.key)):
        argv.append(f"{option.key}={draw(values.absurd(option))}")
    return Case("huge", ("run", *argv))


@st.composite
def broken(draw: st.DrawFn) -> Case:
    """Draws command lines with one to four wrong keys or values."""
    argv = [f"recipe={draw(st.sampled_from(('minimal', *values.recipes())) | values.wrong())}"]
    keys = st.sampled_from(values.every_key())
    for _ in range(draw(st.integers(1, 4))):
        key = draw(keys)
        key = draw(st.just(key) | values.misspelt(key) | st.text(max_size=12))
        argv.append(f"{key}={draw(values.wrong())}")
    if draw(st.integers(0, 5)) == 0:
        argv.append(draw(st.sampled_from(_FLAGS) | st.text(max_size=10)))
    verb = draw(st.sampled_from(("run", "show", "explain", "generate", "train", "doctor", "clean", "rnu", "")))
    return Case("broken", ((verb,) if verb else ()) + tuple(argv))


_FLAGS = ("--dry-run", "--dryrun", "-n", "--json", "--yes=1", "--output", "--resume", "--", "-x", "--help=1", "-",
          "---", "--dry-run=", "--ranks=0", "--limit=x", "--fail", "--version=2")  # fmt: skip


@st.composite
def other_verbs(draw: st.DrawFn) -> Case:
    """Draws studies, predictions, job scripts, comparisons and reports with unusual arguments."""
    odd = values.wrong()
    axes = st.sampled_from(
        ("0..1e9:1", "1..1e30:x1", "1..8:x0", "0..4:0", "8..1:x2", "1..", "..", "a..b", "0..1e-9:1e-30", "1,,2", "1,1",
         "[1,2],[3]", "'a,b'", "1..1e30:x2", "1KiB..1PiB:x2", "1ms..1h:x2", "0..10:-1", "1..4:x0.5", "1..1:x1",
         "1e30..1e31", "0..0", "-5..5", ",", "64KiB..4", "1..9" * 50, "nan..inf", "1..4:x1.0000001", "0..1:0.000001")
    )  # fmt: skip
    key = draw(st.sampled_from(("loader.num_workers", "train.batch_size", "ranks", "loader.prefetch_factor", "seed")))
    verb = draw(st.sampled_from(sorted(_OWN)))
    argv = [verb, *(["recipe=minimal", "scale=tiny"] if verb not in _WORDS else [])]
    if verb in ("sweep", "tune"):
        argv.append(f"{key}={draw(axes)}")
    if verb == "predict":
        argv += ["nowhere", f"ranks={draw(axes)}"]
    for own in draw(st.lists(st.sampled_from(_OWN[verb]), max_size=3)):
        argv.append(own.replace("{}", draw(odd | axes)))
    if verb in ("sweep", "tune", "headspace", "launch"):
        argv.append("--dry-run")
    return Case("verbs", tuple(argv))


_WORDS = frozenset(("report", "compare", "predict", "trace", "ls", "explain", "import-dlio"))
_OWN: dict[str, tuple[str, ...]] = {
    **{verb: tuple(f"{key}={{}}" for key in own) for verb, own in KEYS.items()},
    "report": ("{}", "--output={}"),
    "compare": ("{}", "{}", "--fail={}", "--files={}", "--repeat={}", "--storage={}"),
    "trace": ("{}", "--limit={}", "--method={}", "--include={}"),
    "ls": ("{}",),
    "explain": ("{}", "recipe={}"),
    "clean": ("output.root={}", "dataset.root={}"),
    "import-dlio": ("{}", "--ranks={}", "--output={}"),
}
