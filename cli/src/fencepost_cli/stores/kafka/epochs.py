"""One record of Kafka: under which leader epoch it was written, asked with the pipeline's own properties."""

from __future__ import annotations

import time
from collections import deque
from contextlib import closing
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from fencepost.batch import NO_EPOCH
from fencepost.contract import offset_key
from fencepost.kafka.answers import refusal
from fencepost.kafka.log import QUIET
from fencepost_cli.errors import CliError
from fencepost_cli.ports import KafkaAccess
from fencepost_cli.stores.kafka.names import client_of
from fencepost_cli.stores.kafka.records import consumer_properties

READ_WITHIN: Final = 30.0
"""Seconds."""
_GONE: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})  # noqa: SLF001 - the library's own spelling


def leader_epoch(access: KafkaAccess, topic: str, partition: int, offset: int) -> int:
    """Return the leader epoch of the record at an offset, NO_EPOCH where its batch has none.

    Raises CliError when Kafka has no record there, or does not answer.
    """
    complaints: deque[KafkaError] = deque(maxlen=20)
    settings: dict[str, Any] = {**consumer_properties(access), "error_cb": complaints.append}
    place = f"{offset_key(topic, partition)}@{offset}"
    with closing(client_of(lambda own: Consumer(own, logger=QUIET), settings, access.dial)) as consumer:
        consumer.assign([TopicPartition(topic, partition, offset)])
        deadline = time.monotonic() + READ_WITHIN
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if (refused := refusal(complaints)) is not None:
                raise _unread(access, place, refused)
            if message is None:
                continue
            error = message.error()
            if error is None and message.offset() == offset:
                found = message.leader_epoch()
                return NO_EPOCH if found is None else found
            if error is None or error.code() in _GONE or error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                raise CliError(
                    f"Kafka has no record at {place}",
                    remedy="name the record that status.failure names, or its log",
                )
    raise _unread(access, place, "no answer")


def _unread(access: KafkaAccess, place: str, cause: object) -> CliError:
    return CliError(
        f"Kafka at {access.endpoint.bootstrap_servers} did not give the record {place}: {cause}",
        remedy="see whether Kafka answers at this address, and whether the account of the pipeline's Secret may read"
        " the topic; --kafka names another address",
    )
