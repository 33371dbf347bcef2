"""Strategies that draw values of options from the schema: usual, at the limits, absurd, and wrong."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from dlio_torch.config.fields import Option, groups, lookup, walk
from dlio_torch.config.resources import find, shipped

# Where data and results go, and what names things outside, is for the case to say.
PLACES = frozenset(
    ("dataset.root", "dataset.path", "output.root", "output.dir", "stage.dir", "recipe", "accelerator", "scale.name")
)
SIZES = ("1", "7", "512", "4KiB", "4096", "64KiB", "1MiB", "1.5MiB")
DURATIONS = ("0", "1us", "1ms", "0.001", "2 ms", "1e-3")
FEW = ("1", "2", "3", "4", "5", "8", "16")
DTYPES = ("float32", "uint8", "int64", "float16", "bool", "int16", "float64")
HUGE = ("1000000", "1000000000", "1000000000000", "4611686018427387904", "9223372036854775807")
HUGE_SIZES = ("1TB", "1PiB", "1152921504606846976", "8EiB", "9223372036854775807")
HUGE_TIMES = ("1e9", "1e18", "1e300", "1000000h", "1e308")
WRONG = (
    *("", " ", "nan", "inf", "-inf", ".nan", "-1", "-0", "+1", "1e3", "1e400", "0x10", "1_000", "1__0", "010"),
    *("18446744073709551616", "9" * 5000, "true", "False", "null", "~", "None", "[]", "{}", "[1,2]", "[[]]", "[null]"),
    *("{a: b}", "[{}]", "[{name: x}]", "[1,", "{", "???", "${seed}", "${dataset}", "${output.root}", "${", "$"),
    *("${oc.env:HOME}", "${oc.env:NO_SUCH_VARIABLE}", "${oc.decode:'[1]'}", "${oc.create:{a: 1}}", "${nope:1}"),
    *("${${seed}}", "${train.epochs}", "${.seed}", "${..seed}", "\\${seed}", "4Kb", "4KiB ", "5sec", "5 ms", "1,5"),
    *(
        "a\nb",
        "a\tb",
        "a\0b",
        "\x1b[31mred",
        "\u202egnp",
        "äöü",
        "\U0001d7d2",
        "\u0664",
        "'",
        '"',
        "a b",
        "`id`",
        "$(id)",
        "<b>x</b>",
    ),
    *("x" * 3000, "../../etc/passwd", "/", "/dev/null", "~", "~nobody_here/x", "!!python/object/apply:os.system [id]"),
    *("&a [*a]", "&a x", "*a", "- a", "a: b: c", "=", "==1", "@file", "%", "|", ">"),
)


@cache
def scalars() -> tuple[Option, ...]:
    """Options that have a value, without elements of lists."""
    return tuple(o for o in walk() if o.kind not in ("group", "list") and "*" not in o.path)


@cache
def every_key() -> tuple[str, ...]:
    """Dotted keys of the whole schema; the first element of each list."""
    return tuple(option.key.replace("*", "0") for option in walk())


@cache
def choices(group: str) -> tuple[str, ...]:
    """Names of the shipped fragments of a group."""
    return tuple(find(shipped(), {}).choices(group))


@cache
def recipes() -> tuple[str, ...]:
    """Names of the shipped recipes without ``custom``, which needs data, and without those with very large samples."""
    return tuple(name for name in find(shipped(), {}).recipes() if name not in ("custom", "dlrm", "unet3d", "deepcam"))


def picks() -> st.SearchStrategy[str]:
    """Draws ``group=choice`` of a shipped fragment."""
    there = [f"{group}={name}" for group in groups() if group not in ("scale", "system") for name in choices(group)]
    return st.sampled_from(there)


def usual(option: Option) -> st.SearchStrategy[str]:
    """Draws values with which a run takes seconds."""
    if option.kind == "choice":
        found = st.sampled_from(option.choices)
    elif option.kind == "bool":
        found = st.sampled_from(("true", "false"))
    elif option.kind == "values":
        found = st.lists(st.sampled_from(_of_kind(option.element, option)), max_size=4).map(
            lambda items: f"[{', '.join(items)}]"
        )
    else:
        found = st.sampled_from(_of_kind(option.kind, option))
    return found | st.just("null") if option.optional else found


def _of_kind(kind: str, option: Option) -> tuple[str, ...]:
    if option.name == "name":
        return ("data", "a/b", "x y", "Ω")
    if option.name == "dtype":
        return DTYPES
    if kind == "str":
        return ("data", "x y", "a-b", "Ω")
    if option.unit == "s":
        return DURATIONS if not option.minimum else ("1", "60", "5min")
    least = int(option.minimum or 0)
    if option.unit == "B":
        return (str(least), *(size for size in SIZES if least <= 1), *(("4MiB", "5MiB") if least > 1 else ()))
    if kind == "float":
        return (f"{option.minimum or 0:g}", "0.5", "0.9", "1", "1.5", "8")
    return (str(least), str(least + 1), *FEW)


def absurd(option: Option) -> st.SearchStrategy[str]:
    """Draws values that the type permits, but that exceed any machine."""
    if option.unit == "s":
        return st.sampled_from(HUGE_TIMES)
    if option.unit == "B":
        return st.sampled_from(HUGE_SIZES)
    if option.kind == "float":
        return st.sampled_from(("1e9", "1e100", "1e308"))
    if option.kind == "values":
        number = st.sampled_from(HUGE) if option.element == "int" else st.sampled_from(("1e300", "x" * 300))
        return st.lists(number, min_size=1, max_size=3).map(lambda items: f"[{','.join(items)}]")
    return st.sampled_from(HUGE) if option.kind == "int" else st.just("x" * 4000)


def wrong() -> st.SearchStrategy[str]:
    """Draws any other text that may follow a ``=``."""
    return st.sampled_from(WRONG) | st.text(max_size=20) | st.integers().map(str) | st.floats().map(str)


def misspelt(key: str) -> st.SearchStrategy[str]:
    """Draws a key with a typing mistake."""
    last = key[-1]
    return st.sampled_from(
        (key[:-1], key + last, key.upper(), f"+{key}", f"~{key}", f"++{key}", f" {key} ", f"--{key}", f"-{key}",
         f"{key}.", f".{key}", f"{key}.x", f"{key}.0", f"{key}[0]", key.replace(".", ".."), key.replace("_", "-"),
         key.replace(".", "/"), f"{key}=", f'"{key}"', key.rsplit(".", maxsplit=1)[-1])
    )  # fmt: skip


def fields_of(draw: st.DrawFn) -> str:
    """Draws ``dataset.fields`` of one to three small arrays."""
    made = []
    for number in range(draw(st.integers(1, 3))):
        shape = draw(st.lists(st.sampled_from((1, 2, 3, 8, 16, 64)), max_size=3))
        parts = [f"name: f{number}", f"dtype: {draw(st.sampled_from(DTYPES))}", f"shape: {shape}"]
        if draw(st.integers(0, 4)) == 0:
            parts.append(f"length_mean: {draw(st.sampled_from((1, 2.5, 20)))}")
        if draw(st.integers(0, 6)) == 0:
            parts.append(f"length_stdev: {draw(st.sampled_from((0, 1, 30)))}")
        if draw(st.integers(0, 5)) == 0:
            parts.append(f"chunk: {draw(st.lists(st.sampled_from((1, 2, 4, 64)), max_size=4))}")
        if draw(st.integers(0, 7)) == 0:
            parts.append(f"select: {draw(st.lists(st.sampled_from((0, 1, 2, 7)), max_size=3))}")
        made.append("{" + ", ".join(parts) + "}")
    return f"dataset.fields=[{', '.join(made)}]"


def option_of(key: str) -> Option:
    """The option of an existing key."""
    found = lookup(tuple(key.split(".")))
    assert found is not None, key
    return found


__all__ = ["Option", "absurd", "choices", "every_key", "fields_of", "misspelt", "option_of", "picks", "recipes",
           "scalars", "usual", "wrong"]  # fmt: skip
