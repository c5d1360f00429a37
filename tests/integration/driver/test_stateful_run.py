"""A stateful pipeline on real Kafka, Cassandra and Spark: counts by key and minute of records that come out of order.

A record that is late by less than the watermark's delay counts, whatever the batches are; one that is older than any
watermark after the first two batches never does.  So the counts follow from what was produced.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from fencepost.contract import ExitCode, StateConfig
from fencepost.fence import FenceRow
from fencepost.fence.patience import Patience
from fencepost.spark.session import state_settings
from fencepost.spark.stream_source import with_end
from fencepost.state.cassandra import CassandraChunks, CassandraFileIndex
from fencepost.state.fence_committer import PlannedBatch, WrittenBatch, reopened
from fencepost.state.file_ids import FileIds
from fencepost.state.webhdfs.authentication import Keys
from fencepost.state.webhdfs.client_settings import client_settings
from fencepost.state.webhdfs.file_cache import FileCache
from fencepost.state.webhdfs.name_service import scope_of
from fencepost.state.webhdfs.serving import Listening, Scope, serving
from integration.driver.support import Pipeline, spans

pytestmark = pytest.mark.integration

Counts = Mapping[tuple[int, str], int]

STATE: Final = StateConfig(partitions=2, max_bytes=1 << 28, data_port=0)
PARTITIONS: Final = 4
RECORDS: Final = 6000
BATCH: Final = 400
START: Final = 1_767_225_600
"""When the first record happened, in seconds: 2026-01-01."""
DELAY: Final = 300
"""Seconds of the watermark: more than records are late, and partitions are ahead of each other by a batch."""
TABLE = "CREATE TABLE driver_tests.{0} (minute bigint, key text, count bigint, PRIMARY KEY (minute, key))"


def records() -> list[dict[str, Any]]:
    """Ten a second; every twentieth is a minute late, every fiftieth from the 4,000th on an hour and more."""
    return [
        {
            "key": f"k{number % 7}",
            "value": b"",
            "partition": number % PARTITIONS,
            "timestamp": START * 1000 + number * 100 - 60_000 * (number % 20 == 0) - 3_600_000 * is_too_late(number),
        }
        for number in range(RECORDS)
    ]


def is_too_late(number: int) -> bool:
    return number >= 4000 and number % 50 == 7


def counts(sent: list[dict[str, Any]]) -> Counts:
    kept = [record for number, record in enumerate(sent) if not is_too_late(number)]
    return Counter((record["timestamp"] // 60_000 * 60, record["key"]) for record in kept)


def test_killed_and_frozen_at_random_places_it_leaves_the_offsets_output_and_state_of_a_plain_count(
    pipeline: Callable[..., Pipeline], tmp_path: Path
) -> None:
    """Injected: SIGKILL of one driver, and another one is frozen until its successor has committed everything."""
    seed = random.randrange(1 << 30)
    places, sent = random.Random(seed), records()
    one = pipeline(max_records_per_batch=BATCH, topic={"retention.ms": "-1"})
    one.session.execute(f"DROP TABLE driver_tests.{one.topic}")
    one.session.execute(TABLE.format(one.topic), timeout=60)
    one.config = replace(one.config, entrypoint="counts:stream", args=(f"{DELAY} seconds",), state=STATE)

    one.kafka.send(one.topic, sent[: RECORDS // 2])
    killed = one.start()
    one.wait_committed(places.randrange(1, RECORDS // 2))
    time.sleep(places.random())
    killed.kill()
    one.kafka.send(one.topic, sent[RECORDS // 2 :])
    before = one.committed_records()
    frozen = one.start()
    one.wait_committed(places.randrange(before, RECORDS) + 1)
    time.sleep(places.random() / 2)
    frozen.pause()
    last = one.start()
    one.wait_committed(RECORDS)
    frozen.resume()
    assert frozen.wait() == ExitCode.FENCED, frozen.log.read_text()[-6000:]
    last.stop()

    expected = counts(sent)
    assert one.row().offsets == {f"{one.topic}/{number}": RECORDS // PARTITIONS for number in range(PARTITIONS)}
    for earlier, later in spans(one.history()):
        assert all(later.get(key, 0) >= offset for key, offset in earlier.items())
    assert {(row.minute, row.key): row.count for row in one.rows()} == expected, seed
    open_windows = {place: count for place, count in expected.items() if place[0] + 60 > watermark(sent)}
    state = stored(one, tmp_path)
    assert state.items() >= open_windows.items(), seed
    assert state.items() <= expected.items(), seed
    assert 0 < len(open_windows) < len(expected)


def watermark(sent: list[dict[str, Any]]) -> float:
    """The last one, in seconds."""
    newest: int = max(record["timestamp"] for record in sent)
    return newest / 1000 - DELAY


class Unmoved:
    """The facts of a checkpoint that is only read."""

    def planned(self, offset_log: str, row: FenceRow) -> PlannedBatch:
        raise NotImplementedError

    def written(self, batch: int) -> WrittenBatch:
        raise NotImplementedError

    def committed(self, row: FenceRow) -> None:
        raise NotImplementedError

    def logged(self, offset_log: str, offsets: Mapping[str, int]) -> str:
        return with_end(offset_log, offsets)


def stored(one: Pipeline, folder: Path) -> Counts:
    """The state that the fence row has committed."""
    keys, name, keyspace = Keys("of this test"), one.config.pipeline, one.config.fence_keyspace
    chunks = CassandraChunks(one.session, keyspace, name)
    checkpoint, _ = reopened(
        one.fence,
        one.row(),
        facts=Unmoved(),
        chunks=chunks,
        ids=FileIds(CassandraFileIndex(one.session, keyspace, name), Patience(30)),
        now=lambda: time.time_ns() // 1_000_000,
        ended=lambda _error: None,
    )
    scope = Scope(pipeline=name, epoch=one.config.epoch)
    here = Listening(address="127.0.0.1", host="127.0.0.1")
    cache = FileCache(folder / "cache", most=STATE.max_bytes)
    with (
        serving(
            checkpoint, chunks, keys=keys, scope=scope, listening=here, cache=cache, failed=lambda _: None
        ) as location,
        session(client_settings(keys.header(scope_of(name, scope.epoch)), patience=30)) as spark,
    ):
        rows = spark.read.format("statestore").load(location)
        found = rows.selectExpr("cast(key.window.start as long) minute", "key.key key", "value.count count").collect()
    return {(row["minute"], row["key"]): row["count"] for row in found}


@contextmanager
def session(client: Mapping[str, str]) -> Iterator[SparkSession]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        **state_settings(STATE),
        **client,
    }
    spark = SparkSession.builder.master("local[1]").appName("state").config(map=dict(settings)).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
