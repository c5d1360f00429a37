"""Dead letters on a real Cassandra, and their records in a real Kafka again."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]

from fencepost.fence.cassandra.dead_letters import DeadLetters
from fencepost.fence.letters import DeadLetter, letter
from integration.cli.scene import KEYSPACE, RECORDS, Scene
from present import present

pytestmark = pytest.mark.integration

VALUE = b"\x00\xffnot JSON"


def set_aside(table: DeadLetters, scene: Scene, offset: int, value: bytes = VALUE) -> None:
    """Write a letter, later than the deletion at the end of the test before."""
    one = letter(
        topic=scene.topic, partition=0, topic_id=scene.row.topic_ids[scene.topic], offset=offset, epoch=1,
        code="image job:transform", reason="TransformFailed", error="ValueError: no JSON", traceback="Traceback",
        key=b"k", value=value, timestamp=datetime(2026, 1, 2, tzinfo=UTC),
        headers=[("trace", b"\x01"), ("none", None)],
    )  # fmt: skip
    now = time.time_ns() // 1000
    table.write(one, write_timestamp=now, retention=3600.0, consistency="ONE", patience=60.0)


@pytest.fixture
def letters(scene: Scene) -> Iterator[DeadLetters]:
    """Letters of offsets 3 and 7 of partition 0, which are committed, and of 17, which is not."""
    table = DeadLetters(scene.session, KEYSPACE, scene.row.pipeline)
    for offset in (3, 7, 17):
        set_aside(table, scene, offset)
    yield table
    scene.session.execute(
        f"DELETE FROM {KEYSPACE}.dead_letters WHERE pipeline = %s AND topic = %s AND partition = 0",  # noqa: S608
        (scene.row.pipeline, scene.topic),
    )


def one_of(letters: DeadLetters, scene: Scene, offset: int) -> DeadLetter | None:
    (listed,) = letters.of_partition(scene.topic, 0, start=offset, until=offset + 1)
    return letters.read(listed)


def stored(scene: Scene, offset: int) -> Message:
    """Return the record that Kafka has at this offset of partition 0."""
    settings = {"bootstrap.servers": scene.environment.kafka_host, "group.id": "none", "enable.auto.commit": False}
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(scene.topic, 0, offset)])
        found = consumer.poll(30)
    finally:
        consumer.close()
    assert found is not None
    assert found.error() is None
    return found


def test_a_letter_is_listed_shown_and_its_record_sent_again(scene: Scene, letters: DeadLetters) -> None:
    pipeline = str(scene.key)
    listed = scene.json("dead-letters", "list", pipeline, "--limit", "2")
    assert ([one["offset"] for one in listed["deadLetters"]], listed["next"]) == ([3, 7], f"{scene.topic}/0@7")
    shown = scene.json("dead-letters", "show", pipeline, scene.topic, "0", "3")
    assert shown["value"] == {"encoding": "base64", "data": "AP9ub3QgSlNPTg=="}

    ended = scene.fencepost("dead-letters", "retry", pipeline, "--until-offset", "4")
    assert ended.returncode == 2
    assert "--yes" in ended.stderr
    printed = scene.json("dead-letters", "retry", pipeline, "--all", "--by", "ann", "--yes", code=1)
    ends = [RECORDS // 2, RECORDS // 2 + 1]
    places = [f"{scene.topic}/0@{end}" for end in ends]
    assert [one["to"] for one in printed["deadLetters"]] == [*places, None]
    assert "has not committed beyond it" in printed["deadLetters"][2]["leftOut"]
    record = stored(scene, ends[0])
    assert (record.key(), record.value()) == (b"k", VALUE)
    assert record.headers() == [
        ("trace", b"\x01"), ("none", None), ("fencepost-dead-letter", f"{scene.topic}/0/3".encode()),
        ("fencepost-dead-letter-pipeline", scene.row.pipeline.encode()), ("fencepost-dead-letter-retries", b"1"),
        ("fencepost-dead-letter-timestamp", b"1767312000000"),
    ]  # fmt: skip
    marked = present(one_of(letters, scene, 7))
    assert (marked.retried_by, marked.retried_to) == ("ann", places[1])

    again = scene.json("dead-letters", "retry", pipeline, "--until-offset", "10", "--yes")
    assert (again["retriedBefore"], again["deadLetters"]) == (2, [])


def test_a_topic_that_does_not_exist_marks_nothing(scene: Scene, letters: DeadLetters) -> None:
    words = ("--until-offset", "4", "--to-topic", "cli-absent", "--yes")
    ended = scene.fencepost("dead-letters", "retry", str(scene.key), *words)
    assert ended.returncode == 2
    assert "choose a topic that exists" in ended.stderr
    kept = present(one_of(letters, scene, 3))
    assert kept.retried_at is None


def test_a_record_of_nine_mebibytes_is_sent_again_whole(scene: Scene, letters: DeadLetters) -> None:
    """Nine chunks, and more than librdkafka and a topic take by default."""
    admin = AdminClient({"bootstrap.servers": scene.environment.kafka_host})
    limit = ConfigEntry("max.message.bytes", str(16 * 1024 * 1024), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, scene.topic, incremental_configs=[limit])
    admin.incremental_alter_configs([resource])[resource].result(30)
    value = random.Random(5).randbytes(9 * 1024 * 1024)
    set_aside(letters, scene, 5, value)
    words = ("--from-offset", "5", "--until-offset", "6", "--yes")
    (printed,) = scene.json("dead-letters", "retry", str(scene.key), *words)["deadLetters"]
    assert stored(scene, int(printed["to"].partition("@")[2])).value() == value
