"""Benchmarks as tables."""

import pytest

import ringwork


def test_a_benchmark_is_a_table_of_rows_and_a_cell_of_a_notebook():
    table = ringwork.bench("all_reduce", 2, smallest=8, largest=128, modes=["inp"], options=["--target", "1ms"])
    assert (table.ranks, [row["bytes"] for row in table]) == (2, [8, 32, 128]) and len(table) == 3
    assert all(row["op"] == "all_reduce" and row["time_us"]["p50"] > 0 and row["wrong"] == 0 for row in table)
    lines = str(table).splitlines()
    assert len(lines) == 4 and lines[0].split()[:2] == ["operation", "mode"] and "window" in lines[1]
    html = table._repr_html_()
    assert html.startswith("<table>") and html.count("<tr>") == 4 and "<td>128</td>" in html


def test_a_benchmark_that_cannot_be_made_says_why():
    with pytest.raises(ringwork.ArgumentError, match="all_gather"):
        ringwork.bench("all_hug")
