"""A Cassandra that does not answer delays the pipelines that name it, and no others. The silent ones are sockets."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest

from fakes.connections import connection_to
from fakes.fence_stores import CassandraFenceStore
from fakes.secrets import NoSecrets
from fencepost.contract import CassandraEndpoint
from fencepost.fence import FenceRow, FenceUnavailable
from fencepost.fence.cassandra.session import connect
from fencepost.fence.cassandra.table import CassandraFenceTable
from fencepost.fence.memory import MemoryFenceTable
from fencepost_operator.adapters import daemon_threads, fence_sessions
from fencepost_operator.adapters.cassandra import login
from fencepost_operator.adapters.fence_sessions import Limits
from fencepost_operator.api import CassandraConnection
from fencepost_operator.errors import Busy, Unreachable
from fencepost_operator.turns import time_limit

HEALTHY = connection_to("healthy.test", namespace="quiet")
ROW = FenceRow(pipeline="p", owner="me", epoch=1)
SLOW = 60.0
"""Seconds until the driver gives a silent node up: much longer than a test takes."""


class Healthy:
    """A cluster that answers at once; counts the sessions on it."""

    def __init__(self) -> None:
        self.table = MemoryFenceTable(rows={"p": ROW})
        self.opened = self.closed = 0

    @property
    def cluster(self) -> Any:
        return self

    def shutdown(self) -> None:
        self.closed += 1


class Silence:
    """Cassandra nodes that take connections and never say a word."""

    def __init__(self) -> None:
        self.sockets: list[socket.socket] = []
        self.attempts: list[int] = []
        self.timeout = SLOW

    def node(self) -> int:
        listener = socket.create_server(("127.0.0.1", 0), backlog=16)
        self.sockets.append(listener)
        return int(listener.getsockname()[1])

    def end(self) -> None:
        """Reset the connections, so that no thread waits for its timeout."""
        for listener in self.sockets:
            listener.close()
        self.sockets.clear()


@pytest.fixture
def silence() -> Iterator[Silence]:
    made = Silence()
    yield made
    made.end()


@pytest.fixture
def healthy(monkeypatch: pytest.MonkeyPatch, silence: Silence) -> Healthy:
    """Sends connections with the healthy cluster to memory, all others to their real sockets."""
    cluster = Healthy()

    def dial(endpoint: CassandraEndpoint, **options: Any) -> Any:
        if endpoint.contact_points == HEALTHY.contact_points:
            cluster.opened += 1
            return cluster
        silence.attempts.append(endpoint.port)
        return connect(endpoint, **options, request_timeout=silence.timeout)

    monkeypatch.setattr(login, "connect", dial)
    monkeypatch.setattr(CassandraFenceTable, "over", lambda *_: cluster.table)
    return cluster


@pytest.fixture
async def store(healthy: Healthy, silence: Silence) -> AsyncIterator[CassandraFenceStore]:
    del healthy
    made = CassandraFenceStore(NoSecrets())
    yield made
    silence.end()
    await made.close()


def silent(silence: Silence, count: int, *, namespace: str = "loud") -> list[CassandraConnection]:
    return [
        replace(HEALTHY, namespace=namespace, contact_points=("127.0.0.1",), port=silence.node()) for _ in range(count)
    ]


async def asked(store: CassandraFenceStore, places: list[CassandraConnection]) -> list[asyncio.Task[Any]]:
    """Read from each place, and return the reads that now wait."""
    tasks = [asyncio.create_task(store.read(place, "p")) for place in places]
    await asyncio.sleep(0)
    return tasks


async def given_up(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("count", [16, 100])
async def test_a_healthy_neighbour_reads_while_every_silent_cluster_is_still_waited_for(
    store: CassandraFenceStore, silence: Silence, count: int
) -> None:
    waiting = await asked(store, silent(silence, count))
    rows = [await store.read(HEALTHY, "p") for _ in range(20)]
    rows += await asyncio.gather(*(store.read(HEALTHY, "p") for _ in range(20)))
    assert rows == [ROW] * 40
    assert not any(task.done() for task in waiting)
    await given_up(waiting)


async def test_an_open_session_answers_in_the_namespace_of_a_hundred_silent_clusters(
    store: CassandraFenceStore, silence: Silence
) -> None:
    mine = replace(HEALTHY, namespace="loud")
    assert await store.read(mine, "p") == ROW
    waiting = await asked(store, silent(silence, 100))
    assert [await store.read(mine, "p") for _ in range(20)] == [ROW] * 20
    assert not any(task.done() for task in waiting)
    await given_up(waiting)


async def test_threads_that_connect_are_bounded_per_namespace(store: CassandraFenceStore, silence: Silence) -> None:
    places = [place for name in ("a", "b") for place in silent(silence, 30, namespace=name)]
    waiting = await asked(store, places)
    assert len(store._sessions._openings) == 60
    limits = Limits()
    started = [opening.namespace for opening in store._sessions._openings.values() if opening.namespace]
    assert sorted(started) == ["a"] * limits.connecting_per_namespace + ["b"] * limits.connecting_per_namespace
    await given_up(waiting)


async def test_threads_that_connect_are_bounded_per_set_of_contact_points(
    store: CassandraFenceStore, silence: Silence
) -> None:
    """Injected: one silent cluster that twenty namespaces name, each its own way of logging in."""
    (place,) = silent(silence, 1)
    waiting = await asked(
        store, [replace(place, namespace=f"n{number}", local_datacenter=f"dc{number}") for number in range(20)]
    )
    started = [opening for opening in store._sessions._openings.values() if opening.namespace]
    assert len(started) == Limits().connecting_per_address
    assert await store.read(HEALTHY, "p") == ROW
    await given_up(waiting)


async def test_an_open_circuit_answers_at_once_without_a_thread_until_one_request_tries_again(
    healthy: Healthy, silence: Silence
) -> None:
    del healthy
    silence.timeout = 0.2
    (place,) = silent(silence, 1)
    store = CassandraFenceStore(NoSecrets())
    now = 0.0
    store._sessions._monotonic = lambda: now
    with pytest.raises(Unreachable):
        await store.read(place, "p")
    for _ in range(50):
        with pytest.raises(Unreachable, match="the next attempt comes 3 s after this one"):
            await store.read(place, "p")
    assert silence.attempts.count(place.port) == 1  # a thread of another test may begin to connect now
    now, silence.timeout = 3.5, SLOW
    probe = (await asked(store, [place]))[0]
    await asyncio.sleep(0)
    for _ in range(50):
        with pytest.raises(Unreachable):
            await store.read(place, "p")
    assert not probe.done()
    assert len(store._sessions._openings) == 1
    silence.end()
    with pytest.raises(Unreachable):
        await probe
    with pytest.raises(Unreachable, match="the next attempt comes 6 s after this one"):
        await store.read(place, "p")
    await store.close()


async def test_a_connection_is_not_made_once_no_caller_waits_for_it(
    store: CassandraFenceStore, silence: Silence
) -> None:
    waiting = await asked(store, silent(silence, 100))
    await given_up(waiting)
    assert len(store._sessions._openings) == Limits().connecting_per_namespace


async def test_sessions_are_bounded_per_namespace_and_the_oldest_makes_room(healthy: Healthy) -> None:
    store = CassandraFenceStore(NoSecrets(), Limits(sessions=6, sessions_per_namespace=2))
    mine = replace(HEALTHY, namespace="loud")
    assert await store.read(HEALTHY, "p") == ROW
    for number in range(10):
        assert await store.read(replace(mine, local_datacenter=f"dc{number}"), "p") == ROW
    assert len(store._sessions) == 3
    assert healthy.opened == 11
    assert await store.read(HEALTHY, "p") == ROW
    assert healthy.opened == 11, "the neighbour's session is the oldest, and not the one that was closed"
    await store.close()
    assert healthy.closed == 11


async def test_sessions_are_bounded_in_total(healthy: Healthy) -> None:
    store = CassandraFenceStore(NoSecrets(), Limits(sessions=4, sessions_per_namespace=2))
    for number in range(10):
        assert await store.read(replace(HEALTHY, namespace=f"n{number}", local_datacenter=f"dc{number}"), "p") == ROW
    assert len(store._sessions) == 4
    await store.close()
    assert healthy.closed == healthy.opened == 10


async def test_a_session_that_was_unused_for_long_is_closed(healthy: Healthy) -> None:
    store = CassandraFenceStore(NoSecrets())
    now = 0.0
    store._sessions._monotonic = lambda: now
    await store.read(replace(HEALTHY, local_datacenter="other"), "p")
    now = Limits().idle + 1
    await store.read(HEALTHY, "p")
    await store.read(HEALTHY, "p")
    assert len(store._sessions) == 1
    await store.close()
    assert healthy.closed == 2


async def test_a_refusal_by_a_node_does_not_close_the_session_that_others_use(healthy: Healthy) -> None:
    """Injected: one keyspace has too few replicas, and its pipelines fail each time; another one is fine."""
    from cassandra import Unavailable  # noqa: PLC0415

    store = CassandraFenceStore(NoSecrets())

    def refuse(call: str) -> None:
        raise FenceUnavailable(call) from Unavailable("not enough replicas")

    healthy.table.before = refuse
    for _ in range(10):
        with pytest.raises(Unreachable):
            await store.read(HEALTHY, "p")
    healthy.table.before = lambda _: None
    assert await store.read(HEALTHY, "p") == ROW
    assert healthy.opened == 1
    await store.close()


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Injected: while the list holds something, the operator has no thread for a request, and can start none."""
    exhausted: list[bool] = []
    worker = daemon_threads._worker

    def limited() -> daemon_threads._Worker:
        if exhausted:
            raise RuntimeError("can't start new thread")
        return worker()

    monkeypatch.setattr(daemon_threads, "_worker", limited)
    return exhausted


