"""A record that cannot be processed stops the pipeline and is named, or is set aside, as the spec asks."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from e2e.stream import Applied, cassandra
from fencepost.fence.cassandra.dead_letters import DeadLetters
from harness.waiting import eventually
from present import present

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NO_JSON = b'{"year": 2013, "month":'


@pytest.mark.long
def test_a_bad_record_stops_the_pipeline_by_name_and_is_set_aside_once_the_spec_asks(applied: Applied) -> None:
    """No fault but a producer's: half a record of JSON between two bursts of good ones."""
    stream = applied("poisoned", suspend=True, restart={"maxBackoff": "1s"}, onPoison={"failures": 1})
    try:
        topic = stream.load.ledger.topic
        stream.load.burst(300)
        at = stream.load.ends()[f"{topic}/1"]
        producer = Producer({"bootstrap.servers": stream.place.environment.kafka_host})
        producer.produce(topic, partition=1, key=b"bad", value=NO_JSON)
        assert producer.flush(30) == 0
        stream.load.burst(300)

        stream.apply(suspend=False)
        stalled = stream.pipeline.wait_condition("Stalled", "True", reason="PoisonRecord", seconds=240)
        assert f"{topic}/1@{at} fails each time it is tried alone" in stalled["message"]
        row = present(stream.fence())
        assert (row.offsets[f"{topic}/1"], row.dead_letters) == (at, 0)

        stream.apply(suspend=False, onPoison={"action": "deadLetter"})
        stream.pipeline.wait_ready(epoch=row.epoch + 1)
        row = stream.check_every_row()
        assert (row.dead_letters, row.last_dead_letter) == (1, f"{topic}/1@{at}")
        with cassandra(stream.place) as opened:
            letters = DeadLetters(opened, stream.place.fences, stream.key)
            (listed,) = letters.of_partition(topic, 1, start=at, until=at + 1)
            found = letters.read(listed)
        assert found is not None
        assert (found.key, found.value) == (b"bad", NO_JSON)
        eventually(
            "the status counts it",
            lambda: stream.pipeline.status().get("deadLetters") == {"count": 1, "last": f"{topic}/1@{at}"},
            seconds=60,
        )
    finally:
        stream.pipeline.delete()  # the tests that come after share the nodes
