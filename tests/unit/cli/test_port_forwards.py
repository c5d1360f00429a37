"""Names of the cluster from outside of it: what they mean, and real connections through a fake API server."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from threading import Thread
from typing import Any

import aiohttp
import pytest

from fakes.portforward_server import PortForwardServer, pod, service
from fencepost_cli.errors import CliError
from fencepost_cli.stores.kubernetes import port_forwards
from fencepost_cli.stores.kubernetes.cluster_names import Backend, Place, backends, places, problem
from fencepost_cli.stores.kubernetes.port_forwards import PortForwards

NAME = "db.data.svc.cluster.local"


@pytest.mark.parametrize(
    ("host", "meant"),
    [
        (NAME, [Place("data", "db")]),
        ("DB.data.svc.", [Place("data", "db")]),
        ("db.data.svc.corp.example", [Place("data", "db")]),
        ("db-0.db.data.svc", [Place("data", "db", "db-0")]),
        ("db", [Place("shop", "db")]),
        ("db.data", [Place("shop", "data", "db"), Place("data", "db")]),
        ("db-0.db.data", [Place("data", "db", "db-0")]),
        ("10-0-0-7.data.pod.cluster.local", []),
        ("kafka.eu.example.com", []),
        ("../secrets.data.svc", []),
        ("", []),
    ],
)
def test_what_a_name_means(host: str, meant: list[Place]) -> None:
    assert list(places(host, "shop")) == meant


def test_a_connection_goes_to_ready_pods_and_to_the_port_behind_the_services() -> None:
    pods = [pod("db-0", cql=19042), pod("db-1", cql=29042), pod("db-2", cql=9042, ready=False), pod("db-3")]
    assert backends(service((9042, "cql")), pods, Place("data", "db"), 9042) == [
        Backend("db-0", 19042), Backend("db-1", 29042),
    ]  # fmt: skip
    one = Place("data", "db", "db-1")
    assert backends(service((9042, 7000)), pods, one, 9042) == [Backend("db-1", 7000)]
    assert backends(service((9042, 7000), headless=True), pods, one, 9042) == [Backend("db-1", 9042)]
    leaving = pod("db-4") | {"metadata": {"name": "db-4", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert backends(service((9042, 9042)), [leaving], Place("data", "db"), 9042) == []


def test_a_port_that_the_service_does_not_have_is_refused() -> None:
    """Whoever writes the pipeline chooses the name; the account is that of whoever runs the command."""
    assert problem(service((9042, "cql")), 9042) is None
    assert problem(service((9042, "cql")), 22) == "has no TCP port 22, only 9042"
    external = {"spec": {"type": "ExternalName", "externalName": "db.example.com", "ports": [{"port": 9042}]}}
    assert problem(external, 9042) == "has no selector, so the API server cannot say which pods are behind it"


@contextmanager
def echo() -> Iterator[int]:
    """A port that sends back what it gets, until the client ends the connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with closing(connection):
            while piece := connection.recv(65536):
                connection.sendall(piece)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            Thread(target=serve, args=(connection,), daemon=True).start()

    Thread(target=accept, daemon=True).start()
    with closing(listener):
        yield int(listener.getsockname()[1])


@pytest.fixture
def server() -> Iterator[PortForwardServer]:
    """Service data/db with one ready pod, whose port leads to an echo."""
    with echo() as port:
        server = PortForwardServer(
            services={("data", "db"): service((9042, "cql"))},
            pods={"data": [pod("db-0", cql=9043)]},
            behind={("db-0", 9043): port},
        )
        with server.served():
            yield server


def returned(address: tuple[str, int], sent: bytes) -> bytes:
    """Send, and return what comes back until the end; a reset is one, as of a port that closes with bytes unread."""

    def send() -> None:
        with suppress(ConnectionError):
            connection.sendall(sent)

    with socket.create_connection(address, timeout=30) as connection:
        writer = Thread(target=send)
        writer.start()
        pieces, size = list[bytes](), 0
        with suppress(ConnectionResetError):
            while size < len(sent) and (piece := connection.recv(65536)):
                pieces.append(piece)
                size += len(piece)
        writer.join()
    return b"".join(pieces)


