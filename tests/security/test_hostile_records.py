"""Records that break Kafka's rules, through the real librdkafka: each of them is read, and can be set aside."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from fakes.raw_headers import RawProducer
from fencepost.batch import Range
from fencepost.fence.letters import letter
from fencepost.kafka import header_names, reader
from fencepost.kafka.record import KafkaRecords
from present import present

PATIENCE = 20.0
HEADERS = ((b"na\xe9me", b"1"), (b"name", None), (b"\xff\xfe", b"\xff"), (b"\xed\xa0\x80", b""))
"""Names in Latin-1, in UTF-8, in nothing, and a surrogate, which UTF-8 does not have."""
NAMES = ["na\ufffdme", "name", "\ufffd\ufffd", "\ufffd\ufffd\ufffd"]


@pytest.fixture(scope="module")
def producer() -> Iterator[RawProducer]:
    """Of a mock cluster with a topic of three records, the second one with HEADERS."""
    made = RawProducer()
    made.create_topic("t", 1)
    made.produce("t", b"good", [(b"name", b"1")])
    made.produce("t", b"bad", HEADERS)
    made.produce("t", b"good too", [])
    yield made
    while reader._clients:
        reader._clients.popitem()[1].consumer.close()
    made.close()


def test_names_of_headers_that_are_not_utf8_are_read_with_replacement(producer: RawProducer) -> None:
    properties = {"bootstrap.servers": producer.servers}
    (batch,) = reader.read([Range("t", 0, 0, 3)], properties, patience=PATIENCE)
    assert batch.column("value").to_pylist() == [b"good", b"bad", b"good too"]
    first, second, third = batch.column("headers").to_pylist()
    assert first == [{"key": "name", "value": b"1"}]
    assert [(one["key"], one["value"]) for one in second] == list(
        zip(NAMES, [value for _, value in HEADERS], strict=True)
    )
    assert third is None


def test_a_record_with_such_names_can_be_set_aside(producer: RawProducer) -> None:
    properties = {"bootstrap.servers": producer.servers}
    record = present(KafkaRecords(properties, PATIENCE).first(Range("t", 0, 1, 2)))
    assert [name for name, _ in record.headers] == NAMES
    kept = letter(
        topic="t",
        partition=0,
        topic_id="id",
        offset=1,
        epoch=1,
        code="c",
        reason="Failed",
        error="e",
        traceback="t",
        timestamp=record.timestamp,
        key=record.key,
        value=record.value,
        headers=record.headers,
    )
    assert [name for name, _ in json.loads(present(kept.headers))] == NAMES


def test_other_text_is_decoded_strictly_as_before() -> None:
    """Also in another thread meanwhile: the handler is the process's."""
    refused: list[bool] = []

    def decode() -> None:
        with pytest.raises(UnicodeDecodeError):
            b"\xff".decode()
        refused.append(True)

    with header_names.replaced():
        other = threading.Thread(target=decode)
        other.start()
        other.join()
    decode()
    assert refused == [True, True]