async def test_a_cluster_is_reached_again_after_the_operator_ran_out_of_threads(
    healthy: Healthy, threads: list[bool]
) -> None:
    store = CassandraFenceStore(NoSecrets())
    now = 0.0
    store._sessions._monotonic = lambda: now
    threads.append(True)
    with pytest.raises(Unreachable, match="no thread left"):
        await store.read(HEALTHY, "p")
    threads.clear()
    now = 10.0
    assert await store.read(HEALTHY, "p") == ROW
    await store.close()
    assert healthy.closed == healthy.opened == 1


async def test_a_request_without_a_thread_gives_its_turn_back_and_keeps_the_session(
    healthy: Healthy, threads: list[bool]
) -> None:
    store = CassandraFenceStore(NoSecrets(), Limits(turns=1))
    assert await store.read(HEALTHY, "p") == ROW
    threads.append(True)
    for _ in range(5):
        with pytest.raises(Unreachable, match="no thread left"):
            await store.read(HEALTHY, "p")
    threads.clear()
    async with asyncio.timeout(5):
        assert await store.read(HEALTHY, "p") == ROW
    assert healthy.opened == 1
    (lane,) = store._sessions._lanes.values()
    assert lane.users == 0
    await store.close()


async def test_a_session_that_found_no_thread_to_close_is_closed_later(
    healthy: Healthy, threads: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence_sessions, "_NEXT_CLOSE", 0.0)
    store = CassandraFenceStore(NoSecrets())
    assert await store.read(HEALTHY, "p") == ROW
    threads.append(True)
    store._sessions._retire(*store._sessions._lanes.values())
    await asyncio.sleep(0.01)
    threads.clear()
    async with asyncio.timeout(5):
        while not healthy.closed:  # noqa: ASYNC110 - it is a thread that ends
            await asyncio.sleep(0.01)
    await store.close()


