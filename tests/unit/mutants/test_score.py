"""`make mutants` on a module of a few lines, whose tests are known to find some mutants and to miss others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from mutants.__main__ import drawn
from mutants.modules import MODULES, ROOT

SOURCE = """
from dataclasses import dataclass

MOST = 3

@dataclass(frozen=True, slots=True)
class Counter:
    start: int

    def numbers(self):
        found = []
        while len(found) < MOST:
            found.append(self.start + len(found))
        return found

def is_large(number):
    return number > 10

def unreached(number):
    return number
"""
TESTS = """
from counting import Counter, MOST, is_large

def test_numbers():
    assert Counter(1).numbers() == [1, 2, 3]

def test_most():
    assert MOST == 3

def test_large():
    assert is_large(12) and not is_large(9)
"""
RUN = """
import sys
from pathlib import Path
from mutants import plugin
from mutants.__main__ import score
from mutants.modules import Module

plugin.GRACE = 1.0
module = Module(name="counting", sources=("counting.py",), tests=("test_counting.py",))
sys.exit(score([module], count=99, seed=1, jobs=2, root=Path.cwd()))
"""


def run(folder: Path, tests: str = TESTS) -> subprocess.CompletedProcess[str]:
    (folder / "counting.py").write_text(SOURCE)
    (folder / "test_counting.py").write_text(tests)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "dev"), str(folder)])}
    command = [sys.executable, "-c", RUN]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_survivors_are_shown_and_what_loops_is_killed(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    for survivor in (
        "counting.py:17\n- return number > 10\n+ return (number >= 10)\n",
        "counting.py:17\n- return number > 10\n+ return number > 11\n",
        "counting.py:20\n- return number\n+ pass\n",
        "counting: 6 of 9 killed, 67%\n",
    ):
        assert survivor in result.stdout
    assert (tmp_path / "counting.py").read_text() == SOURCE


def test_a_test_that_fails_without_a_mutant_is_named(tmp_path: Path) -> None:
    result = run(tmp_path, TESTS + "\ndef test_wrong():\n    assert is_large(1)\n")
    assert result.returncode == 2
    assert "test_counting.py::test_wrong" in result.stdout


def test_a_seed_draws_the_same_mutants() -> None:
    sources = {Path("counting.py"): SOURCE}
    assert drawn("counting", sources, 4, 7) == drawn("counting", sources, 4, 7)
    assert drawn("counting", sources, 4, 7) != drawn("counting", sources, 4, 8)


def test_each_module_has_its_files_and_tests() -> None:
    for module in MODULES:
        assert module.files(ROOT)
        assert all((ROOT / path).exists() for path in module.tests), module.name
