"""When a pass asks for the next one."""

from __future__ import annotations

from datetime import timedelta

from fakes.manifests import KEY, body
from fakes.ports import ports_of
from fakes.stage import POLICY, Stage
from fencepost_operator.api import Policy
from fencepost_operator.backoff import JITTER
from fencepost_operator.reconciler import Reconciler


async def running() -> Stage:
    stage = Stage()
    stage.world.apply(body())
    await stage.running()
    return stage


async def test_a_pipeline_is_looked_at_sooner_while_records_flow() -> None:
    stage = await running()
    for _ in range(10):
        stage.world.advance(POLICY.resync)
        before = stage.pipeline.status
        again = await stage.turn()
        assert stage.pipeline.status != before
        assert again is not None
        assert again <= POLICY.refresh * (1 + JITTER)


async def test_a_pipeline_where_nothing_moves_waits_for_the_resync() -> None:
    stage = await running()
    stage.world.rate = 0.0
    await stage.run(20)
    assert stage.pipeline.status.lag == 0
    again = await stage.turn()
    assert again is not None
    assert again >= POLICY.resync * (1 - JITTER)


async def test_a_resync_that_is_quicker_than_the_refresh_stays() -> None:
    stage = await running()
    policy = Policy(cluster_uid=POLICY.cluster_uid, resync=1.0)
    stage.world.advance(POLICY.resync)
    again = await Reconciler(ports=ports_of(stage.world), policy=policy).reconcile(KEY)
    assert again is not None
    assert again <= 1.0 + JITTER


async def test_lag_and_commits_in_the_status_are_seconds_old_while_records_flow() -> None:
    stage = await running()
    end, oldest, written = stage.world.now + timedelta(seconds=60), 0.0, stage.world.now
    while stage.world.now < end:
        before = stage.pipeline.status
        again = await stage.turn()
        if stage.pipeline.status != before:
            written = stage.world.now
        stage.world.advance(again or 0.0)
        oldest = max(oldest, (stage.world.now - written).total_seconds())
    assert oldest <= 2 * POLICY.refresh * (1 + JITTER)
