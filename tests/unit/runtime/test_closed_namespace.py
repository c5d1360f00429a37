"""One of several namespaces is closed to the operator: the watches of the others go on, and it is asked until it opens.

kopf's own watches, on an API server of the test that knows lists and watches.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from fencepost_operator import app
from fencepost_operator.adapters.clock import SystemClock
from fencepost_operator.api import GROUP, PLURAL, REWIND_PLURAL, VERSION, ObjectKey
from fencepost_operator.errors import Denied
from fencepost_operator.runtime import watches
from fencepost_operator.runtime.controller import Controller
from fencepost_operator.runtime.metrics import PrometheusMetrics
from fencepost_operator.settings import Settings

OPEN, CLOSED = ObjectKey("bank", "orders"), ObjectKey("shop", "orders")
KINDS = {
    ("", "v1"): ("pods", "namespaces"),
    ("apps", "v1"): ("statefulsets",),
    ("batch", "v1"): ("jobs",),
    (GROUP, VERSION): (PLURAL, REWIND_PLURAL),
    ("apiextensions.k8s.io", "v1"): ("customresourcedefinitions",),
}
DISCOVERY: dict[str, Any] = {
    "/api": {"versions": ["v1"]},
    "/apis": {
        "groups": [
            {"name": name, "versions": [{"version": version}], "preferredVersion": {"version": version}}
            for name, version in KINDS
            if name
        ]
    },
    **{
        f"/apis/{group}/{version}" if group else f"/api/{version}": {
            "resources": [
                {"name": name, "kind": name, "singularName": name, "namespaced": True, "verbs": ["list", "watch"]}
                for name in names
            ]
        }
        for (group, version), names in KINDS.items()
    },
}
MORE_THAN_KOPF_TRIES = 40
"""Requests for each kind; by default kopf gives up, and ends the operator, after nine."""


async def _never(_key: ObjectKey) -> float | None:
    raise AssertionError("no loop runs here")


class Woken(Controller):
    """Notes whose loop was woken or begun."""

    def __init__(self) -> None:
        super().__init__(_never, metrics=PrometheusMetrics(), clock=SystemClock())
        self.keys: set[ObjectKey] = set()

    def wake(self, key: ObjectKey) -> None:
        self.keys.add(key)

    def ensure(self, key: ObjectKey) -> None:
        self.keys.add(key)


class Server:
    """An API server with one pipeline in each namespace; `closed` namespaces are forbidden."""

    def __init__(self) -> None:
        self.closed = {CLOSED.namespace}
        self.refused: Counter[str] = Counter()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path in DISCOVERY:
            return web.json_response(DISCOVERY[request.path])
        namespace, plural = request.path.split("/")[-2:]
        if namespace in self.closed:
            self.refused[plural] += 1
            return web.json_response({"kind": "Status", "code": 403, "message": "forbidden"}, status=403)
        if "watch" in request.query:
            return await _silence(request)
        items = [_pipeline(namespace)] if plural == PLURAL else []
        return web.json_response({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items})


def _pipeline(namespace: str) -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "name": "orders", "uid": f"{namespace}-uid", "resourceVersion": "1"}}


async def _silence(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await asyncio.sleep(600)
    return response


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    made, application = Server(), web.Application()
    application.router.add_get("/{path:.*}", made.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}}],
        "users": [{"name": "u", "user": {}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    yield made
    await runner.cleanup()


async def test_a_closed_namespace_ends_no_watch_and_is_watched_once_it_opens(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches.Backoffs, "first", 0.01)
    monkeypatch.setattr(watches.Backoffs, "longest", 0.01)
    loops = Woken()
    namespaces = (CLOSED.namespace, OPEN.namespace)
    watching = asyncio.create_task(
        watches.watch(loops, note_pod=lambda _pod: None, note_part=lambda _key: None, namespaces=namespaces)
    )

    async def until_refused() -> None:
        while len(server.refused) < 5 or min(server.refused.values()) < MORE_THAN_KOPF_TRIES:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def until_woken(key: ObjectKey) -> None:
        while key not in loops.keys:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def ended() -> None:
        await asyncio.shield(watching)
        raise AssertionError("the watches ended")

    async def expect(what: Any) -> None:
        first, _ = await asyncio.wait(
            {asyncio.ensure_future(what), asyncio.ensure_future(ended())},
            timeout=60,
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert first
        for task in first:
            task.result()

    try:
        await expect(until_woken(OPEN))
        await expect(until_refused())
        assert loops.keys == {OPEN}
        server.closed.clear()
        await expect(until_woken(CLOSED))
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


def test_a_namespace_that_stays_closed_is_asked_once_per_minute() -> None:
    delays = [delay for delay, _ in zip(watches.Backoffs(), range(20), strict=False)]
    assert delays[:4] == [1, 2, 4, 8]
    assert set(delays[6:]) == {60}


async def test_what_is_left_of_pipelines_is_found_where_the_pipelines_cannot_be_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def denied(_namespaces: Sequence[str]) -> Sequence[ObjectKey]:
        raise Denied("cannot list streamingpipelines", remedy="restore the RoleBinding")

    async def left(_namespaces: Sequence[str]) -> Sequence[ObjectKey]:
        return [OPEN]

    monkeypatch.setattr(app, "_RELIST_INTERVAL", 0.001)
    loops = Woken()
    async with app._relist((denied, left), loops, Settings()):
        async with asyncio.timeout(timedelta(seconds=10).total_seconds()):
            while not loops.keys:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
    assert loops.keys == {OPEN}
