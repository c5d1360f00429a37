"""A stateful query on the checkpoint's services, killed after ten batches and resumed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fakes.checkpoint_services import serving
from fakes.stateful_query import KEYS, ROWS, SETTINGS, start, total
from fencepost.state.memory import MemoryChunks
from fencepost.state.webhdfs.client_settings import client_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
def test_killed_query_resumes_with_its_state(spark: SparkSession, tmp_path: Path) -> None:
    """SIGKILL at any moment after batch 10; the successor has another cache, and the state of exactly its batches."""
    chunks = MemoryChunks()
    with serving(chunks, tmp_path / "first") as served:
        reached = threading.Event()
        served.committer.committed = lambda batch: reached.set() if batch == 10 else None
        command = [sys.executable, "-m", "fakes.stateful_query", served.names.location, served.names.header]
        own_jvm = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY")}
        query = subprocess.Popen(command, env=own_jvm)
        while not reached.wait(0.1):
            assert query.poll() is None
        query.kill()
        query.wait()
        served.checkpoint.close()
        row = served.committer.row
    assert row.committed >= 10
    with serving(chunks, tmp_path / "second", epoch=2, row=row) as successor:
        for key, value in {**SETTINGS, **client_settings(successor.names.header, patience=30)}.items():
            if key.startswith("spark.hadoop."):
                spark.sparkContext._jsc.hadoopConfiguration().set(key.removeprefix("spark.hadoop."), value)
            else:
                spark.conf.set(key, value)
        went_on = threading.Event()
        successor.committer.committed = lambda batch: went_on.set() if batch == row.committed + 2 else None
        resumed = start(spark, successor.names.location)
        assert went_on.wait(300), resumed.exception()
        resumed.stop()
        batches = successor.committer.row.committed + 1
        assert batches >= row.committed + 3
        assert total(spark, successor.names.location) == (KEYS, ROWS * batches)
