"""Who leads a topic's partitions, as each broker knows it.

Brokers differ. One that the controller has fenced without its knowledge names itself for as long as it is cut off;
one that is connected again is behind for a moment. An admin client shows neither: it asks the broker that it asked
last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from harness.waiting import eventually
from integration.kafka.brokers import Broker, Cluster

ANSWER_WITHIN: Final = 5.0
"""Seconds that one broker has for an answer."""
SETTLED_WITHIN: Final = 300.0
"""Seconds until a broker that knows the leaders answers, and until all replicas are in sync, on busy CPUs."""


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads a partition, None without a leader, and the nodes that are in sync."""

    node: int | None
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Replicas:
    """The replicas of one topic's partitions."""

    cluster: Cluster
    topic: str

    def leaders(self) -> dict[int, Leader]:
        """Return each partition's leader, as the first broker knows it that reaches the controller and answers.

        Raises NotInTimeError where no broker does.
        """
        return eventually("a broker that knows the leaders", self._known, seconds=SETTLED_WITHIN)

    def broker(self, node: int) -> Broker:
        """Return a node's broker."""
        return self.cluster.brokers[node - 1]

    def settle(self) -> None:
        """Wait until every broker knows that all replicas are in sync, and of the same leaders."""
        eventually("all replicas are in sync", self._settled, seconds=SETTLED_WITHIN)

    def _known(self) -> dict[int, Leader] | None:
        views = (self._known_to(broker) for broker in self.cluster.brokers if broker.reaches_controller)
        return next((view for view in views if view is not None), None)

    def _settled(self) -> bool:
        nodes = tuple(broker.node for broker in self.cluster.brokers)
        first, *others = (self._known_to(broker) for broker in self.cluster.brokers)
        return (
            first is not None
            and all(view == first for view in others)
            and all(found.node and found.in_sync == nodes for found in first.values())
        )

    def _known_to(self, broker: Broker) -> dict[int, Leader] | None:
        """Return what this broker knows; None where it does not answer, or its client asked another one."""
        client = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
        try:
            found = client.list_topics(self.topic, timeout=ANSWER_WITHIN)
        except KafkaException:
            return None
        if not str(found.orig_broker_name).startswith(f"{broker.address}/"):
            return None
        return {
            number: Leader(partition.leader if partition.leader > 0 else None, tuple(sorted(partition.isrs)))
            for number, partition in found.topics[self.topic].partitions.items()
        }
