"""What the server of a checkpoint does with requests that are cut, too large, too slow, or no HTTP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from fencepost.state.webhdfs import http_server
from fencepost.state.webhdfs.http_server import Answer, HttpServer, Request


def echo(request: Request) -> Answer:
    """Answer with the body; or end the connection, as for a stranger."""
    if request.path == "/stranger":
        return Answer.of(403, ends=True)
    return Answer.of(200, request.body.whole(most=20))


@pytest.fixture(scope="module")
def server() -> Iterator[HttpServer]:
    made = HttpServer(echo, address="127.0.0.1", port=0)
    made.start("echo")
    yield made
    made.stop()


def said(server: HttpServer, *requests: bytes, ends: bool = False) -> bytes:
    """Return all that the server answers until it ends the connection, or the client does after its last request."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        for request in requests:
            connection.sendall(request)
        if not ends:
            connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(b"Content-Length: 5\r\n\r\nhello", b"hello", id="of a given length"),
        pytest.param(
            b"Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n", b"hello", id="in chunks"
        ),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\n0\r\nTrailer: 1\r\n\r\n", b"", id="empty, with a trailer"),
        pytest.param(b"\r\n", b"", id="none"),
    ],
)
def test_body(server: HttpServer, body: bytes, expected: bytes) -> None:
    """Two requests on one connection, so the end of each body is found."""
    answers = said(server, b"PUT / HTTP/1.1\r\n" + body, b"PUT / HTTP/1.1\r\n" + body)
    assert answers.count(b"HTTP/1.1 200 OK\r\n") == 2
    assert answers.endswith(b"\r\n\r\n" + expected)
    assert b"content-type" not in answers.lower()


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(b"PUT / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhell", id="cut"),
        pytest.param(b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", id="cut in a chunk"),
        pytest.param(b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n", id="cut before the last"),
        pytest.param(b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n0\r\n", id="cut at its end"),
        pytest.param(
            b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n", id="a longer chunk"
        ),
        pytest.param(
            b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-3\r\nhel", id="a chunk of less than nothing"
        ),
        pytest.param(b"PUT / HTTP/1.1\r\nContent-Length: -5\r\n\r\nhello", id="a length of less than nothing"),
        pytest.param(b"PUT / HTTP/1.1\r\nContent-Length: 21\r\n\r\n" + b"x" * 21, id="too large"),
        pytest.param(
            b"PUT / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            id="of two lengths",
        ),
        pytest.param(b"GET /" + b"x" * 5000 + b" HTTP/1.1\r\n\r\n", id="a long path"),
        pytest.param(b"GET /" + b"x" * 50_000 + b" HTTP/1.1\r\n\r\n", id="a long line"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 100 + b"\r\n", id="many headers"),
        pytest.param(b"GET / HTTP/1.0\r\n\r\n", id="another version"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\xff\n\r\n", id="TLS"),
    ],
)
def test_refused(server: HttpServer, request_bytes: bytes) -> None:
    answer = said(server, request_bytes)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"Connection: close" in answer


def test_refused_stranger_loses_the_connection(server: HttpServer) -> None:
    assert said(server, b"GET /stranger HTTP/1.1\r\n\r\n", ends=True).startswith(b"HTTP/1.1 403 ")


def test_slow_head(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEAD_DEADLINE", 0.01)
    assert said(server, b"GET / HT", ends=True) == b""


def test_connection_without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes no slot forever."""
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", 1)
    server = HttpServer(echo, address="127.0.0.1", port=0)
    server.start("echo")
    with monkeypatch.context() as context:
        context.setattr(threading.Thread, "start", _refused)
        assert said(server, ends=True) == b""
    assert said(server, b"GET / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200")
    server.stop()


def _refused(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs IPv6")
def test_both_families() -> None:
    server = HttpServer(lambda request: Answer.of(200, request.sender.encode()), address="::", port=0)
    server.start("echo")
    for host in ("127.0.0.1", "::1"):
        with socket.create_connection((host, server.port), timeout=10) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
            assert b"".join(iter(lambda: connection.recv(1000), b"")).endswith(f"\r\n\r\n{host}".encode())
    server.stop()


def test_bound_on_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", 1)
    server = HttpServer(echo, address="127.0.0.1", port=0)
    server.start("echo")
    with socket.create_connection(("127.0.0.1", server.port)) as first:
        first.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert first.recv(100).startswith(b"HTTP/1.1 200")
        assert said(server, ends=True) == b""
    server.stop()
