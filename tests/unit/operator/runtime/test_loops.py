"""Controller: one at a time for a pipeline, woken, never ended by an exception."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final

import pytest

from fencepost_operator.adapters.clock import SystemClock
from fencepost_operator.api import ObjectKey
from fencepost_operator.logs import PIPELINE
from fencepost_operator.runtime import controller as module
from fencepost_operator.runtime.controller import Controller
from fencepost_operator.runtime.metrics.registry import PrometheusMetrics
from fencepost_operator.turns import TENANT, Turns
from harness.waiting import eventually_async

PASS_TIMEOUT: Final = 2.0
KEY, OTHER = ObjectKey("n", "a"), ObjectKey("n", "b")


@dataclass
class Reconciler:
    """Notes passes; `answer` makes each one's result, and may raise."""

    answer: Callable[[ObjectKey], float | None] = lambda _key: 60.0
    passes: list[ObjectKey] = field(default_factory=list)
    woken: list[bool] = field(default_factory=list)
    running: set[ObjectKey] = field(default_factory=set)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def reconcile(self, key: ObjectKey, *, woken: bool) -> float | None:
        assert key not in self.running
        assert PIPELINE.get() == str(key)
        self.passes.append(key)
        self.woken.append(woken)
        self.running.add(key)
        try:
            await self.gate.wait()
            return self.answer(key)
        finally:
            self.running.discard(key)


@pytest.fixture
def reconciler() -> Reconciler:
    made = Reconciler()
    made.gate.set()
    return made


@pytest.fixture
async def loops(reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Controller]:
    monkeypatch.setattr(module, "retry_delay", lambda _failures: 0.01)
    made = Controller(
        reconciler.reconcile, metrics=PrometheusMetrics(), clock=SystemClock(), pass_timeout=PASS_TIMEOUT, quiet=0.0
    )
    yield made
    await made.close()
    assert len(made) == 0


async def until(condition: Callable[[], bool]) -> None:
    async def look() -> bool:
        return condition()

    await eventually_async(look, seconds=20, pause=0.005)


async def passes(reconciler: Reconciler, count: int) -> None:
    await until(lambda: len(reconciler.passes) >= count and not reconciler.running)


async def test_an_event_begins_a_loop_and_the_next_one_wakes_it(loops: Controller, reconciler: Reconciler) -> None:
    loops.wake(KEY)
    await passes(reconciler, 1)
    await asyncio.sleep(0.05)
    assert reconciler.passes == [KEY]
    loops.wake(KEY)
    await passes(reconciler, 2)
    loops.wake(OTHER)
    await passes(reconciler, 3)
    assert reconciler.passes == [KEY, KEY, OTHER]
    assert len(loops) == 2


async def test_the_census_wakes_no_loop_that_is_known(loops: Controller, reconciler: Reconciler) -> None:
    loops.wake(KEY)
    await passes(reconciler, 1)
    loops.ensure(KEY)
    loops.ensure(OTHER)
    await passes(reconciler, 2)
    await asyncio.sleep(0.05)
    assert reconciler.passes == [KEY, OTHER]


async def test_events_during_a_pass_are_one_more_pass(loops: Controller, reconciler: Reconciler) -> None:
    reconciler.gate.clear()
    loops.wake(KEY)
    await until(lambda: bool(reconciler.running))
    for _ in range(10):
        loops.wake(KEY)
    reconciler.gate.set()
    await passes(reconciler, 2)
    await asyncio.sleep(0.05)
    assert reconciler.passes == [KEY, KEY]


async def test_a_pass_knows_whether_something_happened_since_the_last_one_began(
    loops: Controller, reconciler: Reconciler
) -> None:
    reconciler.answer = lambda _key: 0.01
    loops.wake(KEY)
    await passes(reconciler, 2)
    reconciler.gate.clear()
    await until(lambda: bool(reconciler.running))
    before = len(reconciler.woken)
    loops.wake(KEY)  # the pass in progress may have looked already
    reconciler.gate.set()
    await passes(reconciler, before + 2)
    assert reconciler.woken[:2] == [True, False]
    assert reconciler.woken[before : before + 2] == [True, False]


