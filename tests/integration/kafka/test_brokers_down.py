"""Some brokers down, or just started: what answers is read, and what does not is not taken for lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Thread
from time import sleep

import pytest
from confluent_kafka import Producer

from brokers.campaign import USERS
from fakes.secrets import NoSecrets
from fencepost.batch import Range
from fencepost.kafka.log import KafkaLog
from fencepost.kafka.reader import read
from fencepost_operator.adapters.kafka.offsets import KafkaOffsets
from fencepost_operator.api import KafkaConnection
from fencepost_operator.errors import Unreachable
from harness.waiting import eventually, eventually_async
from integration.driver.support import Kafka
from integration.kafka.brokers import Cluster
from testbed.environment import Environment

pytestmark = pytest.mark.integration


def test_partitions_without_a_leader_are_left_out_and_the_others_are_read(cluster: Callable[..., Cluster]) -> None:
    kafka = cluster(2)
    kafka.create("t", [[1], [2], [1]])
    producer = Producer({"bootstrap.servers": kafka.servers, "enable.idempotence": True, "log_level": 0})
    for partition in range(3):
        producer.produce("t", value=b"v", partition=partition)
    assert producer.flush(60) == 0
    log = KafkaLog({"bootstrap.servers": kafka.servers}, ["t"], patience=60)
    whole = log.state()
    assert whole.ends == {"t/0": 1, "t/1": 1, "t/2": 1}
    assert whole.leaderless == frozenset()

    kafka.brokers[1].crash()
    # At once its partition still has a leader, one that does not answer; librdkafka gives it the offset -1001.
    for _ in range(3):
        found = log.state()
        assert found.ends == {"t/0": 1, "t/2": 1}
        assert found.begins == {"t/0": 0, "t/2": 0}
        assert found.leaderless == {"t/1"}
        assert found.topic_ids == whole.topic_ids
    assert log.offsets_at(0, ["t/0", "t/1", "t/2"]) == {"t/0": 0, "t/2": 0}
    kafka.brokers[1].start()
    eventually("the partition to be led again", lambda: log.state().ends == whole.ends, seconds=180)
    assert log.state().leaderless == frozenset()


@pytest.mark.long
def test_a_broker_that_does_not_know_that_it_leads_no_more_is_not_taken_for_a_truncated_log(
    environment: Environment, tmp_path: Path
) -> None:
    """Found by `make brokers`: a worker that asked it ended the run, and Kafka had lost nothing."""
    kafka = Cluster.start_apart(str(environment.docker), tmp_path / "kafka", USERS)
    try:
        kafka.create("t", [[1, 2, 3]], **{"min.insync.replicas": "2"})
        producer = Producer({"bootstrap.servers": kafka.servers, "log_level": 0})
        for number in range(20):
            producer.produce("t", value=str(number).encode(), partition=0)
        assert producer.flush(60) == 0
        log = KafkaLog({"bootstrap.servers": kafka.servers}, ["t"], patience=60)
        before = log.state().leader_epochs["t/0"]
        old = kafka.brokers[0]
        old.cut(to=old.controller[1])
        epoch = eventually(
            "another leader", lambda: (found := log.state().leader_epochs.get("t/0", 0)) > before and found, seconds=180
        )

        def reach_it() -> None:
            sleep(8)
            old.heal(to=old.controller[1])

        reaching = Thread(target=reach_it)
        reaching.start()
        batches = read([Range("t", 0, 10, 20, epoch)], {"bootstrap.servers": old.address}, patience=120)
        found = [value for records in batches for value in records.column("value").to_pylist()]
        reaching.join()
        assert found == [str(number).encode() for number in range(10, 20)]
    finally:
        kafka.remove()


@pytest.mark.long
@pytest.mark.parametrize("dead", [1, 2])
async def test_the_operator_sees_which_partitions_have_no_leader_and_the_offsets_of_the_others(
    cluster: Callable[..., Cluster], dead: int
) -> None:
    """librdkafka sends requests to one broker, the last one that it knew as controller: either may be the dead one."""
    kafka = cluster(3)
    kafka.create("t", [[2], [3]])
    place = KafkaConnection(namespace="n", bootstrap_servers=kafka.servers, topics=("t",))
    offsets = KafkaOffsets(NoSecrets())

    async def sees(ends: Mapping[str, int], *offline: str) -> bool:
        try:
            found = await offsets.ends(place)
        except Unreachable:
            return False
        return found is not None and (found.ends, found.offline) == (ends, offline)

    try:
        # Brokers may answer before they know the leaders of a new topic.
        await eventually_async(lambda: sees({"t/0": 0, "t/1": 0}), seconds=60)
        kafka.brokers[dead].crash()
        await eventually_async(lambda: sees({f"t/{2 - dead}": 0}, f"t/{dead - 1}"), seconds=180)
    finally:
        await offsets.close()


def test_a_topic_counts_as_missing_for_as_long_as_every_answer_says_so(cluster: Callable[..., Cluster]) -> None:
    kafka = cluster()
    kafka.create("t", [[1]])
    topics = Kafka(kafka.servers)
    clock = [0.0]
    log = KafkaLog({"bootstrap.servers": kafka.servers}, ["t"], patience=60, now=lambda: clock[0])
    assert log.state().missing == {}
    topics.delete("t")
    eventually("the topic to be deleted", lambda: bool(log.state().missing), seconds=30)
    for seconds in (4.0, 8.0, 13.0):
        clock[0] = seconds
        found = log.state()
        assert found.missing == {"t": seconds}
        assert found.topic_ids == {}
    kafka.create("t", [[1]])
    eventually("the topic to be known again", lambda: not log.state().missing, seconds=30)
    topics.delete("t")
    eventually("the topic to be deleted", lambda: bool(log.state().missing), seconds=30)
    assert log.state().missing == {"t": 0.0}  # counted from the first answer after the last one to the contrary
