"""The parts of a local run that need no Spark."""

from __future__ import annotations

import io
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from fakes.driver_configs import USUAL
from fencepost.contract import KafkaSource
from fencepost.fence import FenceRow
from fencepost.fence.sqlite.database import Database
from fencepost.local.record_log import SCHEMA
from fencepost.local.request import Request
from fencepost.local.run import LocalRun, UntilRead


def test_the_files_of_a_run_are_no_properties_of_kafka(tmp_path: Path) -> None:
    (tmp_path / "spark.log").write_text("a line")
    config = replace(USUAL, source=KafkaSource(bootstrap_servers="127.0.0.1:1", topics=("t",)))
    request = Request(
        config=config, database="", code="", scratch=str(tmp_path), log=str(tmp_path / "spark.log"), ends=False
    )
    with closing(Database(tmp_path / "rows.sqlite", SCHEMA)) as database:
        _, _, properties, read = LocalRun(request, io.StringIO())._source(config, database)
    assert (properties, read) == ({"bootstrap.servers": "127.0.0.1:1"}, None)


def test_a_run_ends_when_it_is_idle_twice_without_a_commit_in_between() -> None:
    stop = threading.Event()
    until = UntilRead(stop)
    until.wait(0)
    until.wait(0)
    assert not stop.is_set()  # it waits for Kafka, before the claim
    until.claimed(FenceRow(pipeline="p", owner="local"))
    until.committed()
    until.wait(0)
    until.committed()  # without records: the watermark has moved
    until.wait(0)
    assert not stop.is_set()
    until.wait(0)
    assert stop.is_set()