async def test_a_pass_that_waits_in_a_queue_is_not_cancelled() -> None:
    """A hundred deletions at once: most of them wait for Helm longer than a pass may take."""
    helm = Turns("a test", limit=1)
    await helm.acquire("other")
    done: list[ObjectKey] = []

    async def reconcile(key: ObjectKey, *, woken: bool) -> float | None:
        assert woken
        async with helm.turn(key.namespace):
            done.append(key)
        return 60.0

    made = Controller(reconcile, metrics=PrometheusMetrics(), clock=SystemClock(), pass_timeout=0.05)
    made.wake(KEY)
    await asyncio.sleep(0.2)
    helm.release("other")
    await asyncio.sleep(0.02)  # less than the pause after a pass that failed
    assert done == [KEY]
    await made.close()


async def test_requests_of_a_pass_count_for_its_namespace(loops: Controller, reconciler: Reconciler) -> None:
    tenants: list[str] = []

    def note(_key: ObjectKey) -> float:
        tenants.append(TENANT.get())
        return 60.0

    reconciler.answer = note
    loops.wake(KEY)
    await passes(reconciler, 1)
    assert tenants == [KEY.namespace]
    assert TENANT.get() == ""


async def test_events_that_never_end_do_not_keep_the_operator_busy(
    reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BURST", 5.0)
    made = Controller(reconciler.reconcile, metrics=PrometheusMetrics(), clock=SystemClock(), quiet=0.0)
    ends = asyncio.get_running_loop().time() + 1.0
    while asyncio.get_running_loop().time() < ends:
        made.wake(KEY)
        await asyncio.sleep(0.002)
    assert 5 <= len(reconciler.passes) <= 7
    await made.close()


async def test_a_namespace_with_many_pipelines_delays_no_other(
    reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BURST_OF_NAMESPACE", 10.0)
    monkeypatch.setattr(module, "_RATE_OF_NAMESPACE", 2.0)  # no turn comes while the loops begin on a busy machine
    made = Controller(reconciler.reconcile, metrics=PrometheusMetrics(), clock=SystemClock())
    for number in range(100):
        made.wake(ObjectKey("greedy", f"p{number}"))
    small = ObjectKey("small", "p")
    made.wake(small)
    await until(lambda: small in reconciler.passes)
    assert reconciler.passes.index(small) <= 11
    await until(lambda: len(reconciler.passes) > 11)  # the others come in their turn
    await made.close()


async def test_a_loop_runs_again_without_an_event(loops: Controller, reconciler: Reconciler) -> None:
    reconciler.answer = lambda _key: 0.01
    loops.wake(KEY)
    await passes(reconciler, 3)


async def test_a_pass_that_did_something_is_followed_at_once(reconciler: Reconciler) -> None:
    made = Controller(
        reconciler.reconcile, metrics=PrometheusMetrics(), clock=SystemClock(), pass_timeout=PASS_TIMEOUT, quiet=3600.0
    )
    reconciler.answer = lambda _key: 0.0 if len(reconciler.passes) < 3 else 60.0
    made.wake(KEY)
    await passes(reconciler, 3)
    made.wake(KEY)
    await asyncio.sleep(0.1)
    assert len(reconciler.passes) == 3
    await made.close()


async def test_a_pass_of_a_busy_operator_answers_more_events_and_a_first_one_is_not_delayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_BUSY", 1e-9)
    monkeypatch.setattr(module, "_LONGEST_QUIET", 3600.0)
    held, made_of = asyncio.Event(), list[ObjectKey]()

    async def reconcile(key: ObjectKey, *, woken: bool) -> float | None:
        del woken
        made_of.append(key)
        if key == OTHER:
            await held.wait()
        return 60.0

    made = Controller(reconcile, metrics=PrometheusMetrics(), clock=SystemClock(), quiet=0.001)
    made.wake(OTHER)
    await until(lambda: OTHER in made_of)
    made.wake(KEY)
    await until(lambda: KEY in made_of)
    made.wake(KEY)
    await asyncio.sleep(0.2)
    third = ObjectKey("n", "c")
    made.wake(third)
    await until(lambda: third in made_of)
    assert made_of == [OTHER, KEY, third]
    await made.close()


async def test_a_tenant_whose_passes_hang_does_not_make_another_ones_events_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Injected: a pass of another namespace that does not end, as where its database does not answer."""
    monkeypatch.setattr(module, "_BUSY", 1e-9)
    monkeypatch.setattr(module, "_LONGEST_QUIET", 3600.0)
    hung, made_of = ObjectKey("other", "a"), list[ObjectKey]()

    async def reconcile(key: ObjectKey, *, woken: bool) -> float | None:
        del woken
        made_of.append(key)
        if key == hung:
            await asyncio.Event().wait()
        return 60.0

    made = Controller(reconcile, metrics=PrometheusMetrics(), clock=SystemClock(), quiet=0.001)
    made.wake(hung)
    await until(lambda: hung in made_of)
    for count in (1, 2, 3):
        made.wake(KEY)
        await until(lambda count=count: made_of.count(KEY) == count)  # type: ignore[misc]
    await made.close()


async def test_a_pipeline_that_is_gone_ends_its_loop_and_may_come_back(
    loops: Controller, reconciler: Reconciler
) -> None:
    reconciler.answer = lambda _key: None
    loops.wake(KEY)
    await passes(reconciler, 1)
    await asyncio.sleep(0.02)
    assert len(loops) == 0
    reconciler.answer = lambda _key: 60.0
    loops.wake(KEY)
    await passes(reconciler, 2)
    assert len(loops) == 1


async def test_glances_do_not_delay_the_pipeline_of_their_namespace_that_has_failed(
    reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred pipelines at rest use up no passes: their namespace has one, and then none for a minute."""
    monkeypatch.setattr(module, "_BURST_OF_NAMESPACE", 1.0)
    monkeypatch.setattr(module, "_RATE_OF_NAMESPACE", 1 / 60)
    resting = {ObjectKey("n", f"rest-{number}") for number in range(100)}
    made = Controller(
        reconciler.reconcile,
        metrics=PrometheusMetrics(),
        clock=SystemClock(),
        is_glance=resting.__contains__,
        quiet=0.0,
    )
    for key in resting:
        made.ensure(key)
    await passes(reconciler, 100)
    made.wake(KEY)
    await passes(reconciler, 101)
    made.wake(next(iter(resting)))
    await asyncio.sleep(0.05)
    assert len(reconciler.passes) == 101, "a woken one takes its share, which is used up"
    await made.close()


async def test_a_glance_waits_for_the_pass_over_a_pipeline_that_has_failed(reconciler: Reconciler) -> None:
    """Each glance that runs beside it takes the only core."""
    resting = {ObjectKey("others", f"rest-{number}") for number in range(20)}
    made = Controller(
        reconciler.reconcile,
        metrics=PrometheusMetrics(),
        clock=SystemClock(),
        is_glance=resting.__contains__,
        quiet=0.0,
    )
    reconciler.gate.clear()
    made.wake(KEY)
    await until(lambda: KEY in reconciler.running)
    for key in resting:
        made.ensure(key)
    await asyncio.sleep(0.3)
    assert reconciler.passes == [KEY]
    woken = next(iter(resting))
    made.wake(woken)
    await until(lambda: woken in reconciler.running)
    assert reconciler.passes == [KEY, woken], "it is more than a glance now"
    reconciler.gate.set()
    await passes(reconciler, 21)
    await made.close()


async def test_a_glance_does_not_wait_for_a_pass_that_hangs(
    reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: a pass over a pipeline of another tenant that does not end."""
    monkeypatch.setattr(module, "_YIELDS", 0.1)
    monkeypatch.setattr(module, "_YIELDS_FOR", 0.02)
    made = Controller(
        reconciler.reconcile,
        metrics=PrometheusMetrics(),
        clock=SystemClock(),
        is_glance=lambda key: key == OTHER,
        quiet=0.0,
    )
    reconciler.gate.clear()
    made.wake(KEY)
    await until(lambda: KEY in reconciler.running)
    made.ensure(OTHER)
    await until(lambda: OTHER in reconciler.running)
    assert reconciler.woken == [True, False]
    await made.close()


class Harmful(BaseException):
    """What a library may raise past `except Exception`."""


@pytest.mark.parametrize("failure", [RuntimeError("bug"), Harmful("worse"), asyncio.CancelledError()])
async def test_no_exception_ends_a_loop(
    loops: Controller, reconciler: Reconciler, failure: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_key: ObjectKey) -> float | None:
        if len(reconciler.passes) < 3:
            raise failure
        return 60.0

    reconciler.answer = fail
    loops.wake(KEY)
    await passes(reconciler, 3)
    assert len(loops) == 1
    assert [record.message.startswith("the pass failed") for record in caplog.records] == [True, True]


async def test_a_pass_that_hangs_is_given_up(loops: Controller, reconciler: Reconciler) -> None:
    reconciler.gate.clear()
    loops.wake(KEY)
    await until(lambda: len(reconciler.passes) >= 2)


async def test_passes_that_hang_or_fail_beat_and_do_not_succeed(
    reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "retry_delay", lambda _failures: 0.01)
    metrics, begun = PrometheusMetrics(), time.time()
    made = Controller(reconciler.reconcile, metrics=metrics, clock=SystemClock(), pass_timeout=0.05, quiet=0.0)
    reconciler.gate.clear()
    made.wake(KEY)
    await until(lambda: len(reconciler.passes) >= 1)
    first = age(metrics, "last_success", begun)
    await until(lambda: len(reconciler.passes) >= 4)
    await made.close()
    assert age(metrics, "last_success", begun) == first
    assert age(metrics, "heartbeat", begun) > first


def age(metrics: PrometheusMetrics, name: str, begun: float) -> float:
    """When it was set, in seconds after the test began."""
    (found,) = re.findall(
        rf"^fencepost_pipeline_{name}_timestamp_seconds{{.*}} (\S+)$", metrics.exposition().decode(), flags=re.MULTILINE
    )
    return float(found) - begun


async def test_closing_ends_passes_where_they_are(reconciler: Reconciler) -> None:
    made = Controller(reconciler.reconcile, metrics=PrometheusMetrics(), clock=SystemClock())
    reconciler.gate.clear()
    made.wake(KEY)
    await until(lambda: bool(reconciler.running))
    await made.close()
    assert not reconciler.running


async def test_loops_of_another_replicas_shard_are_neither_begun_nor_woken(reconciler: Reconciler) -> None:
    owned = {KEY}
    made = Controller(
        reconciler.reconcile, metrics=PrometheusMetrics(), clock=SystemClock(), quiet=0.0, owns=owned.__contains__
    )
    for key in (KEY, OTHER):
        made.wake(key)
        made.ensure(key)
    await passes(reconciler, 1)
    assert set(reconciler.passes) == {KEY}
    owned.clear()
    assert await made.end(lambda key: key == KEY) == [KEY]
    made.wake(KEY)
    assert len(made) == 0
    assert not reconciler.running


async def test_loops_of_other_pipelines_continue_when_some_end(reconciler: Reconciler, loops: Controller) -> None:
    reconciler.gate.clear()
    for key in (KEY, OTHER):
        loops.wake(key)
    await until(lambda: reconciler.running == {KEY, OTHER})
    assert await loops.end(lambda key: key == KEY) == [KEY]
    assert reconciler.running == {OTHER}
    reconciler.gate.set()
