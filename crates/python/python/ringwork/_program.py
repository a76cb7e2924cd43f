"""The command `ringwork`: the program that ships in the package."""

from __future__ import annotations

import os
import pathlib
import sys


def main() -> None:
    """Becomes that program, with the same arguments."""
    program = pathlib.Path(__file__).with_name("bin") / "ringwork"
    try:
        os.execv(program, [str(program), *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"ringwork: {program}: {error.strerror}; install ringwork from a wheel")
