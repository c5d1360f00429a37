"""Creating a topic on a Kafka whose brokers are fenced for a moment, as after a stall of the machine."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.cimpl import NewTopic

from flights import topics
from flights.topics import create_topic

TOPIC = NewTopic("t", 2, 1)


@dataclass
class Admin:
    """Answers creations with `refusals`, then takes them; shows one list of `leaders` for each look."""

    refusals: list[int] = field(default_factory=list)
    leaders: list[list[int]] = field(default_factory=lambda: [[1, 1]])
    created: int = 0

    def create_topics(self, new: list[NewTopic]) -> dict[str, Future[None]]:
        answer: Future[None] = Future()
        if self.refusals:
            answer.set_exception(KafkaException(KafkaError(self.refusals.pop(0))))
        else:
            self.created += 1
            answer.set_result(None)
        return {new[0].topic: answer}

    def list_topics(self, *, timeout: float) -> Any:  # noqa: ARG002 - as the library
        seen = self.leaders.pop(0) if len(self.leaders) > 1 else self.leaders[0]
        partitions = {number: SimpleNamespace(leader=leader) for number, leader in enumerate(seen)}
        return SimpleNamespace(topics={"t": SimpleNamespace(error=None, partitions=partitions)} if seen else {})


def test_a_refusal_by_fenced_brokers_is_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "PAUSE_SECONDS", 0.0)
    admin = Admin(refusals=[KafkaError.INVALID_REPLICATION_FACTOR] * 3, leaders=[[], [-1, 1], [1, 1]])
    create_topic(admin, TOPIC)
    assert admin.created == 1
    assert admin.leaders == [[1, 1]]


def test_any_other_refusal_is_raised() -> None:
    admin = Admin(refusals=[KafkaError.TOPIC_ALREADY_EXISTS])
    with pytest.raises(KafkaException):
        create_topic(admin, TOPIC)
