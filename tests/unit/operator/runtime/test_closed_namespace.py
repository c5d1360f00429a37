"""One of several namespaces is closed to the operator: the others are watched, and it is tried until it opens.

kopf's own watches, on an API server of the test that knows lists and watches.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fencepost_operator.api import ObjectKey
from fencepost_operator.runtime import watches
from unit.operator.runtime.watched import Server
from unit.operator.runtime.woken_loops import Woken

OPEN, CLOSED = ObjectKey("bank", "orders"), ObjectKey("shop", "orders")
MORE_THAN_KOPF_TRIES = 40
"""Requests for each kind; by default kopf gives up, and ends the operator, after nine."""


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    made = Server(closed={CLOSED.namespace})
    async with made.served(tmp_path, monkeypatch):
        yield made


async def test_a_closed_namespace_ends_no_watch_and_is_watched_once_it_opens(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches.Backoffs, "first", 0.01)
    monkeypatch.setattr(watches.Backoffs, "longest", 0.01)
    loops = Woken()
    namespaces = (CLOSED.namespace, OPEN.namespace)
    watching = asyncio.create_task(
        watches.watch(loops, loops, note_pod=lambda *_: None, note_part=lambda *_: None, namespaces=namespaces)
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
