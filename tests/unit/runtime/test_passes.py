"""When the operator counts as failing, and when what fails is one tenant's."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from fakes.gate import Gate
from fakes.manifests import KEY, body
from fakes.ports import ports_of
from fakes.stage import POLICY
from fakes.world import World
from fencepost_operator.api import ObjectKey
from fencepost_operator.errors import Rejected
from fencepost_operator.runtime.metrics.passes import FAILING_AFTER, Passes
from fencepost_operator.runtime.metrics.registry import PrometheusMetrics
from fencepost_operator.runtime.reconciler import Reconciler
from unit.operator.scenes import NOW

A, B, C = ObjectKey("a", "x"), ObjectKey("b", "x"), ObjectKey("a", "y")
LATE = NOW + timedelta(seconds=FAILING_AFTER + 1)


def passes(*keys: ObjectKey) -> Passes:
    found = Passes()
    for key in keys:
        found.began(key, NOW)
    return found


def test_nothing_fails_where_there_is_nothing() -> None:
    assert not passes().failing(LATE)


def test_no_pass_over_any_pipeline_succeeds() -> None:
    found = passes(A, B)
    assert not found.failing(NOW + timedelta(seconds=FAILING_AFTER))
    assert found.failing(LATE).keys() == {A, B}
    found.recorded(LATE)
    assert found.failing(LATE).keys() == {A, B}, "a status was written, and what came after it failed"
    found.succeeded(A, LATE)
    assert not found.failing(LATE)


def test_a_new_pipeline_is_not_a_success() -> None:
    found = passes(A)
    found.began(B, LATE)
    assert found.failing(LATE).keys() == {A}


def test_one_of_several_tenants_fails() -> None:
    found = passes(A, C, B)
    found.succeeded(B, LATE)
    assert not found.failing(LATE), "two pipelines of one namespace"


def test_nothing_is_recorded_and_only_passes_without_news_succeed() -> None:
    idle = ObjectKey("c", "idle")
    found = passes(A, B, idle)
    found.succeeded(idle, LATE)
    assert found.failing(LATE).keys() == {A, B}
    found.recorded(LATE)
    assert not found.failing(LATE), "a status was written: the pipelines have causes of their own"


def test_the_only_namespace_records_nothing() -> None:
    found = passes(A, C)
    found.succeeded(C, LATE)
    assert found.failing(LATE).keys() == {A}


def test_what_is_gone_does_not_fail() -> None:
    found = passes(A, B)
    found.succeeded(B, LATE)
    found.forget(A)
    found.forget(B)
    assert not found.failing(LATE)
    assert not found.stuck(LATE, bound=1.0)


@pytest.mark.parametrize("refuses", [True, False])
async def test_an_api_server_that_refuses_each_status(*, refuses: bool) -> None:
    """Fault: an admission webhook refuses the status. The passes continue, so that no loop is stuck."""

    def refuse(_: int, name: str) -> None:
        if refuses and name == "write_status":
            raise Rejected("admission webhook denied the request")

    world, gate, metrics = World(), Gate(), PrometheusMetrics()
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
    assert bool(metrics.passes.failing(world.now)) is refuses
    assert not metrics.passes.stuck(world.now, bound=60.0)
