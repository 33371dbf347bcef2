"""The comparison of an output on a page with a printed one: figures may differ, nothing may be missing."""

from __future__ import annotations

import pytest
from output_shape import differences, names, tables

PAGE = """\
minimal, scale laptop, 1 rank
Waiting for data limits this run: the loader.

throughput   379.8 samples/s
time of a step           10.5 ms: emulated compute 95.1 %, waiting
                         for data 4.8 %

          loader.      throughput
 point  num_workers  n  (samples/s)  wait
 ─────────────────────────────────────────
 2      4            3        327.4  1 ms
                                     at most
 1      0            3        320.1  2 ms

Report: /home/me/report.html
"""
OTHER_FIGURES = PAGE.replace("379.8", "5").replace("327.4", "10").replace("/home/me", "/data")


def test_tables_have_heads_and_rows_without_figures() -> None:
    (table,) = tables(PAGE)
    assert table.heads == ("(samples/s)", "loader.", "n", "num_workers", "point", "throughput", "wait")
    assert table.rows == (("1", "0"), ("2", "4"))
    assert names(PAGE) == ["throughput", "time of a step", "Report"]


def test_figures_order_of_rows_and_further_lines_make_no_difference() -> None:
    assert not differences(PAGE, OTHER_FIGURES)
    assert not differences(PAGE, f"{OTHER_FIGURES}compute time error   1 %\n")
    rows = PAGE.splitlines(keepends=True)
    assert not differences(PAGE, "".join([*rows[:10], rows[12], *rows[10:12], *rows[13:]]))


@pytest.mark.parametrize(
    "part",
    ["throughput   379.8 samples/s\n", "Report: /home/me/report.html\n", " 1      0            3        320.1  2 ms\n"],
)
def test_a_missing_line_or_row_is_a_difference(part: str) -> None:
    assert part in PAGE
    assert differences(PAGE, PAGE.replace(part, ""))


def test_a_missing_column_or_table_is_a_difference() -> None:
    assert differences(PAGE, PAGE.replace("  wait", ""))
    assert differences(PAGE, PAGE[: PAGE.index("          loader.")] + PAGE[PAGE.index("Report") :])


def test_a_further_table_is_a_difference_unless_lines_are_left_out() -> None:
    more = f"{PAGE}\n a   b\n ─────────\n 1   2\n"
    assert differences(PAGE, more) == ["2 tables instead of 1"]
    assert not differences(f"{PAGE}[...]\n", more)
