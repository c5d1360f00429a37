"""The pool's limits are a queue for who asks for one client more, and no outage of Kafka."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from fencepost_operator.adapters.kafka import client_pool
from fencepost_operator.adapters.kafka.client import Client
from fencepost_operator.adapters.kafka.client_pool import ClientLimits, KafkaPool
from fencepost_operator.api import KafkaConnection
from fencepost_operator.errors import Busy


class Admin:
    """A client of librdkafka that opens no socket."""

    def poll(self, _timeout: float) -> int:
        return 0

    def __exit__(self, *_: object) -> None:
        pass


@dataclass
class Opened:
    """The namespaces of the clients that were opened, in order."""

    namespaces: list[str] = field(default_factory=list)

    def open(self, _properties: Mapping[str, str], connection: KafkaConnection) -> Client:
        self.namespaces.append(connection.namespace)
        return Client(Admin(), deque(), (), connection.namespace)  # type: ignore[arg-type]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    made = Opened()
    monkeypatch.setattr(client_pool, "open_client", made.open)
    return made


def place(namespace: str, account: str = "a") -> tuple[str, KafkaConnection, dict[str, str]]:
    connection = KafkaConnection(namespace=namespace, bootstrap_servers="kafka:9092", topics=("t",))
    return "kafka:9092", connection, {"sasl.username": account}


async def test_a_few_namespaces_more_than_clients_do_not_open_one_for_each_pass(opened: Opened) -> None:
    now = 0.0
    pool = KafkaPool(monotonic=lambda: now)
    for _ in range(10):
        for number in range(130):
            now += 5.0 / 130
            async with pool.client(*place(f"n{number}")):
                pass
    assert len(opened.namespaces) < 130 + 10 * 5
    await pool.close()


async def test_accounts_of_a_namespace_beyond_its_clients_wait_for_each_other(opened: Opened) -> None:
    pool = KafkaPool(ClientLimits(per_namespace=2))

    async def look(account: str) -> None:
        async with pool.client(*place("loud", account)):
            await asyncio.sleep(0.02)
            assert len(pool) <= 2

    await asyncio.gather(*(look(f"a{number}") for number in range(10)))
    assert len(opened.namespaces) == 10
    await pool.close()


async def test_a_namespace_whose_clients_are_in_use_keeps_no_other_from_opening_one(opened: Opened) -> None:
    pool = KafkaPool(ClientLimits(per_namespace=1, total=2))
    async with pool.client(*place("loud", "a")):
        waiting = asyncio.create_task(pool.client(*place("loud", "b")).__aenter__())
        await asyncio.sleep(0)
        async with pool.client(*place("quiet")):
            assert opened.namespaces == ["loud", "quiet"]
        waiting.cancel()
    await pool.close()


async def test_too_long_a_wait_for_a_client_names_no_kafka(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_pool, "LONGEST_WAIT", 0.02)
    pool = KafkaPool(ClientLimits(per_namespace=1))
    async with pool.client(*place("loud", "a")):
        with pytest.raises(Busy, match="no turn at the Kafka clients"):
            await pool.client(*place("loud", "b")).__aenter__()
    assert opened.namespaces == ["loud"]
    await pool.close()
