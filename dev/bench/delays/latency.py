"""Milliseconds from a record's timestamp to the commit that covers it, at a steady 1,000 records per second.

The record's timestamp is its producer's, the commit's that of the fence's history: two clocks that are one here, for
kind's nodes are containers of this machine.  A row can be read before its batch is committed, so this is the upper end.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from bench.samples import Result, Sample
from bench.stage import TRANSFORMS, pipeline, source, staged, wait_for_commit
from demo.scene import Scene
from fencepost.contract import split_offset_key
from flights.console import Console
from flights.history import HistoryRow, commits

RATE: Final = 1_000.0
WARM_SECONDS: Final = 90.0
"""The driver's JVM compiles what runs often; the first minutes are slower."""
SECONDS: Final = 120.0
INTERVAL: Final = "100ms"
READ_SECONDS: Final = 30.0


def measure(console: Console) -> Result:
    """Feed the example at a rate, with each of its transforms, and ask what each record waited."""
    return Result(
        "latency",
        [
            Sample(f"record to commit{suffix}", "ms", waits(console, entrypoint))
            for suffix, entrypoint in TRANSFORMS.items()
        ],
        {"records per second": RATE, "batchInterval": INTERVAL, "seconds": SECONDS},
    )


def waits(console: Console, entrypoint: str) -> list[float]:
    """Return the milliseconds that each record waited for its commit."""
    with staged() as scene:
        feed = source(scene)
        feed.burst(1_000)
        scene.apply({**pipeline(entrypoint), "batchInterval": INTERVAL})
        wait_for_commit(scene)
        with feed.flowing(RATE):
            time.sleep(WARM_SECONDS)
            begun = time.time()
            console.line(f"latency: {entrypoint}, {SECONDS:.0f} s at {RATE:,.0f} records/s")
            time.sleep(SECONDS)
            ended = time.time()
        wait_for_commit(scene, past=len(feed.ledger) - 1)
        stamps = timestamps(scene, feed.ends())
        return latencies(scene.whole_history(), stamps, begun * 1e3, ended * 1e3)


def timestamps(scene: Scene, ends: Mapping[str, int]) -> dict[str, list[int]]:
    """Return each record's timestamp, ms since 1970, by 'topic/partition' and offset."""
    consumer = Consumer(
        {"bootstrap.servers": scene.environment.kafka_host, "group.id": "bench", "enable.auto.commit": False}
    )
    found: dict[str, list[int]] = {key: [0] * end for key, end in ends.items()}
    left = sum(ends.values())
    consumer.assign([TopicPartition(*split_offset_key(key), 0) for key in ends])
    try:
        deadline = time.monotonic() + READ_SECONDS
        while left and time.monotonic() < deadline:
            for message in consumer.consume(10_000, timeout=1.0):
                offset = message.offset()
                if message.error() is None and offset is not None:
                    found[f"{message.topic()}/{message.partition()}"][offset] = message.timestamp()[1]
                    left -= 1
    finally:
        consumer.close()
    if left:
        raise ValueError(f"{left} records could not be read within {READ_SECONDS:.0f} s")
    return found


def latencies(
    history: Iterable[HistoryRow], stamps: Mapping[str, list[int]], begun: float, ended: float
) -> list[float]:
    """Return the ms between the timestamp of each record of [begun, ended), in ms since 1970, and its commit."""
    done = [commit for _, commit in commits(history) if commit.written_at is not None]
    waited: list[float] = []
    for key, moments in stamps.items():
        reached = [commit.offsets.get(key, 0) for commit in done]
        for offset, stamp in enumerate(moments):
            index = bisect_right(reached, offset)  # the first commit beyond this record
            if begun <= stamp < ended and index < len(done):
                waited.append((done[index].written_at or 0) / 1000 - stamp)
    return waited
