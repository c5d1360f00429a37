"""What the kubelet sees."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from fakes.clock import Clock
from fencepost_operator.api import ObjectKey
from fencepost_operator.runtime.metrics.registry import PrometheusMetrics
from fencepost_operator.runtime.probes import Probes

KEY = ObjectKey("n", "a")


class Place:
    def __init__(self) -> None:
        self.clock = Clock()
        self.metrics = PrometheusMetrics(monotonic=self.clock.monotonic)
        self.unready: str | None = "the API server"
        self.probes = Probes(self.metrics, unready=lambda: self.unready, stuck_after=60.0)
        self.port = 0

    async def get(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self.port}{path}") as answer:
            return answer.status, await answer.text()


@pytest.fixture
async def place(unused_tcp_port: int) -> AsyncIterator[Place]:
    made = Place()
    made.port = unused_tcp_port
    async with made.probes.served(unused_tcp_port):
        yield made


async def test_health_fails_while_a_loop_is_stuck(place: Place) -> None:
    assert await place.get("/healthz") == (200, "ok\n")
    place.metrics.heartbeat(KEY, place.clock.now())
    place.clock.sleep(59)
    assert (await place.get("/healthz"))[0] == 200
    place.clock.sleep(2)
    assert await place.get("/healthz") == (503, "the loop of n/a began no pass for 61 s\n")
    place.metrics.forget(KEY)
    assert (await place.get("/healthz"))[0] == 200


async def test_ready_once_pipelines_are_watched(place: Place) -> None:
    assert await place.get("/readyz") == (503, "the API server\n")
    place.unready = None
    assert await place.get("/readyz") == (200, "ok\n")


async def test_no_metrics_are_served_beside_the_probes(place: Place) -> None:
    assert (await place.get("/metrics"))[0] == 404
