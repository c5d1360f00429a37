"""Where a log ends the records of a leader epoch, as a leader of a later epoch knows it (KIP-101, KIP-320).

librdkafka has no call for Kafka's OffsetForLeaderEpoch.  It sends one for a position that a consumer seeks, and reports
an answer that lies before the position.  So what is sought here lies after each log's end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from time import monotonic, sleep
from typing import Final

from confluent_kafka import OFFSET_END, Consumer, KafkaException, Message, TopicPartition

from fencepost.batch import Range

_BEYOND: Final = 2**62
"""An offset after each log's end."""
_ANSWER: Final = re.compile(r"\(leader epoch (\d+)\): broker end offset is (-?\d+)")
"""In librdkafka's report: the epoch asked about, and the answer, -1 of a broker that knows no epoch so late."""
ANSWER_WITHIN: Final = 5.0
"""Seconds for one answer."""
AGAIN_AFTER: Final = 0.5
"""Seconds between two questions: a broker may not know yet that it leads no more."""

Place = tuple[str, int]
"""Topic and partition."""


def read_to(
    parts: Sequence[Range], make: Callable[[], Consumer], *, patience: float, check: Callable[[], object]
) -> dict[str, int]:
    """Return per 'topic/partition' where the records end of its leader epoch and those before it.

    A leader of `seen_epoch` or a later one says so, not one that was cut off before: that leads on for those who know
    no other.  `check` is called between two questions, and may raise.  A partition whose leader does not answer within
    `patience` seconds is absent.
    """
    found: dict[str, int] = {}
    left, deadline = list(parts), monotonic() + patience
    while left and monotonic() < deadline:
        consumer = make()  # one that has not seen another leader
        try:
            # A consumer never returns to a leader of an earlier epoch than it has seen.
            led = _ends(consumer, {_place(part): part.least_epoch for part in left})
            left = [part for part in left if led.get(_place(part), -1) >= 0]
            ends = _ends(consumer, {_place(part): part.leader_epoch for part in left}) if left else {}
        finally:
            consumer.close()
        found |= {part.key: ends[_place(part)] for part in left if ends.get(_place(part), -1) >= 0}
        left = [part for part in parts if part.key not in found]
        if left:
            check()
            sleep(AGAIN_AFTER)
    return found


def _ends(consumer: Consumer, epochs: Mapping[Place, int | None]) -> dict[Place, int]:
    """Return the leaders' answers, those that come in time.

    A partition is sought once it gives something: an answer about its end that is still to come would undo a seek, and
    a fetch at the offset that is sought would be refused, which ends the partition's reading.
    """
    asked = {place: epoch for place, epoch in epochs.items() if epoch is not None}
    found: dict[Place, int] = {}
    consumer.assign([TopicPartition(*place, OFFSET_END) for place in asked])
    try:
        deadline = monotonic() + ANSWER_WITHIN
        while len(found) < len(asked) and monotonic() < deadline:
            given = [_answer(message) for message in consumer.consume(len(asked), timeout=0.1)]
            found |= {place: end for place, epoch, end in given if asked.get(place) == epoch}
            for place in {place for place, *_ in given} & asked.keys() - found.keys():
                consumer.seek(TopicPartition(*place, _BEYOND, leader_epoch=asked[place]))
    except KafkaException:
        pass  # a partition ended, as one does whose topic is not there: it is asked again
    finally:
        consumer.unassign()
    return found


def _answer(message: Message) -> tuple[Place, int, int]:
    error = message.error()
    match = None if error is None else _ANSWER.search(error.str())
    place: Place = (message.topic(), message.partition())  # type: ignore[assignment]  # librdkafka names both here
    return (place, int(match[1]), int(match[2])) if match else (place, -1, -1)


def _place(part: Range) -> Place:
    return part.topic, part.partition
