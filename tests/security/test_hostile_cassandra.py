"""A Cassandra that a tenant wrote, against the real driver: the connection closes, and the process stays small."""

from __future__ import annotations

import logging
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cassandra.cluster import Session

from fakes.cassandra_node import RESULT, VARCHAR, Answer, Node, Send, frame, rows, segments
from fakes.tls_proxy import Authority, tls_in_front_of
from fencepost.contract import CassandraEndpoint, CassandraTls
from fencepost.fence import FenceUnavailable
from fencepost.fence.cassandra.table import CassandraFenceTable
from fencepost.fence.tls import TlsMaterial
from fencepost_operator.adapters.cassandra.guarded_connection import LARGEST_FRAME
from fencepost_operator.adapters.cassandra.login import Login
from fencepost_operator.endpoints import EndpointPolicy

MIB = 1024 * 1024


@contextmanager
def session(answer: Answer) -> Iterator[Session]:
    node = Node(answer)
    endpoint = CassandraEndpoint(contact_points=("127.0.0.1",), port=node.port, local_datacenter="dc1")
    made = Login(endpoint, "ONE", None).open(EndpointPolicy())
    try:
        yield made
    finally:
        made.cluster.shutdown()
        node.close()


def peak() -> int:
    """The most bytes that the process ever had in memory."""
    with open("/proc/self/status") as status:  # noqa: PTH123 - of the kernel
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024


def wrapped(send: Send, data: bytes) -> None:
    send(b"".join(segments(data)))


def read(made: Session) -> None:
    CassandraFenceTable.over(made, "k").read("p")


def test_an_honest_node_is_read() -> None:
    """The node of the other tests would be read, were it not for its answer there; a large answer is read too."""

    def answer(send: Send, stream: int) -> None:
        large = rows({"c": "x" * (LARGEST_FRAME - 10_000)})
        wrapped(send, frame(RESULT, stream, large))

    with session(answer) as made:
        (row,) = made.execute("SELECT c FROM k.t")
        assert len(row.c) == LARGEST_FRAME - 10_000
        made.execute("SELECT c FROM k.t")


def test_a_frame_of_two_gib_closes_the_connection_before_its_bytes_come() -> None:
    def answer(send: Send, stream: int) -> None:
        wrapped(send, frame(RESULT, stream, b"x" * 1000, size=2**31 - 1))
        chunk = b"x" * MIB
        for _ in range(300):
            wrapped(send, chunk)

    before = peak()
    with session(answer) as made, pytest.raises(FenceUnavailable, match="bytes") as caught:
        read(made)
    assert "2147483656 bytes" in str(caught.value) or "at once" in str(caught.value)
    assert peak() < before + 60 * MIB


def test_a_greeting_of_two_gib_closes_the_connection() -> None:
    """Before the versions are agreed on, frames come without segments."""

    def greeting(send: Send, stream: int) -> None:
        send(frame(RESULT, stream, b"", size=2**31 - 1))
        for _ in range(300):
            send(b"x" * MIB)

    before = peak()
    node = Node(greeting=greeting)
    endpoint = CassandraEndpoint(contact_points=("127.0.0.1",), port=node.port, local_datacenter="dc1")
    with pytest.raises(FenceUnavailable, match="the server sent"):
        Login(endpoint, "ONE", None).open(EndpointPolicy())
    assert peak() < before + 60 * MIB
    node.close()


@pytest.mark.parametrize("stream", [-1, 77], ids=["events", "answers without a request"])
def test_a_flood_of_small_frames_closes_the_connection(stream: int) -> None:
    def answer(send: Send, _stream: int) -> None:
        small = frame(RESULT, stream, b"")
        flood = b"".join(segments(small)) * 500
        for _ in range(10_000):
            send(flood)

    with session(answer) as made, pytest.raises(FenceUnavailable, match="the server sent"):
        read(made)


NESTED = """
import sys
from io import BytesIO
from fencepost_operator.adapters.cassandra.guarded_connection import _BoundedProtocol
sys.stdin.buffer
body = sys.stdin.buffer.read()
try:
    _BoundedProtocol.decode_message(5, {}, 0, 0, 8, body, None, None)
except Exception as error:
    print(type(error).__name__, error)
"""


def test_types_inside_types_do_not_end_the_process() -> None:
    """Half a million nested lists in a frame of 1 MB overflow the C stack of the driver's own decoder."""
    body = rows({"c": None}, count=0, kind=struct.pack(">H", 0x20) * 500_000 + VARCHAR)
    done = subprocess.run([sys.executable, "-c", NESTED], input=body, capture_output=True, check=False, timeout=60)
    assert done.stdout.startswith(b"NotSupportedError"), done


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(rows({"c": None}, count=10_001), id="rows"),
        pytest.param(rows({f"c{number}": None for number in range(1001)}, count=0), id="columns"),
        pytest.param(rows({"c": None}, count=0, kind=struct.pack(">HH", 0, 1) + b"X"), id="a custom type"),
        pytest.param(rows({"c": None}, count=0, kind=struct.pack(">HHH", 0x31, 1, 0xD)), id="a tuple"),
        pytest.param(b"\0\0", id="garbage"),
    ],
)
def test_an_answer_that_no_table_of_the_fence_gives_is_refused_and_not_logged(
    body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(send: Send, stream: int) -> None:
        wrapped(send, frame(RESULT, stream, body))

    with (
        caplog.at_level(logging.INFO),
        session(answer) as made,
        pytest.raises(FenceUnavailable, match="cannot be decoded"),
    ):
        read(made)
    assert "buffer" not in caplog.text


def test_the_operator_registers_for_no_events() -> None:
    node = Node()
    endpoint = CassandraEndpoint(contact_points=("127.0.0.1",), port=node.port, local_datacenter="dc1")
    Login(endpoint, "ONE", None).open(EndpointPolicy()).cluster.shutdown()
    assert 11 not in node.opcodes
    node.close()


def test_the_bounds_hold_over_tls_as_well(tmp_path: Path) -> None:
    def answer(send: Send, stream: int) -> None:
        wrapped(send, frame(RESULT, stream, b"x" * 1000, size=2**31 - 1))
        chunk = b"x" * MIB
        for _ in range(300):
            wrapped(send, chunk)

    authority, node, before = Authority.make(tmp_path / "nodes"), Node(answer), peak()
    with tls_in_front_of("127.0.0.1", node.port, authority.sign("node", names="DNS:localhost")) as port:
        endpoint = CassandraEndpoint(
            contact_points=("localhost",), port=port, local_datacenter="dc1", tls=CassandraTls()
        )
        made = Login(endpoint, "ONE", None, TlsMaterial.of({"ca.crt": authority.text})).open(EndpointPolicy())
        try:
            with pytest.raises(FenceUnavailable, match="bytes"):
                read(made)
        finally:
            made.cluster.shutdown()
            node.close()
    assert peak() < before + 60 * MIB
