"""Confirming what was read: only the same id does; another one is a loss, and no answer is waited for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from fencepost.contract import Reason
from fencepost.errors import DataLoss, DependencyDown
from fencepost.kafka import topic_ids
from fencepost.kafka.answers import Topics
from fencepost.kafka.topic_ids import TopicIds

SILENCE = KafkaException(KafkaError(KafkaError._TRANSPORT))
PROPERTIES = {"bootstrap.servers": "127.0.0.1:1"}


def is_(**ids: str) -> Topics:
    return Topics(ids, (), (), ())


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Confirm that topic t has id `id` against these answers; return how many of them were not used."""

    def confirm(*answers: Topics | KafkaException, patience: float) -> int:
        left = list(answers)

        def described(_admin: object, topics: Iterable[str]) -> Topics:
            assert list(topics) == ["t"]
            answer = left.pop(0)
            if isinstance(answer, KafkaException):
                raise answer
            return answer

        monkeypatch.setattr(topic_ids, "described", described)
        TopicIds(PROPERTIES).confirm({"t": "id"}, patience=patience)
        return len(left)

    return confirm


def test_no_answer_and_a_broker_that_does_not_know_the_topic_yet_are_asked_again(asked: Any) -> None:
    assert asked(SILENCE, is_(), is_(t="id"), is_(t="another"), patience=60) == 1


def test_another_id_is_a_loss_at_once(asked: Any) -> None:
    with pytest.raises(DataLoss, match="t has id another, not id") as caught:
        asked(is_(t="another"), patience=60)
    assert caught.value.reason is Reason.TOPIC_RECREATED


@pytest.mark.parametrize(
    ("answer", "words"), [(SILENCE, "which topics were read"), (is_(), "reports as missing: topic t")]
)
def test_a_kafka_that_confirms_nothing_is_an_outage(asked: Any, answer: Any, words: str) -> None:
    with pytest.raises(DependencyDown, match=words) as caught:
        asked(answer, patience=0)
    assert caught.value.reason is Reason.KAFKA_UNREACHABLE


def test_a_refusal_is_not_waited_for(asked: Any) -> None:
    refused = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(DependencyDown) as caught:
        asked(refused, patience=60)
    assert caught.value.reason is Reason.KAFKA_CREDENTIALS_REJECTED


def test_ranges_that_name_no_id_are_not_asked_for() -> None:
    TopicIds(PROPERTIES).confirm({}, patience=0)
