"""docs/tutorial.md, word for word: its commands are run, its files written, and what is printed is what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fencepost_cli.projects.project import Choices, Ci, project_files
from generators.reference import ROOT

PAGE = ROOT / "docs" / "tutorial.md"
_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Command:
    """A line of a shell, and the lines that follow it."""

    line: str
    printed: str


@dataclass(frozen=True, slots=True)
class Written:
    """A file that the reader writes."""

    name: str
    text: str


def steps() -> Iterator[Command | Written]:
    """What the reader does, in the page's order."""
    for kind, title, text in _BLOCK.findall(PAGE.read_text()):
        if title:
            yield Written(title, text)
        elif kind == "console":
            for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                line, _, printed = part.partition("\n")
                yield Command(line, printed)


def like(printed: str) -> str:
    """Return the pattern of what is printed: `…` is anything, a line of it alone any lines."""
    lines = [".*" if line == "…" else re.escape(line).replace("…", ".*") for line in printed.splitlines()]
    return r"\s*\n\s*".join(lines)


@pytest.mark.long
def test_the_tutorial_is_true(tmp_path: Path) -> None:
    folder = tmp_path
    programs = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "PYTEST_ADDOPTS": "-p no:cacheprovider"}
    for step in steps():
        if isinstance(step, Written):
            (folder / step.name).write_text(step.text)
        elif step.line.startswith("cd "):
            folder /= step.line.removeprefix("cd ")
        else:
            ended = subprocess.run(
                ["bash", "-c", step.line], cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=500
            )
            said = ended.stdout + ended.stderr
            assert re.search(like(step.printed), ended.stdout, re.DOTALL), f"$ {step.line}\n{said}"


def test_the_tutorial_goes_from_a_new_project_to_a_changed_one() -> None:
    lines = [step.line for step in steps() if isinstance(step, Command)]
    commands = [line.split()[1] for line in lines if line.startswith("fencepost")]
    assert commands == ["init", "run", "run", "check", "check"]
    assert "pytest -q" in lines


def test_its_files_are_those_of_a_new_project_with_one_column_more() -> None:
    choices = Choices(
        name="orders", topic="orders", keyspace="shop", table="orders", image="orders:1", is_stateful=False, ci=Ci.NONE
    )
    made = project_files(choices)
    written = {step.name: step.text for step in steps() if isinstance(step, Written)}
    assert written.keys() <= made.keys()
    assert "cents" not in "".join(made.values())
    for line in ("  amount double,", "  PRIMARY KEY ((topic, partition, bucket), offset)"):
        assert line in made["schema.cql"]
        assert line in written["schema.cql"]
    event = 'EVENT = "id STRING, amount DOUBLE, at TIMESTAMP"'
    assert event in made["orders.py"]
    assert event in written["orders.py"]
