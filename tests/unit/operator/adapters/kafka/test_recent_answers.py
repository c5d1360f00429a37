"""Whose answers of Kafka are shared, for how long, and how many are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fakes.secrets import NoSecrets
from fencepost_operator.adapters.kafka import offsets as module
from fencepost_operator.adapters.kafka.offsets import KafkaOffsets
from fencepost_operator.adapters.recent_answers import RecentAnswers
from fencepost_operator.api import KafkaConnection
from fencepost_operator.errors import Unreachable
from fencepost_operator.observation import Watermarks

PLACE = KafkaConnection(namespace="shop", bootstrap_servers="kafka:9092", topics=("orders",))


@dataclass(slots=True)
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


class Asked(KafkaOffsets):
    """Counts the questions that Kafka gets; each answer has another end."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(NoSecrets(), monotonic=clock)
        self.questions: list[KafkaConnection] = []
        self.is_down = False

    @asynccontextmanager
    async def _session(
        self, connection: KafkaConnection, properties: Mapping[str, str], *, age: float = 0.0
    ) -> AsyncIterator[tuple[Any, Any]]:
        del properties, age
        self.questions.append(connection)
        if self.is_down:
            raise Unreachable("no broker answers")
        yield None, len(self.questions)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def offsets(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Asked:
    async def watermarks(_admin: object, number: int, _isolation: object) -> Watermarks:
        return Watermarks(ends={"orders/0": number})

    monkeypatch.setattr(module, "_watermarks", watermarks)
    return Asked(clock)


async def end(offsets: Asked, place: KafkaConnection, *, age: float) -> int | None:
    found = await offsets.ends(place, age=age)
    return None if found is None else found.ends["orders/0"]


async def test_pipelines_that_read_the_same_topics_ask_once_within_the_age(offsets: Asked, clock: Clock) -> None:
    assert [await end(offsets, PLACE, age=2.0) for _ in range(50)] == [1] * 50
    clock.now += 1.9
    assert await end(offsets, PLACE, age=2.0) == 1
    clock.now += 0.1
    assert await end(offsets, PLACE, age=2.0) == 2


async def test_whoever_acts_asks_anew(offsets: Asked) -> None:
    assert [await end(offsets, PLACE, age=0.0) for _ in range(3)] == [1, 2, 3]
    assert await end(offsets, PLACE, age=2.0) == 3, "what was answered then holds for others"


@pytest.mark.parametrize(
    "other",
    [
        replace(PLACE, namespace="rival"),
        replace(PLACE, bootstrap_servers="other:9092"),
        replace(PLACE, topics=("orders", "payments")),
        replace(PLACE, properties={"isolation.level": "read_uncommitted"}),
        replace(PLACE, properties={"sasl.username": "another"}),
    ],
)
async def test_an_answer_holds_for_the_same_namespace_account_and_topics_alone(
    offsets: Asked, other: KafkaConnection
) -> None:
    """A tenant that names another tenant's servers and topics asks with its own credentials."""
    assert await end(offsets, PLACE, age=60.0) == 1
    assert await end(offsets, other, age=60.0) == 2


async def test_a_failure_is_not_shared(offsets: Asked) -> None:
    offsets.is_down = True
    for _ in range(2):
        with pytest.raises(Unreachable):
            await end(offsets, PLACE, age=60.0)
    offsets.is_down = False
    assert await end(offsets, PLACE, age=60.0) == 3


def test_old_answers_and_those_that_are_too_much_are_dropped(clock: Clock) -> None:
    answers = RecentAnswers[int, str](clock, most=10, weigh=len)
    for question in range(5):
        answers.keep(question, "1234", clock())
    assert [answers.find(question, 1.0) for question in range(5)] == [None, None, None, "1234", "1234"]
    answers.keep(4, "12", clock())
    answers.keep(5, "1234", clock())
    assert [answers.find(question, 1.0) for question in (3, 4, 5)] == ["1234", "12", "1234"]
    answers.keep(6, "far more than that", clock())
    assert len(answers) == 0
    answers.keep(7, "1", clock())
    clock.now += 11.0
    answers.keep(8, "1", clock())
    assert len(answers) == 1
