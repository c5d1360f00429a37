"""allowedEndpoints: the operator connects to nothing else, and its messages say nothing of what is there."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
import time
from typing import Final

import pytest
from hypothesis import given

from fakes.connections import connection_to
from fakes.fence_stores import CassandraFenceStore, NoFences
from fakes.secrets import Secrets
from fencepost_operator.adapters import dialing as dialing_module
from fencepost_operator.adapters.dialing import Dialing
from fencepost_operator.adapters.fence_sessions import Limits
from fencepost_operator.adapters.fence_store import DatabaseFenceStore
from fencepost_operator.adapters.kafka.offsets import KafkaOffsets
from fencepost_operator.adapters.postgresql.fences import PostgresqlFences
from fencepost_operator.api import KafkaConnection, PostgresqlConnection
from fencepost_operator.endpoints import EndpointPolicy, parse_address, parse_entries
from fencepost_operator.errors import PortError, Rejected, Unreachable
from fencepost_operator.settings import Settings, SettingsError
from fencepost_operator.turns import time_limit
from security.hostile import hostile_text

ELSEWHERE: Final = EndpointPolicy(entries=parse_entries(["kafka.example:9092", "10.9.0.0/16:*"]))
API_SERVER: Final = parse_address("10.9.0.1")


@pytest.mark.parametrize(
    ("entry", "name", "address", "port", "allowed"),
    [
        ("kafka.example:9092", "kafka.example", "192.0.2.1", 9092, True),
        ("kafka.example:9092", "Kafka.Example.", "192.0.2.1", 9092, True),
        ("kafka.example:9092", "kafka.example", "192.0.2.1", 22, False),
        ("kafka.example:9092", "evil.kafka.example", "192.0.2.1", 9092, False),
        ("kafka.example:9092", "kafka.example", "127.0.0.1", 9092, False),
        ("kafka.example:9092", "kafka.example", "169.254.169.254", 9092, False),
        ("kafka.example:9092", "kafka.example", "::1", 9092, False),
        ("kafka.example:9092", "kafka.example", "::ffff:127.0.0.1", 9092, False),
        ("kafka.example:9092", "kafka.example", "fe80::1%eth0", 9092, False),
        ("kafka.example:9092", "kafka.example", "0.0.0.0", 9092, False),  # noqa: S104 - refused
        ("*.kafka.svc:*", "b-0.kafka.svc", "192.0.2.1", 9, True),
        ("*.kafka.svc:*", "kafka.svc", "192.0.2.1", 9, False),
        ("*.kafka.svc:*", "xkafka.svc", "192.0.2.1", 9, False),
        ("192.0.2.0/24:9092", "any.name", "192.0.2.9", 9092, True),
        ("192.0.2.0/24:9092", "any.name", "192.0.3.9", 9092, False),
        ("192.0.2.0/24:9092", "any.name", "::ffff:192.0.2.9", 9092, True),
        ("[2001:db8::/32]:*", "any.name", "2001:db8::7", 1, True),
        ("127.0.0.0/8:9092", "any.name", "127.0.0.1", 9092, True),
        ("*.default.svc:443", "kubernetes.default.svc", "10.9.0.1", 443, False),
        ("10.9.0.0/16:443", "kubernetes.default.svc", "10.9.0.1", 443, False),
        ("10.9.0.1:443", "kubernetes.default.svc", "10.9.0.1", 443, True),
        ("0.0.0.0/0:*", "any.name", "192.0.2.1", 1, True),
        ("0.0.0.0/0:*", "any.name", "127.0.0.1", 1, False),
        ("0.0.0.0/0:*", "any.name", "169.254.169.254", 80, False),
        ("169.254.0.0/16:80", "any.name", "169.254.169.254", 80, True),
        ("0.0.0.0/0:*", "any.name", "64:ff9b::192.0.2.1", 1, True),
        ("[::/0]:*", "any.name", "64:ff9b::10.9.0.1", 443, False),
        ("10.9.0.1:443", "any.name", "64:ff9b::10.9.0.1", 443, True),
        ("[::/0]:*", "any.name", "64:ff9b:1::a9fe:a9fe", 80, False),
        ("[64:ff9b:1::a9fe:a9fe]:80", "any.name", "64:ff9b:1::a9fe:a9fe", 80, True),
    ],
)
def test_an_entry_allows_what_it_names(entry: str, name: str, address: str, port: int, allowed: bool) -> None:
    assert API_SERVER is not None
    policy = EndpointPolicy(entries=parse_entries([entry]), reserved=frozenset({API_SERVER}))
    assert policy.allows(name, address, port) is allowed


def test_without_entries_everything_is_allowed() -> None:
    assert EndpointPolicy().allows("any", "127.0.0.1", 1)


@pytest.mark.parametrize("inner", ["127.0.0.1", "169.254.169.254", "10.9.0.1", "224.0.0.1"])
@pytest.mark.parametrize(
    "form", ["::ffff:{}", "::{}", "64:ff9b::{}", "64:ff9b:1::{}", "64:ff9b:1:fffe::{}", "2002:{}::"]
)
def test_an_ipv4_address_inside_an_ipv6_one_is_checked_too(form: str, inner: str) -> None:
    assert API_SERVER is not None
    policy = EndpointPolicy(reserved=frozenset({API_SERVER}), guards=True)
    words = "{:x}:{:x}".format(*struct.unpack("!HH", ipaddress.IPv4Address(inner).packed))
    assert not policy.allows("any.name", form.format(words), 443)
    assert policy.allows("any.name", "64:ff9b::192.0.2.1", 443)


@given(hostile_text)
def test_no_other_name_is_allowed(text: str) -> None:
    assert not ELSEWHERE.allows(text, "192.0.2.1", 9092) or text.lower().removesuffix(".") == "kafka.example"


@pytest.mark.parametrize(
    "text", ["kafka", "kafka:0", "kafka:70000", "10.0.0.0/33:1", "a b:1", "*:1", "kafka.*:1", "1.2.3:4"]
)
def test_a_wrong_entry_is_refused_at_the_start(text: str) -> None:
    with pytest.raises(SettingsError, match="FENCEPOST_ALLOWED_ENDPOINTS"):
        Settings.from_environment({"FENCEPOST_ALLOWED_ENDPOINTS": text})


async def kafka_says(servers: str, policy: EndpointPolicy) -> PortError:
    offsets = KafkaOffsets(Secrets(), policy)
    with pytest.raises(PortError) as caught:
        await offsets.ends(KafkaConnection(namespace="n", bootstrap_servers=servers, topics=("t",)))
    await offsets.close()
    return caught.value


def shape(error: PortError, *parts: str) -> tuple[type, str]:
    """An error without what the author wrote."""
    words = f"{error} {error.remedy}"
    for part in parts:
        words = words.replace(part, "X")
    return type(error), words


async def test_kafka_elsewhere_is_not_dialled_and_all_refusals_read_the_same() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        listening = f"127.0.0.1:{server.getsockname()[1]}"
        closed, unknown, outside = "127.0.0.1:1", "no-such-name.invalid:9092", "192.0.2.1:9092"
        found = {shape(await kafka_says(each, ELSEWHERE), each) for each in (listening, closed, unknown, outside)}
        with pytest.raises(BlockingIOError):
            server.accept()
    ((kind, words),) = found
    assert kind is Rejected
    assert "spec.source.kafka.bootstrapServers" in words
    assert "allowedEndpoints" in words


@pytest.mark.parametrize(
    "servers", ["", ",", "a:b:c", "kafka.example:9092,localhost", "unix:///var/run/x", "[::1", "a..b:1"]
)
async def test_other_forms_of_servers_are_refused(servers: str) -> None:
    assert isinstance(await kafka_says(servers, ELSEWHERE), Rejected)


async def test_kafka_without_tls_is_dialled_by_the_address_that_was_checked() -> None:
    dialing = Dialing(EndpointPolicy(entries=parse_entries(["127.0.0.0/8:*", "[::1]:*"])))
    found = await dialing.kafka("n", "localhost:9092", by_name=False)
    assert "localhost" not in found
    assert await dialing.kafka("n", "localhost:9092", by_name=True) == "localhost:9092"
    dialing.close()


async def test_a_broker_that_kafka_advertises_elsewhere_is_refused() -> None:
    dialing = Dialing(ELSEWHERE)
    with pytest.raises(Rejected, match=r"spec.source.kafka.bootstrapServers"):
        await dialing.brokers("n", [("10.9.0.4", 9092), ("169.254.169.254", 80)])
    await dialing.brokers("n", [("10.9.0.4", 9092)])
    dialing.close()


async def test_slow_name_servers_of_many_tenants_refuse_no_other_tenants_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their lookups take every thread; another tenant waits for one of them, and its own lookup has its whole time."""

    def lookup(host: str, port: int, **_: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        time.sleep(0.6 if host.startswith("slow") else 0.0)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.9.0.4", port))]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    monkeypatch.setattr(dialing_module, "_LOOKUP_WITHIN", 0.2)
    monkeypatch.setattr(dialing_module, "_LOOKUPS", 16)
    dialing = Dialing(ELSEWHERE)

    async def look(tenant: int) -> None:
        with pytest.raises(Rejected):
            await dialing.kafka(f"slow{tenant}", "slow.example:9092", by_name=False)

    slow = [asyncio.create_task(look(number % 8)) for number in range(24)]
    await asyncio.sleep(0.05)
    async with time_limit(0.3):
        assert await dialing.kafka("quick", "kafka.example:9092", by_name=False) == "10.9.0.4:9092"
    await asyncio.gather(*slow)
    dialing.close()


async def test_failures_to_connect_read_the_same_where_endpoints_are_restricted() -> None:
    """A port that is closed, and one that accepts and says nothing."""
    policy = EndpointPolicy(entries=parse_entries(["127.0.0.0/8:*"]))
    with socket.create_server(("127.0.0.1", 0)) as server:
        silent = f"127.0.0.1:{server.getsockname()[1]}"
        found = {shape(await kafka_says(each, policy), each) for each in (silent, "127.0.0.1:1")}
    ((kind, _),) = found
    assert kind is Unreachable


async def cassandra_says(point: str, port: int, policy: EndpointPolicy, limits: Limits | None = None) -> PortError:
    store = CassandraFenceStore(Secrets(), limits, policy=policy)
    connection = connection_to(point, port=port)
    with pytest.raises(PortError) as caught:
        await store.read(connection, "a/b/c")
    await store.close()
    return caught.value


async def test_cassandra_elsewhere_is_not_dialled_and_all_refusals_read_the_same() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = server.getsockname()[1]
        points = [("127.0.0.1", port), ("127.0.0.1", 1), ("no-such-name.invalid", 9042), ("a..b", 9042), ("::1", 9042)]
        found = {shape(await cassandra_says(point, at, ELSEWHERE), f"{point}:{at}") for point, at in points}
        with pytest.raises(BlockingIOError):
            server.accept()
    ((_, words),) = found
    assert "spec.checkpoint.cassandra.contactPoints" in words
    assert "allowedEndpoints" in words


async def test_a_contact_point_that_takes_long_reads_as_one_that_is_not_there() -> None:
    """A name whose lookup hangs takes as long as this one, which accepts and says nothing."""
    policy = EndpointPolicy(entries=parse_entries(["127.0.0.0/8:*"]))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        hurried = await cassandra_says("127.0.0.1", port, policy, Limits(connect_wait=0.1))
        absent = await cassandra_says("127.0.0.1", 1, policy)
    assert shape(hurried, f"127.0.0.1:{port}") == shape(absent, "127.0.0.1:1")


async def postgresql_says(host: str, port: int, policy: EndpointPolicy, limits: Limits | None = None) -> PortError:
    fences = PostgresqlFences(Secrets({"username": "kim", "password": "secret"}), limits, policy=policy)
    store = DatabaseFenceStore(cassandra=NoFences(), postgresql=fences)
    connection = PostgresqlConnection(
        namespace="n",
        hosts=(host,),
        port=port,
        schema="s",
        credentials_secret="a",  # noqa: S106 - a name
        create_schema=False,
    )
    with pytest.raises(PortError) as caught:
        await store.read(connection, "a/b/c")
    await store.close()
    return caught.value


async def test_postgresql_elsewhere_is_not_dialled_and_all_refusals_read_the_same() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = server.getsockname()[1]
        hosts = [("127.0.0.1", port), ("127.0.0.1", 1), ("no-such-name.invalid", 5432), ("a..b", 5432), ("::1", 5432)]
        hosts += [("/var/run/postgresql", 5432)]
        found = {shape(await postgresql_says(host, at, ELSEWHERE), f"{host}:{at}") for host, at in hosts}
        with pytest.raises(BlockingIOError):
            server.accept()
    ((_, words),) = found
    assert "spec.checkpoint.postgresql.hosts" in words
    assert "allowedEndpoints" in words
    assert "secret" not in words


async def test_a_host_that_takes_long_reads_as_one_that_is_not_there() -> None:
    policy = EndpointPolicy(entries=parse_entries(["127.0.0.0/8:*"]))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        hurried = await postgresql_says("127.0.0.1", port, policy, Limits(connect_wait=0.1))
        absent = await postgresql_says("127.0.0.1", 1, policy)
    assert shape(hurried, f"127.0.0.1:{port}") == shape(absent, "127.0.0.1:1")
