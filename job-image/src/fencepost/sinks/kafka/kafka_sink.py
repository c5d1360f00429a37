"""The driver's half of the Kafka sink: whether the topics are there, and whether the frame's columns are a record's."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from fencepost.contract import RECORD_COLUMNS, KafkaSink, Reason, kafka_properties
from fencepost.errors import BadSpec, DependencyDown
from fencepost.kafka.answers import refusal, topics_of
from fencepost.kafka.log import refused
from fencepost.sinks.interface import Sink
from fencepost.sinks.kafka.producer import ProducerTask

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

COORDINATES: Final = ("topic", "partition", "offset")
REQUEST_TIMEOUT: Final = 5.0
"""Seconds for one answer."""


class TopicSink(Sink):
    """One declared sink, bound to its topics."""

    def __init__(self, name: str, task: ProducerTask) -> None:
        self._name = name
        self._task = task

    def check(self, schema: StructType) -> None:
        """Raise BadSpec naming every column that is not part of a record."""
        columns = {field.name: field.dataType.simpleString() for field in schema.fields}
        destination = self._task.topic_column
        named = columns.pop(destination, "missing") if destination else "string"
        is_named = named == "string"
        problems = [] if is_named else [f"column {destination!r}, which names the topic, is {named}, and not string"]
        if destination in RECORD_COLUMNS:
            problems.append(f"topicColumn {destination!r} is a column of the record itself; name another column")
        problems += [
            f"column {name!r} is {found}, and a record's {name} is {' or '.join(RECORD_COLUMNS[name])}"
            if name in RECORD_COLUMNS
            else f"column {name!r} is not one of a record's, {', '.join(RECORD_COLUMNS)}"
            for name, found in columns.items()
            if found not in RECORD_COLUMNS.get(name, ())
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

    Raises DependencyDown when Kafka does not answer, or lacks one of the topics: it may come.
    """
    own = {key: value for key, value in properties.items() if not kafka_properties.is_of_readers(key)}
    _await_topics(sink, own, time.monotonic() + patience)
    task = ProducerTask(
        sink=sink.name, topics=sink.topics, topic_column=sink.topic_column, properties=own, patience=patience
    )
    return TopicSink(sink.name, task)


def _await_topics(sink: KafkaSink, properties: Mapping[str, str], deadline: float) -> None:
    """Return when the topics are there. A broker that has just started may say that it is not."""
    servers = properties["bootstrap.servers"]
    complaints: deque[KafkaError] = deque(maxlen=20)
    # A request that times out does not say that the password is wrong.
    settings: dict[str, Any] = {**properties, "error_cb": complaints.append}
    admin = AdminClient(settings)
    while True:
        try:
            asked = admin.describe_topics(TopicCollection(list(sink.topics)), request_timeout=REQUEST_TIMEOUT)
            known = topics_of(asked).ids
            missing = [topic for topic in sink.topics if topic not in known]
            if not missing:
                return
            trouble = DependencyDown(
                f"sink {sink.name!r}: Kafka at {servers} has no topic {', '.join(map(repr, missing))}",
                reason=Reason.SINK_NOT_FOUND,
                remedy="Create the topic, or correct spec.sinks.",
            )
        except KafkaException as error:
            admin.poll(0)
            cause = refusal((error.args[0], *complaints))
            if cause is not None:
                raise refused(servers, cause) from error
            trouble = DependencyDown(
                f"sink {sink.name!r}: Kafka at {servers} did not answer about its topics: {error.args[0]}",
                reason=Reason.SINK_UNREACHABLE,
            )
        if time.monotonic() > deadline:
            raise trouble
        time.sleep(0.5)