async def test_an_answer_that_makes_no_sense_is_a_cluster_that_cannot_be_read(healthy: Healthy) -> None:
    """Injected: another program answers on the port, and the Cassandra driver fails with an error of its own."""
    store = CassandraFenceStore(NoSecrets())

    def confuse(_call: str) -> None:
        raise IndexError("unpack requires a buffer of 4 bytes")

    healthy.table.before = confuse
    with pytest.raises(Unreachable, match="buffer of 4 bytes"):
        await store.read(HEALTHY, "p")
    await store.close()


async def test_a_driver_that_commits_without_a_pause_is_fenced_by_its_epoch(healthy: Healthy) -> None:
    """Injected: a commit lands between each read of the operator and its takeover, five times."""
    store, table = CassandraFenceStore(NoSecrets()), healthy.table
    left = [5]

    def commit(call: str) -> None:
        if call == "swap" and left[0]:
            left[0] -= 1
            table.rows["p"] = replace(table.rows["p"], version=table.rows["p"].version + 1)

    table.before = commit
    taken = await store.take_over(HEALTHY, "p", 1, None, "me")
    assert (taken.epoch, taken.version) == (2, 6)
    await store.close()


async def test_requests_beyond_the_turns_of_a_session_are_a_queue_and_no_outage(healthy: Healthy) -> None:
    """A thousand pipelines with one account share a session: Cassandra answers each of them at once."""
    store = CassandraFenceStore(NoSecrets(), Limits(turns=1))
    healthy.table.before = lambda _call: time.sleep(0.1)

    async def look(number: int) -> FenceRow | None:
        async with time_limit(3.0):
            return await store.read(replace(HEALTHY, namespace=f"n{number}"), "p")

    assert await asyncio.gather(*(look(number) for number in range(30))) == [ROW] * 30
    await store.close()


