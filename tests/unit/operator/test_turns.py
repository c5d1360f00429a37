"""Turns: one tenant delays another by one turn at most, and a wait in a queue is not an outage."""

from __future__ import annotations

import asyncio

import pytest

from fakes.clock import Clock
from fencepost_operator.errors import Busy
from fencepost_operator.turns import Turns, queued, time_limit


async def line_up(turns: Turns, tenants: list[str], order: list[str]) -> list[asyncio.Task[None]]:
    """Let tasks ask for a turn one after another; each notes its tenant when it has one, and gives it back."""

    async def work(tenant: str) -> None:
        async with turns.turn(tenant):
            order.append(tenant)

    tasks = [asyncio.create_task(work(tenant)) for tenant in tenants]
    await asyncio.sleep(0)
    return tasks


async def test_a_tenant_with_a_hundred_requests_delays_another_by_one_turn() -> None:
    turns, order = Turns("a test", limit=1), list[str]()
    async with turns.turn("first"):
        tasks = await line_up(turns, ["greedy"] * 100 + ["small"], order)
    await asyncio.gather(*tasks)
    assert order.index("small") <= 1
    assert len(order) == 101


async def test_turns_go_round_among_tenants() -> None:
    turns, order = Turns("a test", limit=1), list[str]()
    async with turns.turn("first"):
        tasks = await line_up(turns, ["a"] * 3 + ["b"] * 3 + ["c"] * 3, order)
    await asyncio.gather(*tasks)
    assert order == ["a", "b", "c"] * 3


async def test_a_tenant_that_comes_back_keeps_its_place() -> None:
    """Who leaves the queue to observe a run must not lose to those who had a turn meanwhile."""
    turns, order = Turns("a test", limit=1), list[str]()
    await asyncio.gather(*await line_up(turns, ["a", "b"], order))
    async with turns.turn("first"):
        tasks = await line_up(turns, ["b", "a"], order)
    await asyncio.gather(*tasks)
    assert order == ["a", "b", "a", "b"]


async def test_a_free_turn_goes_to_who_has_fewest() -> None:
    turns, order = Turns("a test", limit=2), list[str]()
    await turns.acquire("greedy")
    await turns.acquire("other")
    tasks = await line_up(turns, ["greedy", "small"], order)
    turns.release("other")
    await asyncio.gather(*tasks)
    assert order == ["small", "greedy"]
    turns.release("greedy")


async def test_a_tenant_has_its_share_at_most() -> None:
    turns, order = Turns("a test", limit=4, per_tenant=2), list[str]()
    await turns.acquire("greedy")
    await turns.acquire("greedy")
    tasks = await line_up(turns, ["greedy", "small"], order)
    assert order == ["small"]
    turns.release("greedy")
    await asyncio.gather(*tasks)
    assert order == ["small", "greedy"]


async def test_a_bucket_of_tokens_bounds_a_tenant_alone() -> None:
    clock = Clock()
    turns, order = Turns("a test", rate=100.0, burst=3, monotonic=clock.monotonic), list[str]()
    tasks = await line_up(turns, ["greedy"] * 5 + ["small"], order)
    assert order == ["greedy"] * 3 + ["small"]
    clock.sleep(0.02)
    await asyncio.gather(*tasks)
    assert order == ["greedy"] * 3 + ["small"] + ["greedy"] * 2


async def test_a_bucket_fills_no_further_than_its_burst() -> None:
    clock = Clock()
    turns, order = Turns("a test", rate=1.0, burst=2, monotonic=clock.monotonic), list[str]()
    await asyncio.gather(*await line_up(turns, ["a"] * 2, order))
    clock.sleep(1000)
    tasks = await line_up(turns, ["a"] * 3, order)
    assert len(order) == 4
    tasks[-1].cancel()


async def test_a_wait_that_is_cancelled_keeps_no_turn() -> None:
    turns, order = Turns("a test", limit=1), list[str]()
    async with turns.turn("first"):
        (waiting,) = await line_up(turns, ["a"], order)
        waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.gather(*await line_up(turns, ["b"], order))
    assert order == ["b"]


async def test_a_turn_that_comes_while_its_wait_is_cancelled_is_passed_on() -> None:
    turns, order = Turns("a test", limit=1), list[str]()
    await turns.acquire("first")
    lost, kept = await line_up(turns, ["a", "b"], order)
    turns.release("first")
    lost.cancel()
    await asyncio.gather(lost, kept, return_exceptions=True)
    assert order == ["b"]


async def test_too_long_a_wait_names_the_operators_own_queue() -> None:
    turns = Turns("the printer", limit=1, patience=0.01)
    async with turns.turn("first"):
        with pytest.raises(Busy, match="no turn at the printer within"):
            await turns.acquire("a")
    async with turns.turn("a"):
        pass


async def test_time_in_a_queue_does_not_count() -> None:
    turns = Turns("a test", limit=1)
    await turns.acquire("first")
    asyncio.get_running_loop().call_later(0.1, turns.release, "first")
    async with time_limit(0.05), turns.turn("a"):
        pass


async def test_time_outside_of_the_queue_counts() -> None:
    async def wait_and_work() -> None:
        async with time_limit(0.05):
            with queued():
                await asyncio.sleep(0.1)
            await asyncio.sleep(10)

    with pytest.raises(TimeoutError):
        await wait_and_work()


async def test_a_queue_stops_the_limits_around_each_other_and_around_parallel_work() -> None:
    async def wait() -> None:
        with queued():
            await asyncio.sleep(0.1)

    async with time_limit(0.05), time_limit(0.04):
        await asyncio.gather(wait(), wait())


async def test_work_that_outlives_its_limit_stops_no_clock() -> None:
    async def wait() -> None:
        await asyncio.sleep(0.02)
        with queued():
            await asyncio.sleep(0)

    async with time_limit(0.01):
        task = asyncio.create_task(wait())
    await task
