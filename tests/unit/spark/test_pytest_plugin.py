"""An author's project gets its fixtures from the installed package: the plugin is loaded, and nothing is copied."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TRANSFORM = """
def transform(batch, context):
    return batch.select("topic", "partition", "offset", batch.value.cast("string").alias("word"))
"""
TESTS = """
import fencepost
import pytest
from job import transform

WORDS = [{"value": b"a"}, {"value": b"b"}]

@fencepost.record_batches
def of_records(batch, context):
    return batch

def test_record_batches(batch_test):
    assert len(batch_test(of_records).rows(WORDS)["rows"]) == 2
    import pyspark
    assert pyspark.SparkContext._active_spark_context is None

def test_rows(batch_test):
    assert [row["word"] for row in batch_test(transform).rows(WORDS)["rows"]] == ["a", "b"]

def test_states(batch_test, spark):
    known = spark.createDataFrame([("a", 1)], "word string, n int")
    counted = batch_test(lambda batch, context: context.state("words"), states={"words": known})
    assert counted.rows(WORDS)["rows"] == [{"word": "a", "n": 1}]

def test_the_session_is_shared(spark, stream_test):
    assert stream_test(lambda events, context: events, sinks=("words",)).spark is spark
"""


def test_the_entry_point_has_the_modules_name() -> None:
    """So that `-p` and the installed entry point load it once."""
    project = tomllib.loads((ROOT / "job-image" / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"fencepost.pytest_plugin": "fencepost.pytest_plugin"}


@pytest.mark.long
def test_the_fixtures_are_those_of_the_package(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(TRANSFORM)
    (tmp_path / "test_job.py").write_text(TESTS)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "fencepost.pytest_plugin", "-p", "no:cacheprovider", tmp_path],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "job-image" / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "4 passed" in ended.stdout
