"""What Kafka's answers mean: which partitions have no leader, which topics are missing, and what is an error."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from fencepost.driver.planning.plan import AGREEMENT
from fencepost.kafka import log as kafka_log
from fencepost.kafka.answers import Position, first_offsets_of, positions_of, refusal, topics_of


def answered(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(value, int):
        future.set_exception(KafkaException(KafkaError(value)))
    else:
        future.set_result(value)
    return future


def topic(identity: str, leaders: Iterable[int | None]) -> Any:
    parts = [SimpleNamespace(id=number, leader=leader) for number, leader in enumerate(leaders)]
    return SimpleNamespace(topic_id=identity, partitions=parts)


def at(offset: int, epoch: int | None = None) -> Any:
    return SimpleNamespace(offset=offset, leader_epoch=epoch)


def test_a_partition_without_a_leader_is_not_asked_for_its_offsets() -> None:
    found = topics_of({"t": answered(topic("id", [1, None, 2])), "u": answered(KafkaError.UNKNOWN_TOPIC_OR_PART)})
    assert [(part.topic, part.partition) for part in found.partitions] == [("t", 0), ("t", 2)]
    assert found.leaderless == ("t/1",)
    assert found.ids == {"t": "id"}
    assert found.missing == ("u",)


def test_a_topic_that_may_not_be_described_is_an_error() -> None:
    with pytest.raises(KafkaException):
        topics_of({"t": answered(KafkaError.TOPIC_AUTHORIZATION_FAILED)})


def positions(*values: Any) -> dict[str, Position]:
    return positions_of({TopicPartition("t", number): answered(value) for number, value in enumerate(values)})


def test_the_offset_of_a_leader_that_did_not_answer_is_not_an_offset() -> None:
    """librdkafka gives -1001 without an error; read as the log's end it was a truncated log."""
    assert positions(at(7, 3), at(-1001), KafkaError.NOT_LEADER_FOR_PARTITION, at(0, -1)) == {
        "t/0": Position(7, 3),
        "t/3": Position(0, None),
    }


@pytest.mark.parametrize("value", [at(-1001), KafkaError._TIMED_OUT])
def test_no_answer_at_all_is_an_error(value: Any) -> None:
    with pytest.raises(KafkaException) as caught:
        positions(value, value)
    assert caught.value.args[0].code() == KafkaError._TIMED_OUT


def test_a_refusal_among_the_answers_is_an_error() -> None:
    with pytest.raises(KafkaException):
        positions(at(7), KafkaError.TOPIC_AUTHORIZATION_FAILED)


def first_offsets(*values: Any) -> dict[str, int | None]:
    return first_offsets_of({TopicPartition("t", number): answered(value) for number, value in enumerate(values)})


def test_no_record_of_a_time_is_an_answer_and_a_silent_leader_is_none() -> None:
    assert first_offsets(at(7), at(-1), at(-1001), KafkaError.NOT_LEADER_FOR_PARTITION) == {"t/0": 7, "t/1": None}
    assert first_offsets(at(-1001)) == {}
    with pytest.raises(KafkaException):
        first_offsets(at(7), KafkaError.TOPIC_AUTHORIZATION_FAILED)


def test_a_partition_whose_leader_moves_during_a_lookup_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found: one NOT_LEADER left the partition out of the batch. A leader that is away is not waited for twice."""
    asked = list[list[int]]()

    class Moving(MissingTopic):
        def list_offsets(self, offsets: Any, **_more: object) -> dict[TopicPartition, Future[Any]]:
            asked.append([partition.partition for partition in offsets])
            first = {
                0: at(7),
                1: KafkaError.NOT_LEADER_FOR_PARTITION,
                2: KafkaError.NOT_LEADER_FOR_PARTITION,
                3: at(-1001),
            }
            second = {1: at(9), 2: KafkaError.NOT_LEADER_FOR_PARTITION}
            answers = second if len(asked) > 1 else first
            return {partition: answered(answers[partition.partition]) for partition in offsets}

    found = Moving(monkeypatch).log.offsets_at(5, [f"t/{number}" for number in range(4)])
    assert found == {"t/0": 7, "t/1": 9}
    assert asked == [[0, 1, 2, 3], [1, 2]]


def test_rights_on_a_group_are_not_needed() -> None:
    errors = [KafkaError(code) for code in (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError._ALL_BROKERS_DOWN)]
    assert refusal(errors) is None
    password = KafkaError(KafkaError._AUTHENTICATION)
    assert refusal([*errors, password]) is password


class MissingTopic:
    """An admin client that knows no topic, and the clock and log of its reader."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.fails = False
        self.takes = 0.0
        monkeypatch.setattr(kafka_log, "AdminClient", lambda *_args, **_more: self)
        self.log = kafka_log.KafkaLog(
            {"bootstrap.servers": "k:9092"}, ["t"], patience=60, now=lambda: self.now, sleep=self.recover
        )

    def describe_topics(self, _topics: object, **_more: object) -> dict[str, Future[Any]]:
        self.now += self.takes
        return {"t": answered(KafkaError.REQUEST_TIMED_OUT if self.fails else KafkaError.UNKNOWN_TOPIC_OR_PART)}

    def poll(self, _seconds: float) -> None:
        """Have nothing to report."""

    def recover(self, _seconds: float) -> None:
        self.fails = False

    def missing_after(self, seconds: float) -> float:
        self.now += seconds
        return self.log.state().missing["t"]


def test_answers_far_apart_do_not_agree_for_the_time_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Injected: a broker started at two looks, 45 s apart, and the pipeline stopped for good with TopicDeleted."""
    topic = MissingTopic(monkeypatch)
    assert topic.missing_after(10) == 0
    assert topic.missing_after(1) == 1
    assert topic.missing_after(45) == 1 + kafka_log.AGREES_FOR
    assert [topic.missing_after(60) >= AGREEMENT for _ in range(6)] == [False] * 4 + [True] * 2


def test_a_look_that_fails_ends_the_agreement(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = MissingTopic(monkeypatch)
    assert [topic.missing_after(4) for _ in range(3)] == [0, 4, 8]
    topic.fails = True
    assert [topic.missing_after(4) for _ in range(2)] == [0, 4]


def test_a_look_that_a_freeze_outlived_is_made_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Injected: the process is frozen for five minutes in a look, and its request times out meanwhile."""
    topic = MissingTopic(monkeypatch)
    topic.fails, topic.takes = True, 300.0
    assert topic.missing_after(0) == 0
