"""A stateful pipeline on real Kafka, Cassandra and Spark: counts by key and minute of records that come out of order.

A record that is late by less than the watermark's delay counts, whatever the batches are; one that is older than any
watermark after the first two batches never does.  So the counts follow from what was produced.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import pytest

from fencepost.contract import ExitCode, StateConfig
from harness.stored_state import state_rows
from harness.waiting import eventually
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
"""Seconds of the watermark: more than records are late."""
WEIGHTS: Final = (10, 1, 1, 1)
"""How many records partitions have in the same time."""
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


@pytest.mark.long
def test_killed_and_frozen_at_random_places_it_leaves_the_offsets_output_and_state_of_a_plain_count(
    pipeline: Callable[..., Pipeline],
) -> None:
    """Injected: SIGKILL of one driver, and another one is frozen until its successor has committed everything."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    places, sent = random.Random(seed), records()
    one = counting(pipeline)

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
    eventually("the last run claims", lambda: one.row().driver, seconds=120)  # the frozen one may have committed all
    frozen.resume()
    assert frozen.wait() == ExitCode.FENCED, frozen.log.read_text()[-6000:]
    last.stop()
    for earlier, later in spans(one.history()):
        assert all(later.get(key, 0) >= offset for key, offset in earlier.items())
    check(one, sent)


@pytest.mark.long
def test_no_record_of_a_skewed_backlog_is_late(pipeline: Callable[..., Pipeline]) -> None:
    """What happened: equal shares read short partitions to their end, and 6 % of the counts were too low.

    Injected: SIGKILL in the middle of the backlog. The watermark is a second behind, and a batch has a minute.
    """
    choice = random.Random(27)
    places = choices(choice)
    sent: list[dict[str, Any]] = [
        {"key": f"k{number % 7}", "value": b"", "partition": part, "timestamp": START * 1000 + number * 100}
        for number, part in enumerate(places)
    ]
    one = counting(pipeline, delay="1 second", batch=600)
    one.kafka.send(one.topic, sent)
    killed = one.start()
    one.wait_committed(RECORDS // 3)
    killed.kill()
    last = one.start()
    one.wait_committed(RECORDS)
    last.stop()
    assert one.row().late_rows == 0
    assert {(row.minute, row.key): row.count for row in one.rows()} == Counter(
        (record["timestamp"] // 60_000 * 60, record["key"]) for record in sent
    )
    for _, offsets in spans(one.history()):
        check_together(offsets, sent)


def choices(choice: random.Random) -> list[int]:
    """Return the partition of each record. For a while after a third of them, one partition gets nothing."""
    places = choice.choices(range(PARTITIONS), WEIGHTS, k=RECORDS)
    return [0 if place == 1 and RECORDS < 3 * number < 2 * RECORDS else place for number, place in enumerate(places)]


def check_together(offsets: Mapping[str, int], sent: list[dict[str, Any]]) -> None:
    """Check that no record before the offsets is newer than one that is left."""
    left = {int(key.split("/")[1]): offset for key, offset in offsets.items()}
    newest, waiting = 0, list[int]()
    for record in sent:
        if left.get(record["partition"], 0) > 0:
            left[record["partition"]] -= 1
            newest = max(newest, record["timestamp"])
        else:
            waiting.append(record["timestamp"])
    assert newest <= min(waiting, default=newest), offsets


def counting(pipeline: Callable[..., Pipeline], *, batch: int = BATCH, delay: str = f"{DELAY} seconds") -> Pipeline:
    """Return a pipeline that counts."""
    one = pipeline(max_records_per_batch=batch, topic={"retention.ms": "-1"})
    one.session.execute(f"DROP TABLE driver_tests.{one.topic}")
    one.session.execute(TABLE.format(one.topic), timeout=60)
    one.config = replace(one.config, entrypoint="counts:stream", args=(delay,), state=STATE)
    return one


def check(one: Pipeline, sent: list[dict[str, Any]]) -> None:
    """Compare offsets, table and state with a plain count."""
    expected = counts(sent)
    assert one.row().offsets == {f"{one.topic}/{number}": len(sent) // PARTITIONS for number in range(PARTITIONS)}
    assert {(row.minute, row.key): row.count for row in one.rows()} == expected
    open_windows = {place: count for place, count in expected.items() if place[0] + 60 > watermark(sent)}
    state = stored(one)
    assert state.items() >= open_windows.items()
    assert state.items() <= expected.items()
    assert 0 < len(open_windows) < len(expected)


def watermark(sent: list[dict[str, Any]]) -> float:
    """The last one, in seconds."""
    newest: int = max(record["timestamp"] for record in sent)
    return newest / 1000 - DELAY


def stored(one: Pipeline) -> Counts:
    """The state that the fence row has committed."""
    rows = state_rows(one.session, one.config.fence_keyspace, one.row())
    return {(minute(row["key"]["window"]["start"]), row["key"]["key"]): row["value"]["count"] for row in rows}


def minute(start: str) -> int:
    """When a window begins, in seconds."""
    return int(datetime.fromisoformat(start).timestamp())
