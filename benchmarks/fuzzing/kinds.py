"""The kinds of fuzzing cases, by name."""

from __future__ import annotations

from hypothesis import strategies as st

from benchmarks.fuzzing.cases import Case, broken, huge, other_verbs, plausible
from benchmarks.fuzzing.texts import environment, recipe, workload

KINDS: dict[str, st.SearchStrategy[Case]] = {
    "plausible": plausible(),
    "huge": huge(),
    "broken": broken(),
    "verbs": other_verbs(),
    "recipe": recipe(),
    "dlio": workload(),
    "environment": environment(),
}
