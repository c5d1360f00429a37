"""Names that librdkafka looks up are answered by the command: with real clients, and librdkafka's own mock of Kafka."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from fakes.tls_proxy import Authority, tls_in_front_of
from fencepost.kafka.log import QUIET
from fencepost_cli.errors import CliError
from fencepost_cli.stores.kafka.names import client_of, servers_of

NAME = "kafka.data.svc"
CLIENTS: list[Callable[[dict[str, Any]], Any]] = [
    lambda own: AdminClient(own, logger=QUIET),
    lambda own: Producer(own, logger=QUIET),
    lambda own: Consumer({**own, "group.id": "none"}, logger=QUIET),
]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a Kafka on this machine."""
    mock = Producer({"test.mock.num.brokers": 1}, logger=QUIET)
    (broker,) = mock.list_topics(timeout=60).brokers.values()
    yield int(broker.port)
    del mock


@pytest.mark.parametrize("make", CLIENTS)
def test_a_client_connects_where_the_name_is_reached(make: Callable[[dict[str, Any]], Any], port: int) -> None:
    asked = list[tuple[str, int]]()

    def dial(host: str, number: int) -> tuple[str, int]:
        asked.append((host, number))
        return "127.0.0.1", port

    client = client_of(make, {"bootstrap.servers": f"{NAME}:9092"}, dial)
    assert len(client.list_topics(timeout=60).brokers) == 1
    assert asked[0] == (NAME, 9092)


@pytest.mark.parametrize("make", CLIENTS)
def test_a_name_that_cannot_be_reached_ends_as_any_name_without_an_address(
    make: Callable[[dict[str, Any]], Any],
) -> None:
    asked = list[str]()

    def dial(host: str, number: int) -> tuple[str, int]:
        asked.append(host)
        raise CliError(f"{host}:{number} has no address", remedy="correct it")

    client = client_of(make, {"bootstrap.servers": f"{NAME}:9092,other:1"}, dial)
    with pytest.raises(KafkaException):
        client.list_topics(timeout=1)
    assert set(asked) == {NAME, "other"}
    del client
    gc.collect()


def test_a_certificate_is_checked_for_the_name(port: int, tmp_path: Path) -> None:
    """Both names lead to the same listener, whose certificate has one of them, and that by which Kafka names itself."""
    authority = Authority.make(tmp_path / "authority")
    complaints = list[KafkaError]()
    own = {"security.protocol": "SSL", "ssl.ca.pem": authority.text, "error_cb": complaints.append}
    pair = authority.sign("kafka", names=f"DNS:{NAME},DNS:127.0.0.1,IP:127.0.0.1")
    with tls_in_front_of("127.0.0.1", port, pair) as listener:
        for name in (NAME, "other.data.svc"):
            settings = {**own, "bootstrap.servers": f"{name}:9093"}
            client = client_of(CLIENTS[0], settings, lambda _host, _port: ("127.0.0.1", listener))
            if name == NAME:
                assert len(client.list_topics(timeout=60).brokers) == 1
                continue
            while KafkaError._SSL not in {one.code() for one in complaints}:
                with pytest.raises(KafkaException):
                    client.list_topics(timeout=1)
                client.poll(0)


def test_servers_are_read_as_librdkafka_reads_them() -> None:
    assert servers_of("a.data.svc:9093, SSL://[::1]:1,c") == [("a.data.svc", 9093), ("::1", 1), ("c", 9092)]
    with pytest.raises(CliError, match="not the address"):
        servers_of("a:b:c")
