"""A Cassandra that is silent in the middle of a task: what the task sends again is counted with its rows."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from cassandra.cluster import Session

from fakes.relay import relay_to
from fencepost.contract import CassandraEndpoint
from fencepost.sinks import BatchToken, task_half
from fencepost.sinks.cassandra import writer
from fencepost.sinks.cassandra.cassandra_sink import TableTask
from harness.sink_targets import target_of
from testbed.environment import Environment

pytestmark = pytest.mark.integration

TOKEN = BatchToken(pipeline="p", epoch=1, version=1, token=1_000, offsets={"t/0": (0, 2)})


@pytest.fixture
def table(session: Session) -> Iterator[str]:
    name = f"t{uuid.uuid4().hex[:10]}"
    columns = "topic text, partition int, offset bigint, PRIMARY KEY ((topic, partition), offset)"
    session.execute(f"CREATE TABLE driver_tests.{name} ({columns})", timeout=60)
    yield name
    session.execute(f"DROP TABLE driver_tests.{name}", timeout=60)


def rows(first: int) -> pa.RecordBatch:
    """Return a hundred rows."""
    offsets = range(first, first + 100)
    return pa.RecordBatch.from_pydict(
        {"topic": ["a"] * 100, "partition": pa.array([3] * 100, pa.int32()), "offset": list(offsets)}
    )


def written(task: TableTask, batches: Iterator[pa.RecordBatch]) -> tuple[int, int]:
    """Run a task; return the rows and the repeated requests that it reports."""
    reports = [one for report in task_half.write(task, TOKEN, "rows", batches) for one in report.to_pylist()]
    return sum(one["rows"] for one in reports), sum(one["retries"] for one in reports)


def test_requests_that_were_not_answered_are_counted_and_every_row_is_there(
    environment: Environment, session: Session, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "REQUEST_TIMEOUT", 2.0)
    pauses: list[float] = []
    with relay_to(environment.cassandra_host, environment.cassandra_port) as relay:
        behind = CassandraEndpoint(contact_points=("127.0.0.1",), port=relay.port)
        target = target_of(environment, keyspace="driver_tests", table=table, patience=120.0)
        target = replace(target, cassandra=behind)

        def pause(seconds: float) -> None:
            """A request had no answer in time; there are answers again."""
            pauses.append(seconds)
            relay.speak()
            time.sleep(seconds)

        def with_a_silence() -> Iterator[pa.RecordBatch]:
            yield rows(100)
            relay.be_silent()
            yield rows(200)

        task = TableTask(target)
        monkeypatch.setattr(writer, "time", Clock(pause))
        assert written(task, iter([rows(0)])) == (100, len(pauses))
        pauses.clear()
        done, retries = written(task, with_a_silence())
        for connected in [each for key, each in writer._sessions.items() if key[0] == target.cassandra]:
            connected.cluster.shutdown()
    assert done == 200
    assert retries == len(pauses) > 0
    found = session.execute(f"SELECT offset FROM driver_tests.{table} WHERE topic = 'a' AND partition = 3")  # noqa: S608
    assert [row.offset for row in found] == list(range(300))


class Clock:
    """Python's, with the pauses between two attempts given to the test."""

    def __init__(self, sleep: object) -> None:
        self.sleep = sleep
        self.monotonic = time.monotonic
