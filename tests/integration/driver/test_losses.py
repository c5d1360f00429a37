"""Records that a real Kafka loses: the run ends with the exact ranges, and once they are accepted the rest is read."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping

from fencepost.contract import ExitCode, Loss
from harness.waiting import eventually
from integration.driver.support import Pipeline

Make = Callable[..., Pipeline]
PARTITIONS = 4


def test_what_kafka_lost_is_reported_exactly_and_the_rest_is_read_after_an_acceptance(pipeline: Make) -> None:
    one = pipeline()
    topic = one.topic
    produce(one, 100, start=0)
    run_to(one, dict.fromkeys(range(PARTITIONS), 100))
    expected = numbers(100, start=0)

    # Retention passes two of the committed offsets.
    produce(one, 100, start=400)
    for partition, begin in ((1, 150), (2, 120)):
        one.kafka.delete_records(topic, partition=partition, before=begin)
    loss = lost(one, "OffsetOutOfRange")
    assert loss.ranges == {f"{topic}/1": (100, 150), f"{topic}/2": (100, 120)}
    one.kafka.delete_records(topic, partition=1, before=160)
    one.accept(loss)
    more = lost(one, "OffsetOutOfRange")
    assert more.ranges == {f"{topic}/1": (150, 160)}  # valid for the accepted range alone
    one.accept(more)
    run_to(one, dict.fromkeys(range(PARTITIONS), 200))
    gone = {(1, offset) for offset in range(100, 160)} | {(2, offset) for offset in range(100, 120)}
    expected |= {at: n for at, n in numbers(100, start=400, first=100).items() if at not in gone}
    assert_rows(one, expected)

    # Another topic of the name has fewer records than were committed.
    recreate(one)
    produce(one, 10, start=10_000)
    loss = lost(one, "TopicRecreated")
    assert loss.ranges == {f"{topic}/{partition}": (200, 200) for partition in range(PARTITIONS)}
    one.accept(loss, "earliest")
    run_to(one, dict.fromkeys(range(PARTITIONS), 10))
    expected |= numbers(10, start=10_000)
    assert_rows(one, expected)

    # The next one has more, so that the offsets alone look right.
    recreate(one)
    produce(one, 50, start=20_000)
    loss = lost(one, "TopicRecreated")
    assert set(loss.ranges.values()) == {(10, 10)}
    one.accept(loss, f"{topic}/3:40")
    run_to(one, dict.fromkeys(range(PARTITIONS), 50))
    expected |= {at: n for at, n in numbers(50, start=20_000).items() if at[0] != 3 or at[1] >= 40}
    assert_rows(one, expected)

    # The topic is deleted; without its positions, one that comes later is a new topic.
    delete(one)
    loss = lost(one, "TopicDeleted")
    assert [(change.old_id, change.new_id) for change in loss.topics.values()] == [(one.row().topic_ids[topic], None)]
    assert set(loss.ranges.values()) == {(50, 50)}
    one.accept(loss, "abandon")
    one.kafka.create(topic)
    produce(one, 60, start=30_000)
    run_to(one, dict.fromkeys(range(PARTITIONS), 60))
    expected |= numbers(60, start=30_000)
    assert_rows(one, expected)


def produce(one: Pipeline, records: int, *, start: int) -> None:
    """Give each partition so many records, numbered from `start`."""
    one.kafka.produce(one.topic, records * PARTITIONS, start=start)


def numbers(records: int, *, start: int, first: int = 0) -> dict[tuple[int, int], int]:
    """Return the number at each (partition, offset) that `produce` filled from offset `first` on."""
    return {
        (partition, first + index): start + index * PARTITIONS + partition
        for partition in range(PARTITIONS)
        for index in range(records)
    }


def run_to(one: Pipeline, offsets: Mapping[int, int]) -> None:
    """Run until exactly these offsets are committed, then stop."""
    wanted = {f"{one.topic}/{partition}": offset for partition, offset in offsets.items()}
    run = one.start()
    eventually(
        f"{wanted} are committed",
        lambda: dict(one.row().offsets) == wanted or run.process.poll() is not None,
        seconds=240,
        pause=0.1,
    )
    run.signal(signal.SIGTERM)
    assert run.wait() == ExitCode.STOPPED, run.log.read_text()[-6000:]
    assert dict(one.row().offsets) == wanted


def lost(one: Pipeline, reason: str) -> Loss:
    """Run into a loss; return what was recorded of it, which the verdict names."""
    before = one.row()
    run = one.start()
    assert run.wait() == ExitCode.DATA_LOSS, run.log.read_text()[-6000:]
    verdict, row = run.verdict(), one.row()
    assert verdict.reason == reason
    assert (row.offsets, row.topic_ids) == (before.offsets, before.topic_ids)
    report = one.recorded(verdict.loss)
    assert (report.epoch, report.loss.reason, report.acceptance) == (row.epoch, reason, None)
    return report.loss


def delete(one: Pipeline) -> None:
    one.kafka.delete(one.topic)
    eventually("the topic is gone", lambda: one.topic not in one.kafka.admin.list_topics(timeout=10).topics, seconds=30)


def recreate(one: Pipeline) -> None:
    delete(one)
    one.kafka.create(one.topic)


def assert_rows(one: Pipeline, expected: Mapping[tuple[int, int], int]) -> None:
    """Compare every row with what was produced; a row of a lost record stays until its offset is written again."""
    rows = [((row.partition, row.offset), row.n) for row in one.rows()]
    assert len(rows) == len(expected)
    assert dict(rows) == expected
