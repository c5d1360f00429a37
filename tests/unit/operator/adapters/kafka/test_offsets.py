"""Why Kafka did not answer: librdkafka says it beside the request."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from fakes.kafka import METADATA, Broker
from fakes.secrets import NoSecrets, Secrets
from fencepost_operator.adapters.kafka import offsets as module
from fencepost_operator.adapters.kafka.client import Client, translated
from fencepost_operator.adapters.kafka.client_pool import ClientLimits
from fencepost_operator.adapters.kafka.offsets import KafkaOffsets
from fencepost_operator.api import KafkaConnection, ObjectKey
from fencepost_operator.errors import Denied, PortError, Rejected, Unreachable
from harness.waiting import eventually_async
from present import present

PLACE = KafkaConnection(namespace="n", bootstrap_servers="kafka:9092", topics=("t",))


class Admin:
    def poll(self, _timeout: float) -> int:
        return 0


def client(*complaints: int) -> Any:
    return Client(Admin(), deque(KafkaError(code, "complaint") for code in complaints))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "complaints", "kind", "words"),
    [
        (TimeoutError(), (), Unreachable, "no answer in 8 s"),
        (TimeoutError(), (KafkaError._RESOLVE,), Unreachable, "complaint"),
        (TimeoutError(), (KafkaError._AUTHENTICATION, KafkaError._ALL_BROKERS_DOWN), Denied, "propertiesFrom"),
        (KafkaException(KafkaError(KafkaError._TIMED_OUT)), (KafkaError._SSL,), Unreachable, "complaint"),
        (KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)), (), Denied, "Describe"),
        (
            KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)),
            (KafkaError._ALL_BROKERS_DOWN,),
            Denied,
            "Describe",
        ),
    ],
)
def test_the_refusal_is_reported_rather_than_the_timeout(
    error: Exception, complaints: tuple[int, ...], kind: type[PortError], words: str
) -> None:
    found = translated(error, client(*complaints), PLACE)
    assert type(found) is kind
    assert words in f"{found} {found.remedy}"
    assert "kafka:9092" in str(found)


async def test_a_kafka_of_the_driver_alone_refuses_only_a_timestamp() -> None:
    offsets = KafkaOffsets(Secrets())
    place = replace(PLACE, properties={"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"})
    with pytest.raises(Rejected, match="OAuth, Kerberos or files") as caught:
        await offsets.at(place, datetime(2026, 1, 1, tzinfo=UTC))
    assert "snapshot" not in caught.value.remedy
    assert "propertiesFrom" in caught.value.remedy
    await offsets.close()


async def test_a_property_that_librdkafka_does_not_know_is_rejected() -> None:
    offsets = KafkaOffsets(Secrets({"sasl.pasword": "secret!"}))
    place = KafkaConnection(
        namespace="n",
        bootstrap_servers="kafka:9092",
        topics=("t",),
        properties_secret="properties",  # noqa: S106 - a name
    )
    with pytest.raises(Rejected, match=r"sasl\.pasword") as caught:
        await offsets.ends(place)
    assert "secret!" not in str(caught.value)
    assert "propertiesFrom" in caught.value.remedy
    await offsets.close()


def nowhere(namespace: str, number: int) -> KafkaConnection:
    """A Kafka that does not answer, with a client of its own."""
    return KafkaConnection(namespace=namespace, bootstrap_servers=f"127.0.0.1:{number + 1}", topics=("t",))


async def test_clients_are_bounded_and_the_one_unused_for_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_WITHIN", 0.02)
    offsets = KafkaOffsets(NoSecrets(), limits=ClientLimits(per_namespace=2, total=3))
    for namespace, number in [("quiet", 0), *(("loud", each) for each in range(4)), ("third", 0)]:
        with pytest.raises(Unreachable):
            await offsets.ends(nowhere(namespace, number))
        assert len(offsets) <= 3
    assert [client.namespace for client in offsets._pool._clients.values()] == ["quiet", "loud", "third"]
    await offsets.close()


async def test_a_client_in_use_is_not_closed_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_WITHIN", 0.5)
    offsets = KafkaOffsets(NoSecrets(), limits=ClientLimits(per_namespace=2, total=3))
    found = await asyncio.gather(*(offsets.ends(nowhere("loud", each)) for each in range(3)), return_exceptions=True)
    assert len(offsets) == 2
    assert [type(each) for each in found] == [Unreachable] * 3
    assert all("Kafka at 127.0.0.1" in str(each) for each in found), "the third one waited for its turn"
    await offsets.close()


async def test_unused_clients_are_closed_although_no_other_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_WITHIN", 0.02)
    offsets = KafkaOffsets(NoSecrets(), limits=ClientLimits(idle=2.0))
    for number in range(2):
        with pytest.raises(Unreachable):
            await offsets.ends(nowhere("gone", number))
    assert len(offsets) == 2

    async def none_is_open() -> bool:
        return len(offsets) == 0

    await eventually_async(none_is_open, seconds=20, pause=0.05)
    with pytest.raises(Unreachable):  # and opened again when it is needed
        await offsets.ends(nowhere("gone", 0))
    assert len(offsets) == 1
    await offsets.close()


async def test_namespaces_share_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_WITHIN", 0.02)
    offsets = KafkaOffsets(NoSecrets())
    for namespace in ("a", "b", "a"):
        with pytest.raises(Unreachable):
            await offsets.ends(nowhere(namespace, 0))
    assert len(offsets) == 2
    await offsets.close()


async def test_ages_are_asked_of_a_cluster_that_was_just_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its description takes two requests, and a pipeline whose records flow asks for an age every 15 seconds."""
    asked: list[int] = []
    with closing(Broker()) as broker:
        place = replace(PLACE, bootstrap_servers=broker.address)
        for holds in (module._DESCRIBED_HOLDS, 0.0):
            monkeypatch.setattr(module, "_DESCRIBED_HOLDS", holds)
            offsets = KafkaOffsets(NoSecrets())
            source = present(await offsets.ends(place))
            broker.requests.clear()
            await offsets.unread(ObjectKey("n", "a"), place, source, {"t/0": 5})
            asked.append(broker.requests.count(METADATA))
            await offsets.close()
    assert asked[0] <= asked[1] - 2, asked
