"""Creating and deleting topics so that the next request of any client finds Kafka ready for it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic  # where confluent_kafka.admin has it from

from flights.loader import LoadError

ADMIN_SECONDS: Final = 30.0
FENCED_SECONDS: Final = 120.0
"""How long a broker may stay fenced: longer than it takes to register again, or to follow its log after a stall."""
PAUSE_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Topics:
    """Creates and deletes topics. `bootstrap` is host:port[,host:port...]."""

    bootstrap: str

    def create(self, topic: str, partitions: int) -> None:
        """Create the topic unless it is there. Raises LoadError when it is there with another number of partitions."""
        admin = self._admin()
        try:
            create_topic(admin, NewTopic(topic, partitions, 1))
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise LoadError(f"topic {topic} could not be created: {error}") from error
        if (found := len(self._leaders(admin, topic))) != partitions:
            raise LoadError(f"topic {topic} is there with {found} partitions, not {partitions}; name another one")

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions up to this number, and wait until clients learn the leader of each. Raises LoadError."""
        admin = self._admin()
        try:
            admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(ADMIN_SECONDS)
        except (KafkaException, TimeoutError) as error:
            raise LoadError(f"topic {topic} could not get {partitions} partitions: {error!r}") from error
        deadline = time.monotonic() + ADMIN_SECONDS
        while len(leaders := self._leaders(admin, topic)) != partitions or min(leaders) < 0:
            if time.monotonic() > deadline:
                raise LoadError(f"topic {topic} has partitions {leaders} after {ADMIN_SECONDS:.0f} s, not {partitions}")
            time.sleep(PAUSE_SECONDS)

    def exists(self, topic: str) -> bool:
        """Whether Kafka has the topic."""
        return bool(self._leaders(self._admin(), topic))

    def delete(self, topic: str) -> None:
        """Delete the topic and wait until it is gone; nothing to do when it is not there. Raises LoadError."""
        admin = self._admin()
        try:
            admin.delete_topics([topic])[topic].result(ADMIN_SECONDS)
        except TimeoutError as error:
            raise LoadError(f"topic {topic} could not be deleted within {ADMIN_SECONDS:.0f} s") from error
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise LoadError(f"topic {topic} could not be deleted: {error}") from error
        deadline = time.monotonic() + ADMIN_SECONDS
        while self._leaders(admin, topic):
            if time.monotonic() > deadline:
                raise LoadError(f"topic {topic} is still there after {ADMIN_SECONDS:.0f} s")
            time.sleep(PAUSE_SECONDS)

    def _admin(self) -> Any:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})

    def _leaders(self, admin: Any, topic: str) -> list[int]:
        try:
            return _leaders(admin, topic)
        except KafkaException as error:
            raise LoadError(f"Kafka at {self.bootstrap} does not answer: {error}") from error


def create_topic(admin: Any, topic: NewTopic) -> None:
    """Create a topic, and wait until metadata requests return the leader of each of its partitions.

    Kafka answers before every broker knows the topic, and a producer that comes earlier fails or repeats requests.
    A controller without a heartbeat of its brokers for `broker.session.timeout.ms` fences them and refuses new topics
    until they answer: a stall of the machine does that, so that refusal is asked about again.
    Raises KafkaException when Kafka refuses, and LoadError when a partition stays without a leader.
    """
    deadline = time.monotonic() + FENCED_SECONDS
    while not _created(admin, topic):
        if time.monotonic() > deadline:
            raise LoadError(f"topic {topic.topic}: all brokers were fenced for {FENCED_SECONDS:.0f} s")
        time.sleep(PAUSE_SECONDS)
    deadline = time.monotonic() + FENCED_SECONDS
    while not (leaders := _leaders(admin, topic.topic)) or min(leaders) < 0:
        if time.monotonic() > deadline:
            raise LoadError(f"topic {topic.topic} was created, and has no leaders after {FENCED_SECONDS:.0f} s")
        time.sleep(PAUSE_SECONDS)


def _created(admin: Any, topic: NewTopic) -> bool:
    """Return whether Kafka took the topic; False while no broker can hold it. Raises KafkaException."""
    try:
        admin.create_topics([topic])[topic.topic].result(ADMIN_SECONDS)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:
            raise
        return False
    return True


def _leaders(admin: Any, topic: str) -> list[int]:
    """Return the node of each partition's leader, -1 without a leader; empty when the topic does not exist."""
    # All topics are asked for: asking for one by name makes a broker that may do so create it.
    found = admin.list_topics(timeout=ADMIN_SECONDS).topics.get(topic)
    if found is None or found.error is not None:
        return []
    return [partition.leader for partition in found.partitions.values()]
