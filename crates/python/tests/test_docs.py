"""The programs of the pages run as they are."""

import pathlib
import re
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent.parent
DOCS = HERE / "../../docs"
NAMES = ["python.md", "python-node.md", "python-notebooks.md", "from-mpi4py.md"]
PAGES = [*(DOCS / name for name in NAMES), HERE / "README.md"]
BLOCKS = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M))
]


def test_the_pages_have_programs():
    assert len(BLOCKS) >= 9


@pytest.mark.parametrize("block", BLOCKS)
def test_a_program_of_a_page_runs(block, tmp_path):
    if "torch" in block:
        pytest.skip("needs torch, and a launcher")
    # A page may show what a rank does: then it is the work of two.
    if "ringwork.init()" in block:
        lines = block.replace("ringwork.init()", "joined").splitlines()
        lines = ["import ringwork", "def work(joined):", *(f"    {line}" for line in lines)]
        block = "\n".join([*lines, 'if __name__ == "__main__":', "    ringwork.spawn(work, 2)"])
    path = tmp_path / "program.py"
    path.write_text(block)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
