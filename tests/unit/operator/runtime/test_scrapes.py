"""Scrapes: any pod may ask for the metrics, as often and as slowly as it wants."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import aiohttp
import pytest

from fencepost_operator.api import ObjectKey, Status
from fencepost_operator.observation import Backlog
from fencepost_operator.runtime.metrics.registry import PrometheusMetrics
from fencepost_operator.runtime.metrics.scrapes import KEPT, Scrapes

KEY = ObjectKey("n", "a")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Held(PrometheusMetrics):
    """Metrics whose rendering waits until it is released, and is counted."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.may_end, self.renderings = threading.Event(), threading.Event(), 0

    def _of_pipelines(self) -> bytes:
        self.renderings += 1
        self.begun.set()
        assert self.may_end.wait(timeout=20)
        return super()._of_pipelines()


@pytest.fixture
async def held() -> AsyncIterator[Held]:
    metrics = Held()
    yield metrics
    metrics.may_end.set()


async def test_the_loop_works_on_while_metrics_are_rendered(held: Held) -> None:
    scrape = asyncio.create_task(Scrapes(held).text())
    assert await asyncio.to_thread(held.begun.wait, 20)
    assert not scrape.done()
    held.heartbeat(KEY, NOW)
    held.may_end.set()
    assert b"fencepost_pipeline_heartbeat_timestamp_seconds" in await scrape


async def test_however_many_ask_the_text_is_rendered_once_in_a_while(held: Held) -> None:
    times = [0.0]
    scrapes = Scrapes(held, monotonic=lambda: times[0])
    asked = [asyncio.create_task(scrapes.text()) for _ in range(50)]
    assert await asyncio.to_thread(held.begun.wait, 20)
    held.may_end.set()
    assert len(set(await asyncio.gather(*asked))) == 1
    assert held.renderings == 1
    times[0] += KEPT
    await scrapes.text()
    assert held.renderings == 2


async def test_metrics_are_served_as_prometheus_reads_them(unused_tcp_port: int) -> None:
    metrics = PrometheusMetrics()
    metrics.reconciled(KEY, outcome="steady", seconds=0.1)
    metrics.observed(KEY, Status(), {f"{'t' * 200}/{number}": number for number in range(4000)}, None)
    url = f"http://127.0.0.1:{unused_tcp_port}/metrics"
    async with Scrapes(metrics).served(unused_tcp_port), aiohttp.ClientSession() as session, session.get(url) as answer:
        text = await answer.text()
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    assert 'fencepost_reconcile_total{outcome="steady"} 1.0' in text
    assert text.count("fencepost_pipeline_committed_offset{") == 4000


async def test_a_client_that_reads_nothing_is_given_up(unused_tcp_port: int) -> None:
    metrics = PrometheusMetrics()
    for number in range(8):
        offsets = {f"{'t' * 200}/{partition}": partition for partition in range(4000)}
        metrics.observed(ObjectKey(f"n{number}", "a"), Status(), offsets, None)
    async with Scrapes(metrics, patience=0.2).served(unused_tcp_port):
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.setblocking(False)
        await asyncio.get_running_loop().sock_connect(slow, ("127.0.0.1", unused_tcp_port))
        reader, writer = await asyncio.open_connection(sock=slow, limit=1024)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        await asyncio.sleep(1.5)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(len(metrics.exposition()))
        writer.close()


def test_the_pipelines_of_a_namespace_share_a_budget_of_series() -> None:
    """A hundred pipelines of one tenant made 124 MB of each scrape."""
    metrics, offsets = PrometheusMetrics(most_series=100), {f"t/{number}": 1 for number in range(40)}
    backlog = Backlog(lags=offsets)
    for number in range(3):
        metrics.observed(ObjectKey("evil", f"p{number}"), Status(), offsets, backlog)
    metrics.observed(KEY, Status(), offsets, backlog)
    assert count(metrics, 'namespace="evil"') == 100
    assert count(metrics, 'namespace="n"') == 80, "a neighbour keeps its own"
    assert dropped(metrics) == ['fencepost_series_dropped{namespace="evil"} 140.0']
    metrics.forget(ObjectKey("evil", "p0"))
    for number in (1, 2):
        metrics.observed(ObjectKey("evil", f"p{number}"), Status(), offsets, backlog)
    assert count(metrics, 'namespace="evil"') == 100
    assert dropped(metrics) == ['fencepost_series_dropped{namespace="evil"} 60.0']
    metrics.forget(ObjectKey("evil", "p2"))
    metrics.observed(ObjectKey("evil", "p1"), Status(), offsets, backlog)
    assert dropped(metrics) == [], "no series while nothing is dropped"


def count(metrics: PrometheusMetrics, label: str) -> int:
    lines = metrics.exposition().decode().splitlines()
    return sum(label in line for line in lines if line.startswith(("fencepost_pipeline_partition_lag{", OFFSET)))


OFFSET = "fencepost_pipeline_committed_offset{"


def dropped(metrics: PrometheusMetrics) -> list[str]:
    return [line for line in metrics.exposition().decode().splitlines() if line.startswith("fencepost_series_dropped{")]
