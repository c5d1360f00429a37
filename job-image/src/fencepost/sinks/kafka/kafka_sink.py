"""The driver's half of the Kafka sink: whether the topic is there, and whether the frame's columns are a record's."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from fencepost.contract import KafkaSink, Reason, kafka_properties
from fencepost.errors import BadSpec, DependencyDown
from fencepost.kafka.answers import refusal, topics_of
from fencepost.kafka.log import refused
from fencepost.sinks.interface import Sink
from fencepost.sinks.kafka.producer import ProducerTask

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
    "offset": ("bigint",),
    "i": ("int", "bigint"),
}
"""A record's columns, and the types that each may have. The last four are the coordinates."""
COORDINATES: Final = ("topic", "partition", "offset")
REQUEST_TIMEOUT: Final = 5.0
"""Seconds for one answer."""


class TopicSink(Sink):
    """One declared sink, bound to its topic."""

    def __init__(self, name: str, task: ProducerTask) -> None:
        self._name = name
        self._task = task

    def check(self, schema: StructType) -> None:
        """Raise BadSpec naming every column that is not part of a record."""
        columns = {field.name: field.dataType.simpleString() for field in schema.fields}
        problems = [
            f"column {name!r} is {found}, and a record's {name} is {' or '.join(COLUMNS[name])}"
            if name in COLUMNS
            else f"column {name!r} is not one of a record's, {', '.join(COLUMNS)}"
            for name, found in columns.items()
            if found not in COLUMNS.get(name, ())
        ]
        if "value" not in columns:
            problems.append("column 'value' is missing")
        missing = [name for name in COORDINATES if name not in columns]
        if missing and len(missing) < len(COORDINATES):
            problems.append(f"coordinates are topic, partition and offset: {', '.join(map(repr, missing))} is missing")
        if "i" in columns and missing:
            problems.append("column 'i' numbers the rows of one record, whose topic, partition and offset are missing")
        if problems:
            raise BadSpec(
                f"sink {self._name!r}: {'; '.join(problems)}",
                reason=Reason.SINK_MISMATCH,
                remedy="Make the transform return a record's columns: see docs/sinks.md.",
            )

    def task(self) -> ProducerTask:
        """Return the task's half."""
        return self._task


def bind(sink: KafkaSink, properties: Mapping[str, str], *, patience: float) -> TopicSink:
    """Return a declared sink. `properties` are librdkafka's, with bootstrap.servers; those of readers are left out.

    Raises DependencyDown when Kafka does not answer, or has no such topic: it may come.
    """
    own = {key: value for key, value in properties.items() if not kafka_properties.is_of_readers(key)}
    _await_topic(sink, own, time.monotonic() + patience)
    return TopicSink(sink.name, ProducerTask(sink=sink.name, topic=sink.topic, properties=own, patience=patience))


def _await_topic(sink: KafkaSink, properties: Mapping[str, str], deadline: float) -> None:
    """Return when the topic is there. A broker that has just started may say that it is not."""
    servers = properties["bootstrap.servers"]
    complaints: deque[KafkaError] = deque(maxlen=20)
    # A request that times out does not say that the password is wrong.
    settings: dict[str, Any] = {**properties, "error_cb": complaints.append}
    admin = AdminClient(settings)
    while True:
        try:
            asked = admin.describe_topics(TopicCollection([sink.topic]), request_timeout=REQUEST_TIMEOUT)
            if sink.topic in topics_of(asked).ids:
                return
            trouble = DependencyDown(
                f"sink {sink.name!r}: Kafka at {servers} has no topic {sink.topic!r}",
                reason=Reason.SINK_NOT_FOUND,
                remedy="Create the topic, or correct spec.sinks.",
            )
        except KafkaException as error:
            admin.poll(0)
            cause = refusal((error.args[0], *complaints))
            if cause is not None:
                raise refused(servers, cause) from error
            trouble = DependencyDown(
                f"sink {sink.name!r}: Kafka at {servers} did not answer about its topic: {error.args[0]}",
                reason=Reason.SINK_UNREACHABLE,
            )
        if time.monotonic() > deadline:
            raise trouble
        time.sleep(0.5)
