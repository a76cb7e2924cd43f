"""`python -m ringwork.kernbench BENCH.py`: calls the file's `run(torch)`."""

from __future__ import annotations

import argparse
import runpy
import sys

from ..errors import RingworkError
from .namespace import Torch


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code: 0, or 1 if the bench failed or says so by returning False."""
    parser = argparse.ArgumentParser(prog="python -m ringwork.kernbench", description=__doc__)
    parser.add_argument("bench", help="a file with a function run(torch)")
    parser.add_argument("--topology", default="sip6-torus", help="a preset or a file (default: sip6-torus)")
    parser.add_argument("--ccl", help="a ccl.yaml: algorithms and world sizes")
    given = parser.parse_args(arguments)
    run = runpy.run_path(given.bench).get("run")
    if not callable(run):
        print(f"{given.bench}: there is no function run(torch)", file=sys.stderr)
        return 1
    try:
        torch = Torch(given.topology, given.ccl)
        try:
            return 1 if run(torch) is False else 0
        finally:
            torch.close()
    except RingworkError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
