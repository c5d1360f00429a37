"""What `fencepost init` writes passes its own test on local Spark, mypy, and the check of its code and columns."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fencepost.contract.code_check import CodeAnswer, CodeRequest
from fencepost.testing.code_check import answer
from fencepost_cli.projects.project import Choices, Ci, project_files, write_project
from present import present
from unit.cli.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module", params=["stateless", "stateful"])
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    choices = Choices(
        name=f"new-{request.param}", topic="orders", keyspace="shop", table="order_rows", image="orders:1",
        is_stateful=request.param == "stateful", ci=Ci.NONE,
    )  # fmt: skip
    write_project(folder, project_files(choices))
    return folder


def run(*command: str | Path, folder: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "job-image" / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.long
def test_its_own_test_passes(project: Path) -> None:
    run("pytest", "-q", "-p", "no:cacheprovider", folder=project)


def test_mypy_accepts_it(project: Path) -> None:
    alone = ("--follow-imports=skip", "--ignore-missing-imports", "--allow-untyped-decorators")
    run("mypy", *alone, "--cache-dir", os.devnull, ".", folder=project)


@pytest.fixture
def asked(project: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[[], CodeAnswer]:
    """Ask what `fencepost check` asks, on the session of these tests."""
    monkeypatch.setattr(sys, "path", [*sys.path])

    def ask() -> CodeAnswer:
        world = World.usual()
        world.run("check", str(project / "pipeline.yaml"))
        ((request, _),) = world.asked
        sent = CodeRequest.from_json(present(request).to_json())
        return CodeAnswer.from_json(answer(sent, lambda _: nullcontext(spark)).to_json())

    return ask


def test_its_columns_are_those_of_its_table(asked: Callable[[], CodeAnswer]) -> None:
    assert asked().problems == ()


def test_a_column_that_the_table_lacks_is_named(project: Path, asked: Callable[[], CodeAnswer]) -> None:
    schema = project / "schema.cql"
    before = schema.read_text()
    try:
        schema.write_text(before.replace("id text,", "name text,").replace("(id, hour)", "(name, hour)"))
        (problem,) = asked().problems
    finally:
        schema.write_text(before)
    assert "column 'id' is not in the table" in problem.message
    assert "shop.order_rows" in problem.message
    assert problem.remedy
