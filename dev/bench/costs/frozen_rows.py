"""What Cassandra spends on a row of 14 columns, and on the same row with all but its key in one frozen type.

The sink's worker half writes to both tables in turns, from this process: no Kafka, no Spark.  A round is several times
what Cassandra keeps in memory, so that most of its cells are written to files within what is measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from bench import cpu
from bench.costs.encoding import DETAILS, ROWS, departures, in_one_type
from bench.samples import Result, Sample
from demo.scene import Scene
from fencepost.fence.cassandra.schema import STATEMENT_LIMIT
from fencepost.sinks.cassandra.writer import Target, write
from flights.console import Console
from harness.sink_targets import target_of
from testbed.environment import Environment, load

KEYSPACE: Final = "fencepost_bench_cells"
KEY: Final = ("topic", "partition", "bucket", "offset")
ROUNDS: Final = 3
BATCHES: Final = 50
"""Arrow batches of a round: 500,000 rows."""
TOKEN: Final = 1_700_000_000_000_000

_KEY_COLUMNS: Final = "topic text, partition int, bucket bigint, offset bigint"
_CQL: Final = {"UTF8Type": "text", "Int32Type": "int", "LongType": "bigint", "TimestampType": "timestamp"}


def measure(console: Console) -> Result:
    """Write the same rows to both tables, in rounds of alternating order."""
    environment = load()
    spent: dict[str, list[float]] = {"flat": [], "frozen": []}
    took: dict[str, list[float]] = {"flat": [], "frozen": []}
    own: dict[str, list[float]] = {"flat": [], "frozen": []}
    with Scene.of(environment) as scene:
        _create(scene.cassandra)
        try:
            for number in range(ROUNDS + 1):
                for name in list(spent)[:: 1 if number % 2 else -1]:
                    scene.cassandra.execute(f"TRUNCATE {KEYSPACE}.{name}", timeout=STATEMENT_LIMIT)
                    before, clock, mine = _cassandra(scene), time.monotonic(), time.process_time()
                    rows = sum(write(_target(environment, name), TOKEN + number, _batches(name, number)))
                    seconds, mine = time.monotonic() - clock, time.process_time() - mine
                    if not number:
                        continue  # the JVM compiles
                    spent[name].append((_cassandra(scene) - before) / rows)
                    took[name].append(rows / seconds)
                    own[name].append(mine / rows * 1e6)
                    console.line(f"cells: round {number}, {name}: {spent[name][-1]:.1f} CPU-µs per row of Cassandra")
        finally:
            scene.cassandra.execute(f"DROP KEYSPACE {KEYSPACE}", timeout=STATEMENT_LIMIT)
    return Result(
        "cells",
        [
            *(Sample(f"{name}: cassandra", "CPU-µs per row", values) for name, values in spent.items()),
            *(Sample(f"{name}: writer", "CPU-µs per row", values) for name, values in own.items()),
            *(Sample(f"{name}: written", "rows/s", values) for name, values in took.items()),
        ],
        {"rows a round": ROWS * BATCHES, "rounds": ROUNDS, "values in a row": len(KEY) + len(DETAILS)},
    )


def _create(session: Any) -> None:
    fields = ", ".join(f"{name} {_CQL[kind]}" for name, kind in DETAILS)
    for statement in (
        f"DROP KEYSPACE IF EXISTS {KEYSPACE}",
        f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}",
        f"CREATE TYPE {KEYSPACE}.details ({fields})",
        *(
            f"CREATE TABLE {KEYSPACE}.{name} ({_KEY_COLUMNS}, {columns},"
            " PRIMARY KEY ((topic, partition, bucket), offset))"
            for name, columns in {"flat": fields, "frozen": "details frozen<details>"}.items()
        ),
    ):
        session.execute(statement, timeout=STATEMENT_LIMIT)


def _batches(name: str, number: int) -> Iterator[pa.RecordBatch]:
    """Yield a round's rows: each batch is of one bucket that no other round has."""
    rows = departures()
    for place in range(BATCHES):
        bucket = pa.array([number * BATCHES + place] * rows.num_rows, pa.int64())
        found = rows.set_column(rows.schema.get_field_index("bucket"), "bucket", bucket)
        yield in_one_type(found) if name == "frozen" else found


def _target(environment: Environment, table: str) -> Target:
    return target_of(environment, keyspace=KEYSPACE, table=table, primary_key=KEY, partition_key=KEY[:3], patience=60.0)


def _cassandra(scene: Scene) -> int:
    used: Mapping[str, int] = cpu.usage(scene)
    return used["cassandra"]
