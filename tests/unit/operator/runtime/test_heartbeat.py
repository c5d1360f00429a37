"""The heartbeat, on a real web server: what is called while all is well, while it is not, and by whom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from fakes.web_server import serving
from fencepost_operator.api import ObjectKey
from fencepost_operator.errors import Rejected
from fencepost_operator.runtime.heartbeat import Heartbeat, Troubles


@dataclass
class Switch:
    """A dead man's switch."""

    url: str = ""
    status: int = 200
    calls: list[tuple[str, str, str]] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        self.calls.append((request.method, request.path, await request.text()))
        return web.Response(status=self.status, headers={"Location": "/elsewhere"})


@pytest.fixture
async def switch() -> AsyncIterator[Switch]:
    found = Switch()
    async with serving(found.take) as url:
        found.url = f"{url}/ping/uuid"
        yield found


@dataclass
class Operator:
    """What the heartbeat looks at."""

    url: str
    leads: bool = True
    troubles: Troubles = field(default_factory=Troubles)
    elsewhere: tuple[str, ...] = ()
    outcomes: list[str] = field(default_factory=list)

    async def address(self) -> str:
        if not self.url:
            raise Rejected("Secret fencepost-system/switch does not exist")
        return self.url

    async def others(self) -> tuple[str, ...]:
        return self.elsewhere

    async def beats(self, count: int = 1) -> list[str]:
        """Return the outcomes of so many beats."""
        enough = asyncio.Event()

        def note(outcome: str) -> None:
            self.outcomes.append(outcome)
            if len(self.outcomes) >= count:
                enough.set()

        heart = Heartbeat(
            address=self.address,
            troubles=lambda: self.troubles,
            elsewhere=self.others,
            is_leading=lambda: self.leads,
            beaten=note,
            interval=0.01,
        )
        task = asyncio.create_task(heart.run())
        try:
            async with asyncio.timeout(20):
                await enough.wait()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return self.outcomes[:count]


async def test_it_beats_while_all_is_well(switch: Switch) -> None:
    assert await Operator(f"  {switch.url}/\n").beats(2) == ["delivered", "delivered"]
    assert switch.calls[:2] == [("GET", "/ping/uuid", "")] * 2


async def test_it_says_why_it_does_not(switch: Switch) -> None:
    stuck = {ObjectKey("shop", f"orders-{n}"): 721.0 for n in range(30)}
    assert await Operator(switch.url, troubles=Troubles(stuck=stuck)).beats() == ["delivered_failure"]
    method, path, body = switch.calls[0]
    assert (method, path) == ("POST", "/ping/uuid/fail")
    assert body.splitlines()[0] == "the loop of shop/orders-0 began no pass for 721 s"
    assert len(body.splitlines()) == 11


@pytest.mark.parametrize(
    ("troubles", "said"),
    [
        (Troubles(failing={ObjectKey("shop", "orders"): 301.0}), "no pass over shop/orders succeeded for 301 s"),
        (Troubles(undelivered=301.0), "a page has waited for 301 s, and none of the operator's receivers has it"),
    ],
    ids=["failing passes", "a page that no receiver has"],
)
async def test_it_says_what_no_page_can_say(switch: Switch, troubles: Troubles, said: str) -> None:
    assert await Operator(switch.url, troubles=troubles).beats() == ["delivered_failure"]
    _, path, body = switch.calls[0]
    assert path == "/ping/uuid/fail"
    assert body.startswith(said)


async def test_it_says_what_keeps_the_replicas_of_other_shards_from_their_work(switch: Switch) -> None:
    line = "the loop of shop/returns began no pass for 721 s"
    assert await Operator(switch.url, elsewhere=(line,)).beats() == ["delivered_failure"]
    assert switch.calls[0] == ("POST", "/ping/uuid/fail", line)


async def test_a_page_that_has_just_begun_to_wait_is_not_a_failure(switch: Switch) -> None:
    assert await Operator(switch.url, troubles=Troubles(undelivered=299.0)).beats() == ["delivered"]


async def test_a_replica_that_waits_says_nothing(switch: Switch) -> None:
    operator = Operator(switch.url, leads=False)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await operator.beats()
    assert not switch.calls


@pytest.mark.parametrize("status", [302, 404, 500])
async def test_an_answer_that_is_none_is_counted(switch: Switch, status: int) -> None:
    switch.status = status
    assert await Operator(switch.url).beats(2) == ["failed", "failed"], "and it continues"
    assert {path for _, path, _ in switch.calls} == {"/ping/uuid"}, "no redirect is followed"


@pytest.mark.parametrize("url", ["", "no URL", "file:///etc/passwd", "http://127.0.0.1:1/x"])
async def test_what_cannot_be_called_is_counted(url: str) -> None:
    assert await Operator(url).beats() == ["failed"]
