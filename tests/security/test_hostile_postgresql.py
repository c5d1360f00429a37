"""A PostgreSQL that a tenant wrote, against the real libpq: the connection closes, and the process stays small."""

from __future__ import annotations

import queue
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial

import pytest

from fakes.listener import Listener
from fakes.postgresql_node import READY, Answer, PostgresqlNode, Send, message, rows
from fencepost.contract import PostgresqlEndpoint
from fencepost.fence import FenceRowInvalid, FenceUnavailable
from fencepost.fence.postgresql.history import changes_after
from fencepost.fence.postgresql.session import Session
from fencepost.fence.postgresql.table import PostgresqlFenceTable
from fencepost_operator.adapters.postgresql import login, relay
from fencepost_operator.adapters.postgresql.login import Login
from fencepost_operator.adapters.postgresql.relay import LARGEST_ANSWER, relayed
from fencepost_operator.endpoints import EndpointPolicy
from security.test_hostile_cassandra import peak

MIB = 1024 * 1024
HOUR = datetime(2026, 1, 1, tzinfo=UTC)


@contextmanager
def session(answer: Answer) -> Iterator[Session]:
    node = PostgresqlNode(answer)
    endpoint = PostgresqlEndpoint(hosts=("127.0.0.1",), port=node.port)
    with closing(node), closing(Login(endpoint, ("kim", "")).open(EndpointPolicy())) as made:
        yield made


def read(made: Session) -> None:
    PostgresqlFenceTable(made, "f").read("p")


def test_an_honest_answer_is_read_up_to_the_bound() -> None:
    value = b"x" * (LARGEST_ANSWER - 10_000)

    def answer(send: Send) -> None:
        send(rows(1, value))

    with session(answer) as made:
        for _ in range(2):  # the bound is of one answer
            assert made.run("asking", "SELECT 1") == [(value.decode(),)]


def announcing(send: Send) -> None:
    """A row of a gigabyte, sent as fast as it is read."""
    send(b"D" + struct.pack(">I", 1 << 30))
    for _ in range(1 << 14):
        send(b"x" * (1 << 16))


def endless(send: Send) -> None:
    """Row after row."""
    head = rows(1)[: -len(message(b"C", b"SELECT 1\0") + READY)]
    send(head)
    while True:
        send(message(b"D", struct.pack(">hi", 1, 1000) + b"x" * 1000) * 64)


def noticing(send: Send) -> None:
    """Notices without an end."""
    while True:
        send(message(b"N", b"SNOTICE\0C00000\0M" + b"x" * 1000 + b"\0\0") * 64)


@pytest.mark.parametrize("answer", [announcing, endless, noticing])
def test_an_answer_without_an_end_is_cut(answer: Answer) -> None:
    before = peak()
    with session(answer) as made, pytest.raises(FenceRowInvalid, match="more than 4 MiB"):
        read(made)
    assert peak() - before < 64 * MIB


def test_a_login_that_fails_with_tls_is_tried_without() -> None:
    """Found: with sslmode=prefer libpq connects a second time, which the relay refused."""
    node, refused = PostgresqlNode(lambda send: send(rows(1, b"1"))), list[bytes]()

    def first_refuses_tls(client: socket.socket) -> None:
        if not refused:
            refused.append(client.recv(8))
            client.sendall(b"S")  # and then no handshake
            client.close()
            return
        with client, socket.create_connection(("127.0.0.1", node.port)) as server:
            server.sendall(struct.pack(">II", 8, 80877103))  # the node expects that libpq asks for TLS first
            server.recv(1)
            pass_between(client, server)

    with closing(node), closing(Listener(first_refuses_tls)) as listener:
        endpoint = PostgresqlEndpoint(hosts=("127.0.0.1",), port=listener.port)
        with closing(Login(endpoint, ("kim", "")).open(EndpointPolicy())) as made:
            assert made.run("asking", "SELECT 1") == [("1",)]
    ended()


def pass_between(client: socket.socket, server: socket.socket) -> None:
    """Pass on both directions until one side ends."""
    threading.Thread(target=pump, args=(server, client), daemon=True).start()
    pump(client, server)


def pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)


def test_an_answer_that_trickles_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "relayed", partial(relayed, longest=0.5))

    def trickle(send: Send) -> None:
        send(rows(1)[:20])
        while True:
            send(b"\0")
            time.sleep(0.05)

    with session(trickle) as made:
        began = time.monotonic()
        with pytest.raises(FenceUnavailable):
            read(made)
    assert time.monotonic() - began < 30


def nested(send: Send) -> None:
    send(rows(30, b"[" * 5000, oid=3802))


def numbers(send: Send) -> None:
    send(rows(30, b"9" * 5000, oid=3802))


def few(send: Send) -> None:
    send(rows(1, b"p"))


def arrays(send: Send) -> None:
    send(rows(30, b"{" * 5000, oid=1007))


@pytest.mark.parametrize("answer", [nested, numbers, few, arrays])
def test_values_that_no_column_has_are_refused(answer: Answer) -> None:
    with session(answer) as made, pytest.raises((FenceRowInvalid, FenceUnavailable)):
        read(made)


def test_pages_that_do_not_move_on_end() -> None:
    """The history is read by a number of pages; what is not a change ends it."""
    with session(few) as made, pytest.raises(FenceRowInvalid):
        changes_after(made, "f", "p", HOUR, epoch=0, version=0, limit=5)


def relays() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "fence-relay"]


def test_a_server_that_takes_nothing_holds_no_thread_for_long() -> None:
    """It accepts, and never reads: what is sent fills the buffers."""
    taken = queue.SimpleQueue[socket.socket]()
    with closing(Listener(taken.put)) as listener:
        place = relayed("127.0.0.1", listener.port, longest=0.3)
        with socket.create_connection(place) as client:
            client.settimeout(30)
            with pytest.raises(OSError, match=r"reset|pipe"):
                client.sendall(b"x" * (64 << 20))
        taken.get().close()
    ended()


def test_a_client_that_never_comes_holds_no_thread_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "_CONNECT_WITHIN", 0.2)
    with closing(Listener(waiting)) as listener:
        relayed("127.0.0.1", listener.port)
        ended()


def test_a_session_outlives_the_time_in_which_its_login_may_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found: when no second connection came, the relay closed that of the session."""
    monkeypatch.setattr(relay, "_CONNECT_WITHIN", 0.2)

    def echoing(client: socket.socket) -> None:
        with client:
            pump(client, client)

    with closing(Listener(echoing)) as listener:
        before = relays()
        place = relayed("127.0.0.1", listener.port)
        accepting = [thread for thread in relays() if thread not in before]
        with socket.create_connection(place, timeout=30) as client:
            for thread in accepting:
                thread.join(20)
            client.sendall(b"later")
            assert client.recv(5, socket.MSG_WAITALL) == b"later"
    ended()


def waiting(client: socket.socket) -> None:
    with client:
        client.recv(1)


def ended() -> None:
    """Wait until each relay is gone."""
    for thread in relays():
        thread.join(20)
        assert not thread.is_alive()
