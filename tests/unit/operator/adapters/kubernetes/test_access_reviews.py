"""Who reads the metrics, while others send tokens of their own: what is remembered, and whose turn it is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fencepost_operator.adapters.kubernetes import access_reviews
from fencepost_operator.adapters.kubernetes.access_reviews import BURST, KNOWN_FOR, Reviews
from fencepost_operator.ports import Access

POD = "10.0.0.9"
PROMETHEUS = "10.0.0.1"


@dataclass
class Api:
    """An API server that knows one token, and answers when it is let."""

    asked: list[str] = field(default_factory=list)
    held: asyncio.Event = field(default_factory=asyncio.Event)

    async def review(self, _resource: object, *, body: Mapping[str, Any]) -> dict[str, Any]:
        token = body["spec"].get("token")
        if token is None:
            return {"status": {"allowed": True}}
        self.asked.append(token)
        if token != "prometheus":  # noqa: S105 - no secret
            await self.held.wait()
        return {"status": {"authenticated": token == "prometheus", "user": {"username": "p"}}}  # noqa: S105


def reviewing(api: Any, clock: list[float]) -> Reviews:
    return Reviews(api, now=lambda: clock[0])


async def within(seconds: float, reviewed: Reviews, token: str, source: str) -> Access:
    async with asyncio.timeout(seconds):
        return await reviewed.access(token, source)


async def test_a_pod_that_sends_new_tokens_keeps_prometheus_from_nothing() -> None:
    api = Api()
    found = reviewing(api, [0.0])
    hostile = [asyncio.create_task(found.access(f"junk-{n}", POD)) for n in range(4000)]
    await asyncio.sleep(0)
    assert await within(5, found, "prometheus", PROMETHEUS) is Access.GRANTED
    api.held.set()
    answers = await asyncio.gather(*hostile)
    assert answers.count(Access.LIMITED) >= 4000 - BURST, "it is not kept waiting, nor are its connections"
    assert len(api.asked) <= BURST + 1


async def test_a_token_that_was_granted_needs_no_turn_of_its_source() -> None:
    """As behind a proxy, where a pod and Prometheus have one address."""
    api, clock = Api(), [0.0]
    found = reviewing(api, clock)
    assert await found.access("prometheus", POD) is Access.GRANTED
    clock[0] += KNOWN_FOR + 1
    hostile = [asyncio.create_task(found.access(f"junk-{n}", POD)) for n in range(400)]
    await asyncio.sleep(0)
    assert await within(5, found, "prometheus", POD) is Access.GRANTED
    api.held.set()
    await asyncio.gather(*hostile)


async def test_refused_tokens_displace_no_granted_one() -> None:
    api, clock = Api(), [0.0]
    api.held.set()
    found = reviewing(api, clock)
    await found.access("prometheus", PROMETHEUS)
    for number in range(access_reviews.MOST_KNOWN + 50):
        await found.access(f"junk-{number}", f"10.1.{number // 250}.{number % 250}")
    asked = len(api.asked)
    assert await found.access("prometheus", PROMETHEUS) is Access.GRANTED
    assert len(api.asked) == asked, "it is remembered"


async def test_many_sources_share_some_turns_and_the_memory_is_bounded() -> None:
    api, clock = Api(), [0.0]
    found = reviewing(api, clock)
    hostile = [asyncio.create_task(found.access(f"junk-{n}", f"10.2.{n // 250}.{n % 250}")) for n in range(2000)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(api.asked) == access_reviews.AT_ONCE
    api.held.set()
    await asyncio.gather(*hostile)
    assert len(found._known) <= access_reviews.MOST_KNOWN
    assert len(found._sources) <= access_reviews.MOST_SOURCES


async def test_a_source_may_ask_again_after_a_while() -> None:
    api, clock = Api(), [0.0]
    api.held.set()
    found = reviewing(api, clock)
    answers = [await found.access(f"junk-{n}", POD) for n in range(BURST + 5)]
    assert answers == [Access.UNKNOWN] * BURST + [Access.LIMITED] * 5
    clock[0] += 60
    assert await found.access("prometheus", POD) is Access.GRANTED
