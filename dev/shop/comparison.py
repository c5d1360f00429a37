"""The tables of the shop in Cassandra, beside Kafka's log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flights.sink import Table, rows
from harness.kafka_log import read_log
from shop.expectation import COLUMNS, Arrival, Rows, Tables, in_utc


def read_arrivals(bootstrap: str, topics: Iterable[str]) -> list[Arrival]:
    """Return every record of the topics. Raises KafkaException, TimeoutError."""
    return [
        Arrival.of(topic, record.partition, record.offset, record.value)
        for topic in topics
        for record in read_log(bootstrap, topic)
    ]


def read_tables(session: Any, tables: Iterable[Table]) -> Tables:
    """Return every row of the tables. `session` is of `flights.sink.session`."""
    return {table.name: Rows(map(in_utc, rows(session, table, COLUMNS[table.name]))) for table in tables}
