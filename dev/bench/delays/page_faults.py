"""Faults that page at once, each as a user or a colleague makes it.

Those that a pipeline first tries to overcome page when it has not: their time is a setting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient

from demo.scene import PARTITIONS, Scene
from flights.topics import Topics
from harness.kubernetes.kubectl import Object
from harness.load import Load
from harness.monitoring.page_receivers import Hooks
from harness.pipelines import KIND
from harness.waiting import eventually

SECONDS: Final = 240.0
KAFKA_SECONDS: Final = 30.0
RECORDS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Stand:
    """One pipeline, its producer, and its receivers."""

    scene: Scene
    feed: Load
    hub: Hooks

    def patch(self, **spec: Any) -> None:
        """Change the spec as `kubectl patch` does."""
        self.scene.kubectl.patch(KIND, self.scene.name, {"spec": spec})

    def status(self) -> Object:
        """Return the pipeline's status."""
        return dict((self.scene.pipeline() or {}).get("status", {}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong, and the incident that it is. `prepare` comes before, and is not counted."""

    name: str
    reason: str
    make: Callable[[Stand], None]
    prepare: Callable[[Stand], None] = lambda _stand: None
    by_driver: bool = True
    """Whether a driver finds it, not the operator."""


def _ready(stand: Stand, reason: str | None = None) -> None:
    """Wait until the pipeline does what its newest spec says."""

    def is_ready() -> bool:
        found = stand.scene.pipeline() or {}
        status = found.get("status", {})
        ready = [one for one in status.get("conditions", []) if one["type"] == "Ready" and one["status"] == "True"]
        is_new = status.get("observedGeneration") == found["metadata"]["generation"]
        return is_new and any(reason in {None, one["reason"]} for one in ready)

    eventually("the pipeline is ready", is_ready, seconds=SECONDS, pause=0.2)


def _property(stand: Stand) -> None:
    stand.patch(source={"kafka": {"properties": {"no.such.property": "x"}}})


def _module(stand: Stand) -> None:
    stand.patch(source={"kafka": {"properties": None}}, job={"entrypoint": "no_such_module:transform"})


def _table(stand: Stand) -> None:
    (sink,) = stand.scene.manifest["spec"]["sinks"]
    wrong = {**sink, "cassandra": {**sink["cassandra"], "table": "no_such_table"}}
    stand.patch(source={"kafka": {"properties": None}}, sinks=[wrong])


def _correct(stand: Stand, **more: Any) -> None:
    spec = stand.scene.manifest["spec"]
    stand.patch(job={"entrypoint": spec["job"]["entrypoint"]}, sinks=spec["sinks"], **more)


def _streams(stand: Stand) -> None:
    _correct(stand)
    _ready(stand, "Streaming")


def _recreate(stand: Stand) -> None:
    topic, topics = stand.scene.topics[0], Topics(stand.scene.environment.kafka_host)
    topics.delete(topic)
    topics.create(topic, PARTITIONS)


def _suspended(stand: Stand) -> None:
    """Suspend the pipeline, with unread records."""
    _correct(stand, suspend=True)
    _ready(stand, "Suspended")
    stand.feed.burst(RECORDS)


def _expire(stand: Stand) -> None:
    """Delete records as retention does it."""
    admin = AdminClient({"bootstrap.servers": stand.scene.environment.kafka_host})
    partitions = [TopicPartition(stand.scene.topics[0], number, OFFSET_END) for number in range(PARTITIONS)]
    for done in admin.delete_records(partitions).values():
        done.result(KAFKA_SECONDS)


_PROPERTY: Final = Fault(name="a property that is none", reason="InvalidSpec", make=_property, by_driver=False)
_CODE: Final = (
    Fault(name="a module that is not there", reason="BadSpec", make=_module),
    Fault(name="a table that is not there", reason="BadSpec", make=_table),
)
_DATA: Final = (
    Fault(name="a topic recreated", reason="TopicRecreated", make=_recreate, prepare=_streams),
    Fault(
        name="records that expired, suspended", reason="DataExpired", make=_expire, prepare=_suspended, by_driver=False
    ),
)


def faults(number: int) -> tuple[Fault, ...]:
    """Return the faults of a pipeline's life, each another incident; those of four rounds are all pairs."""
    return _PROPERTY, _CODE[number % 2], _DATA[number // 2 % 2]
