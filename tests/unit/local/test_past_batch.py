"""One batch of the past, and records that are left out, with real Spark."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.driver_configs import USUAL
from fencepost.contract import KafkaSource, SqliteSink
from fencepost.fence.sqlite.database import Database
from fencepost.fence.sqlite.left_out import SCHEMA, LeftOutRecords
from fencepost.local.request import PROCESS, Committed, Event, PastBatch, RecordFile, Request

SPARK = {"spark.driver.memory": "512m", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
CLOCK = 1_767_323_045_678_900
LEFT_OUT = {"t/0": (3, 7)}


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    """A run on ten records of one partition, without those of LEFT_OUT."""
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps({'value': f'v{n}'})}\n" for n in range(10)))
    database = str(tmp_path / "rows.sqlite")
    config = replace(
        USUAL,
        epoch=4,
        entrypoint="counting:placed",
        source=KafkaSource(bootstrap_servers="", topics=("t",)),
        sinks=(SqliteSink(name="rows", path=database, table="rows"),),
        batch_interval=0.0,
        spark_master="local[1]",
        spark_conf=SPARK,
    )
    return Request(
        config=config, database=database, code=str(Path(__file__).parent), scratch=str(tmp_path),
        log=str(tmp_path / "spark.log"), files=(RecordFile(path=str(tmp_path / "t.jsonl"), topic="t"),),
        left_out=LEFT_OUT,
    )  # fmt: skip


def committed(request: Request) -> list[Committed]:
    with subprocess.Popen(
        [sys.executable, "-m", PROCESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{request.to_json()}\n")
        process.stdin.flush()
        events = [Event.from_json(line) for line in process.stdout]
    ended = events[-1].ended
    assert ended is not None
    assert ended.exit_code == 0, f"{ended.message}\n{Path(request.log).read_text()[-3000:]}"
    return [event.committed for event in events if event.committed is not None]


def select(request: Request, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(request.database)) as database:
        return database.execute(query).fetchall()


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_batch_of_the_past_has_its_context_and_touches_no_fence(request_: Request) -> None:
    past = PastBatch(version=41, clock=CLOCK, spans={"t/0": (2, 9)}, is_repeated=True)
    (batch,) = committed(replace(request_, past=past))
    assert (batch.records, batch.rows) == (5, {"rows": 5})
    rows = select(request_, 'SELECT "offset", version, token, epoch, is_repeated, fencepost_written_at FROM rows')
    assert rows == [(offset, 41, CLOCK + 1, 4, 1, CLOCK + 1) for offset in (2, 4, 5, 6, 8)]
    assert select(request_, "SELECT * FROM fencepost_fence") == []


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_records_that_are_left_out_are_not_read(request_: Request) -> None:
    assert sum(batch.rows["rows"] for batch in committed(request_)) == 8
    rows = select(request_, 'SELECT "offset" FROM rows')
    assert [offset for (offset,) in rows] == [0, 1, 2, 4, 5, 6, 8, 9]
    with closing(Database(request_.database, SCHEMA)) as database:
        assert LeftOutRecords(database).offsets() == {"t/0": {3, 7}}


def test_records_stay_left_out(tmp_path: Path) -> None:
    with closing(Database(tmp_path / "rows.sqlite", SCHEMA)) as database:
        records = LeftOutRecords(database)
        assert records.offsets() == {}
        records.add({"t/0": (3,), "t/1": (3, 3)})
        records.add({"t/0": (3, 4)})
    with closing(Database(tmp_path / "rows.sqlite", SCHEMA)) as database:
        assert LeftOutRecords(database).offsets() == {"t/0": {3, 4}, "t/1": {3}}
