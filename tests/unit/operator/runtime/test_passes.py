"""When the operator counts as failing, and when what fails is one tenant's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.clock import Clock
from fakes.gate import Gate
from fakes.manifests import KEY, body
from fakes.ports import FakeClock, ports_of
from fakes.stage import POLICY
from fakes.world import World
from fencepost_operator.api import ObjectKey
from fencepost_operator.errors import Rejected
from fencepost_operator.runtime.metrics.passes import FAILING_AFTER, Passes
from fencepost_operator.runtime.metrics.registry import PrometheusMetrics
from fencepost_operator.runtime.passes.reconciler import Reconciler

A, B, C = ObjectKey("a", "x"), ObjectKey("b", "x"), ObjectKey("a", "y")
LATE = FAILING_AFTER + 1


def passes(*keys: ObjectKey) -> tuple[Passes, Clock]:
    clock = Clock()
    found = Passes(clock.monotonic)
    for key in keys:
        found.began(key)
    return found, clock


def test_nothing_fails_where_there_is_nothing() -> None:
    found, clock = passes()
    clock.sleep(LATE)
    assert not found.failing()


def test_no_pass_over_any_pipeline_succeeds() -> None:
    found, clock = passes(A, B)
    clock.sleep(FAILING_AFTER)
    assert not found.failing()
    clock.sleep(1)
    assert found.failing().keys() == {A, B}
    found.recorded()
    assert found.failing().keys() == {A, B}, "a status was written, and what came after it failed"
    found.succeeded(A)
    assert not found.failing()


def test_a_new_pipeline_is_not_a_success() -> None:
    found, clock = passes(A)
    clock.sleep(LATE)
    found.began(B)
    assert found.failing().keys() == {A}


def test_one_of_several_tenants_fails() -> None:
    found, clock = passes(A, C, B)
    clock.sleep(LATE)
    found.succeeded(B)
    assert not found.failing(), "two pipelines of one namespace"


def test_nothing_is_recorded_and_only_passes_without_news_succeed() -> None:
    idle = ObjectKey("c", "idle")
    found, clock = passes(A, B, idle)
    clock.sleep(LATE)
    found.succeeded(idle)
    assert found.failing().keys() == {A, B}
    found.recorded()
    assert not found.failing(), "a status was written: the pipelines have causes of their own"


def test_the_only_namespace_records_nothing() -> None:
    found, clock = passes(A, C)
    clock.sleep(LATE)
    found.succeeded(C)
    assert found.failing().keys() == {A}


def test_what_is_gone_does_not_fail() -> None:
    found, clock = passes(A, B)
    clock.sleep(LATE)
    found.succeeded(B)
    found.forget(A)
    found.forget(B)
    assert not found.failing()
    assert not found.stuck(bound=1.0)


@pytest.mark.parametrize("refuses", [True, False])
async def test_an_api_server_that_refuses_each_status(*, refuses: bool) -> None:
    """Fault: an admission webhook refuses the status. The passes continue, so that no loop is stuck."""

    def refuse(_: int, name: str) -> None:
        if refuses and name == "write_status":
            raise Rejected("admission webhook denied the request")

    world, gate = World(), Gate()
    metrics = PrometheusMetrics(monotonic=FakeClock(world).monotonic)
    gate.before = refuse
    world.apply(body())
    reconciler = Reconciler(ports=replace(ports_of(world, gate), metrics=metrics), config=POLICY)
    refused = 0
    for _ in range(400):
        metrics.heartbeat(KEY, world.now)
        try:
            await reconciler.reconcile(KEY)
        except Rejected:
            refused += 1
        world.advance(1.0)
    assert bool(refused) is refuses
    assert bool(metrics.passes.failing()) is refuses
    assert not metrics.passes.stuck(bound=60.0)