def test_connections_reach_the_pod_and_come_back_whole(server: PortForwardServer) -> None:
    messages = list[str]()
    with PortForwards(server.configuration, "shop", messages.append) as forwards:
        dial = forwards.dial("spec.checkpoint.cassandra.contactPoints", "--cassandra")
        assert dial("localhost", 9042) == ("localhost", 9042)
        address = dial(NAME, 9042)
        assert address[0] == "127.0.0.1"
        assert dial(NAME, 9042) == address
        many = [os.urandom(3_000_000) for _ in range(4)]
        with ThreadPoolExecutor() as pool:
            assert list(pool.map(lambda sent: returned(address, sent), many)) == many
    assert messages == [f"{NAME}:9042 is reached through the API server, in pod data/db-0"]
    assert set(server.opened) == {("db-0", 9043)}
    assert server.bearers == {"Bearer a-token"}
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


def test_a_pod_that_refuses_is_reported_and_ends_the_connection(server: PortForwardServer) -> None:
    server.behind.clear()
    messages = list[str]()
    with PortForwards(server.configuration, "shop", messages.append) as forwards:
        assert returned(forwards.dial("spec.x", "--cassandra")(NAME, 9042), b"hello") == b""
    assert messages[1:] == ["a connection to Service data/db, port 9042, ended: connection refused"]


def test_what_the_cluster_says_comes_before_what_sending_fails_with(
    server: PortForwardServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: on a loaded machine the pod has ended the connection before anything was sent, or its word was read."""
    server.behind.clear()
    down = port_forwards._down

    async def late(*given: Any) -> None:
        await asyncio.sleep(0.3)
        await down(*given)

    async def fails(*_: object) -> None:
        raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")

    monkeypatch.setattr(port_forwards, "_down", late)
    monkeypatch.setattr(port_forwards, "_up", fails)
    messages = list[str]()
    with PortForwards(server.configuration, "shop", messages.append) as forwards:
        assert returned(forwards.dial("spec.x", "--cassandra")(NAME, 9042), b"hello") == b""
    assert messages[1:] == ["a connection to Service data/db, port 9042, ended: connection refused"]


@pytest.mark.parametrize("forbidden", ["services", "pods", "portforward"])
def test_a_missing_right_is_named(server: PortForwardServer, forbidden: str) -> None:
    server.forbidden = frozenset({forbidden})
    with PortForwards(server.configuration, "shop", print) as forwards:
        dial = forwards.dial("spec.checkpoint.cassandra.contactPoints", "--cassandra")
        with pytest.raises(CliError, match="cannot") as refused:
            dial(NAME, 9042)
    assert f"spec.checkpoint.cassandra.contactPoints: {NAME} has no address on this machine" in str(refused.value)
    assert "create pods/portforward in namespace data" in refused.value.remedy
    assert "--cassandra localhost:PORT" in refused.value.remedy


@pytest.mark.parametrize(
    ("host", "port", "why"),
    [
        ("no.data.svc", 9042, "Service data/no does not exist"),
        (NAME, 10250, "Service data/db has no TCP port 10250"),
        ("db-7.db.data.svc", 9042, "Service data/db has no ready pod db-7"),
        ("db.eu.fencepost.test", 9042, "it is not a name in the cluster either"),
    ],
)
def test_a_name_that_leads_nowhere_is_explained(server: PortForwardServer, host: str, port: int, why: str) -> None:
    with PortForwards(server.configuration, "shop", print) as forwards, pytest.raises(CliError) as refused:
        forwards.dial("spec.source.kafka.bootstrapServers", "--kafka")(host, port)
    assert why in str(refused.value)
    assert server.opened == []
