"""The queries of `bench stateful` in PyFlink: the same keys, windows and state, RocksDB and exactly-once checkpoints.

Arguments: one JSON object. A checkpoint commits the offsets to the consumer group, where the bench sees the progress.
Results are discarded.  Stays when all is read, so that its CPU time can be read.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from pyflink.common import Configuration, Row, Types  # type: ignore[import-not-found]  # in the image alone
from pyflink.datastream import (  # type: ignore[import-not-found]
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import ValueStateDescriptor  # type: ignore[import-not-found]
from pyflink.table import StreamTableEnvironment  # type: ignore[import-not-found]

SETTINGS = {
    "parallelism.default": "1",
    "state.backend.type": "rocksdb",
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "execution.checkpointing.incremental": "true",
    "execution.checkpointing.dir": "file:///tmp/flink",
    "taskmanager.memory.managed.size": "512m",
    "python.executable": sys.executable,
    "python.client.executable": sys.executable,
}
SOURCE = """
CREATE TABLE events (
  k STRING,
  ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL,
  WATERMARK FOR ts AS ts - INTERVAL '5' MINUTE
) WITH (
  'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{kafka}',
  'properties.group.id' = '{group}', 'scan.startup.mode' = 'earliest-offset', 'format' = 'raw')
"""
PARTS = "CREATE TEMPORARY VIEW parts AS SELECT SUBSTRING(k, 8, 3) AS part, ts FROM events"
SINK = "CREATE TABLE nowhere (k STRING, n BIGINT) WITH ('connector' = 'blackhole')"
KEYED = "SELECT MOD(CAST(SUBSTRING(k, 2) AS INT), 20000) AS k FROM events"
"""As `PROCESSOR_KEYS` of the other contestants."""
COUNT = "INSERT INTO nowhere SELECT k, COUNT(*) FROM events GROUP BY k"
WINDOWS = """
INSERT INTO nowhere
SELECT CONCAT_WS('/', part, CAST(window_start AS STRING)), COUNT(*)
FROM TABLE(TUMBLE(TABLE parts, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY part, window_start, window_end
"""


class Counter(KeyedProcessFunction):  # type: ignore[misc]
    """Counts the records of a key, in Python."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Declare the state."""
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Row, ctx: Any) -> Iterator[Row]:  # noqa: ARG002 - Flink's names
        """Add a record."""
        after = (self._count.value() or 0) + 1
        self._count.update(after)
        yield Row(value[0], after)


def main() -> None:
    """Run a query, and stay."""
    given = json.loads(sys.argv[1])
    configuration = Configuration()
    for name, value in {**SETTINGS, "execution.checkpointing.interval": given["checkpoints"]}.items():
        configuration.set_string(name, value)
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    tables = StreamTableEnvironment.create(environment)
    tables.execute_sql(SOURCE.format(**given))
    tables.execute_sql(PARTS)
    tables.execute_sql(SINK)
    if given["query"] == "processor":
        processed(tables)
    else:
        tables.execute_sql({"count": COUNT, "windows": WINDOWS}[given["query"]]).wait()
    while True:
        time.sleep(60)


def processed(tables: StreamTableEnvironment) -> None:
    """Count by key with a function in Python."""
    keyed = tables.sql_query(KEYED)
    counted = (
        tables.to_data_stream(keyed)
        .key_by(lambda row: row[0], Types.INT())
        .process(Counter(), Types.ROW_NAMED(["k", "n"], [Types.INT(), Types.LONG()]))
    )
    result = tables.from_data_stream(counted)
    tables.create_temporary_view("counted", result)
    tables.execute_sql("INSERT INTO nowhere SELECT CAST(k AS STRING), n FROM counted").wait()


if __name__ == "__main__":
    main()
