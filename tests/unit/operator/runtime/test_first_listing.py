"""What kopf lists before it watches, of all namespaces and at once for each kind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fencepost_operator.api import ObjectKey
from fencepost_operator.runtime import watches
from unit.operator.runtime.watched import Server
from unit.operator.runtime.woken_loops import Woken

LARGEST = 1536 * 1024
"""Bytes of an object at most: etcd's."""
MEMORY = 64 * 1024 * 1024
"""Bytes of one answer that the operator's memory has room for."""


async def test_no_answer_holds_more_objects_than_memory_has_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kopf read all objects of a kind in one answer: those of one tenant with large annotations too."""
    server, loops = Server(pipelines=tuple(f"p{number}" for number in range(100))), Woken()
    async with server.served(tmp_path, monkeypatch):
        watching = asyncio.create_task(
            watches.watch(loops, loops, note_pod=lambda *_: None, note_part=lambda *_: None, namespaces=("bank",))
        )
        try:
            async with asyncio.timeout(60):
                while len(loops.keys) < len(server.pipelines) or len(server.largest) < 5:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
    assert loops.keys == {ObjectKey("bank", name) for name in server.pipelines}
    assert max(server.largest.values()) * LARGEST <= MEMORY, server.largest