async def test_a_namespace_with_many_requests_delays_another_by_one_on_a_session_that_they_share(
    healthy: Healthy,
) -> None:
    store = CassandraFenceStore(NoSecrets(), Limits(turns=1))
    healthy.table.before = lambda _call: time.sleep(0.02)
    assert await store.read(HEALTHY, "p") == ROW
    many = await asked(store, [replace(HEALTHY, namespace="greedy")] * 20)
    assert await store.read(HEALTHY, "p") == ROW
    assert sum(task.done() for task in many) <= 2
    await asyncio.gather(*many)
    await store.close()


async def test_requests_that_wait_for_a_session_that_falls_silent_do_not_ask_it_one_by_one(healthy: Healthy) -> None:
    store = CassandraFenceStore(NoSecrets(), Limits(turns=1, strikes=2))
    assert await store.read(HEALTHY, "p") == ROW
    calls: list[str] = []

    def fall_silent(call: str) -> None:
        calls.append(call)
        time.sleep(0.02)
        raise FenceUnavailable("no answer")

    healthy.table.before = fall_silent
    reads = await asked(store, [HEALTHY] * 20)
    outcomes = await asyncio.gather(*reads, return_exceptions=True)
    assert all(isinstance(outcome, Unreachable) for outcome in outcomes)
    assert len(calls) == 2
    await store.close()


async def test_a_wait_for_a_turn_to_connect_is_not_counted_as_silence(healthy: Healthy, silence: Silence) -> None:
    del healthy
    store = CassandraFenceStore(NoSecrets(), Limits(connecting=1, connect_wait=3.0))
    (waiting,) = await asked(store, silent(silence, 1))

    async def read_in_time() -> Any:
        async with time_limit(3.0):
            return await store.read(HEALTHY, "p")

    reading = asyncio.create_task(read_in_time())
    with pytest.raises(Unreachable):
        await waiting  # after as long as the read may take
    silence.end()
    assert await reading == ROW
    await store.close()


async def test_too_long_a_wait_for_a_turn_to_connect_names_no_cassandra(
    healthy: Healthy, silence: Silence, monkeypatch: pytest.MonkeyPatch
) -> None:
    del healthy
    monkeypatch.setattr(fence_sessions, "LONGEST_WAIT", 0.05)
    store = CassandraFenceStore(NoSecrets(), Limits(connecting=1))
    waiting = await asked(store, silent(silence, 1))
    with pytest.raises(Busy):
        await store.read(HEALTHY, "p")
    await given_up(waiting)
    silence.end()
    await store.close()


async def test_a_few_places_more_than_sessions_do_not_reconnect_for_each_pass(healthy: Healthy) -> None:
    store = CassandraFenceStore(NoSecrets(), Limits(sessions=20))
    now = 0.0
    store._sessions._monotonic = lambda: now
    places = [replace(HEALTHY, namespace=f"n{number}", local_datacenter=f"dc{number}") for number in range(22)]
    for _ in range(10):
        for place in places:
            now += 0.25
            assert await store.read(place, "p") == ROW
    assert healthy.opened < 22 + 10 * 5
    await store.close()
