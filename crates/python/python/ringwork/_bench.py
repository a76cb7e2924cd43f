"""Benchmarks as tables, which notebooks show: the command `ringwork bench`."""

from __future__ import annotations

import html
import json
import pathlib
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

from .errors import ArgumentError

_PROGRAM = pathlib.Path(__file__).with_name("bin") / "ringwork"
_COLUMNS = ("op", "mode", "memory", "algo", "bytes", "time_us", "algbw_gbs", "busbw_gbs")
_HEADINGS = ("operation", "mode", "memory", "algorithm", "bytes", "median us", "algbw GB/s", "busbw GB/s")


class BenchTable:
    """What a benchmark measured. It iterates over its rows, which are those of `ringwork bench --json`."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.ranks: int = facts["ranks"]
        """How many ranks ran."""
        self.rows: list[dict[str, Any]] = facts["rows"]
        """A mapping for each size and mode."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def _cells(self) -> list[list[str]]:
        return [[_shown(row[name]) for name in _COLUMNS] for row in self.rows]

    def __str__(self) -> str:
        lines = [list(_HEADINGS), *self._cells()]
        widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
        text = ("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
        return "\n".join(text)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def line(tag: str, cells: Sequence[str]) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        body = "".join(line("td", cells) for cells in self._cells())
        head = f"<caption>{self.ranks} ranks</caption><thead>{line('th', _HEADINGS)}</thead>"
        return f"<table>{head}<tbody>{body}</tbody></table>"


def _shown(value: Any) -> str:
    if isinstance(value, dict):  # the times of the calls
        value = value["p50"]
    if isinstance(value, float):
        return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
    return "-" if value is None else str(value)


def bench(
    operation: str = "all_reduce",
    ranks: int = 2,
    *,
    smallest: int = 8,
    largest: int = 64 << 20,
    factor: int = 4,
    modes: Sequence[str] = ("oop", "inp"),
    options: Sequence[str] = (),
) -> BenchTable:
    """Measures a collective between new processes of this host, from `smallest` to `largest` bytes.

    It runs the command `ringwork bench`; `options` are more of its flags, such as `["--dtype", "bf16"]`. The ranks are
    Rust programs: the table says what the host can do, and not what Python adds to it.
    """
    command = [str(_PROGRAM), "bench", operation, "-g", str(ranks), "-b", str(smallest), "-e", str(largest)]
    command += ["-f", str(factor), "--modes", ",".join(modes), *options, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        problem = done.stderr.strip() or f"`{' '.join(command)}` ended with {done.returncode}"
        raise ArgumentError(f"bench: {problem}", call="bench", problem=problem)
    return BenchTable(json.loads(done.stdout))
