"""Failover between Kubernetes clusters, as a table: which of them runs, waits, takes over, or hands over."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fencepost.fence import FenceRow
from fencepost_operator.actions import ReleaseFence, RemoveFinalizer, StopRun, TakeOverFence, UninstallCluster
from fencepost_operator.api import (
    ADOPT_ANNOTATION,
    FAIL_OVER_ANNOTATION,
    DeletionPolicy,
    FailoverStatus,
    Spec,
    State,
    condition_of,
)
from fencepost_operator.api.spec.failures import FailoverSpec
from fencepost_operator.observation import LifeSigns
from unit.operator.scenes import DENIED, JOB, NOW, ROW, RUN, SILENT, WELL, Scene

OVER = replace(RUN, ended_at=NOW, dead=True)
THEIRS = replace(ROW, epoch=3, owner="cluster-2/uid-9", driver="pod-9")
ALIVE = LifeSigns(cluster="cluster-2", silent_for=14.0, has_moved=True)
LOST = replace(ALIVE, silent_for=30.0)
MOVED = replace(THEIRS, owner="cluster-2/", driver=None)
STATEFUL = replace(THEIRS, checkpoint=b"{}")


def store(**changes: Any) -> dict[str, Any]:
    return {"cassandra": {"contactPoints": ["cassandra"], "consistency": "QUORUM", **changes}}


STORE = store()


def asking(**changes: Any) -> Scene:
    """Return the scene of a run that is up to date, whatever level it writes at."""
    spec = WELL.pipeline.spec
    assert isinstance(spec, Spec)
    return WELL.with_pipeline(spec=replace(spec, failover=FailoverSpec(), **changes))


OURS = asking()
BACK = OURS.seen(fence=THEIRS, other_cluster=ALIVE)
"""This cluster comes back, and another one has taken over."""
GONE = BACK.said(run=OVER).seen(runs=())
WAITS = GONE.seen(release=None, cluster=None)


def moving(epoch: int = ROW.epoch, cluster: str = "cluster-2", **signs: Any) -> Scene:
    asked = OURS.with_pipeline(annotations={FAIL_OVER_ANNOTATION: f"{cluster}@{epoch}"})
    return asked.seen(other_cluster=replace(ALIVE, **signs))


@pytest.mark.parametrize(
    ("scene", "reason", "action", "state"),
    [
        pytest.param(OURS, "Streaming", None, State.RUNNING, id="owns and runs"),
        pytest.param(BACK, "Stopping", StopRun, State.STANDBY, id="its run goes first"),
        pytest.param(
            BACK.said(run=OVER).seen(runs=(replace(JOB, name="orders-run-3", epoch=3),)),
            "Stopping", StopRun, State.STANDBY, id="a standby of a run goes too",
        ),
        pytest.param(GONE, "Stopping", UninstallCluster, State.STANDBY, id="then its cluster"),
        pytest.param(WAITS, "FailoverStandby", None, State.STANDBY, id="then it waits"),
        pytest.param(WAITS.seen(other_cluster=LOST), "Fenced", TakeOverFence, State.PROVISIONING, id="takes over"),
        pytest.param(
            WAITS.seen(other_cluster=None), "FenceOwnedElsewhere", None, State.STANDBY, id="an owner without signs"
        ),
        pytest.param(
            WAITS.seen(other_cluster=DENIED), "FenceOwnedElsewhere", None, State.STANDBY, id="signs it may not read"
        ),
        pytest.param(
            WAITS.seen(other_cluster=SILENT), "FailoverStandby", None, State.STANDBY, id="a look without an answer"
        ),
        pytest.param(moving(), "Stopping", StopRun, State.STANDBY, id="a move stops the run"),
        pytest.param(
            moving().said(run=OVER).seen(runs=()), "Fenced", TakeOverFence, State.STANDBY, id="then hands over"
        ),
        pytest.param(
            moving().said(run=replace(OVER, stop_requested_at=NOW)).seen(
                runs=(), fence=replace(ROW, epoch=ROW.epoch + 1, driver=None)
            ),
            "Fenced", TakeOverFence, State.STANDBY, id="also where the driver has ended its epoch itself",
        ),
        pytest.param(moving(epoch=1), "Streaming", None, State.RUNNING, id="a move of an epoch that is over"),
        pytest.param(moving(silent_for=30.0), "Streaming", None, State.RUNNING, id="a move to a lost cluster"),
        pytest.param(moving(silent_for=15.0), "Streaming", None, State.RUNNING, id="a move to one that is silent"),
        pytest.param(moving(note="Suspended"), "Streaming", None, State.RUNNING, id="a move to one that cannot run it"),
        pytest.param(moving(has_moved=False), "Streaming", None, State.RUNNING, id="a move to one not seen yet"),
        pytest.param(
            WAITS.seen(fence=MOVED, other_cluster=replace(ALIVE, note="Suspended")),
            "Fenced", TakeOverFence, State.PROVISIONING, id="takes back what cannot run there",
        ),
        pytest.param(
            WAITS.seen(other_cluster=replace(ALIVE, note="Suspended")),
            "FailoverStandby", None, State.STANDBY, id="what a user stops there stays there",
        ),
        pytest.param(
            WAITS.seen(fence=STATEFUL, other_cluster=LOST), "InvalidSpec", None, State.STALLED,
            id="takes over no commits of another mode",
        ),
        pytest.param(moving(cluster="cluster-1"), "Streaming", None, State.RUNNING, id="a move to itself"),
    ],
)  # fmt: skip
def test_each_cluster_does_its_part(scene: Scene, reason: str, action: type | None, state: State) -> None:
    decision = scene.decide()
    assert (decision.reason, decision.status.state) == (reason, state)
    assert type(decision.action) is (action or type(None))


def test_a_takeover_is_refused_where_the_owner_commits_meanwhile() -> None:
    action = WAITS.seen(other_cluster=LOST).decide().action
    assert isinstance(action, TakeOverFence)
    assert (action.epoch, action.version) == (THEIRS.epoch, THEIRS.version)
    assert action.owner == ROW.owner


def test_a_move_names_the_cluster_that_takes_it() -> None:
    action = moving().said(run=OVER).seen(runs=()).decide().action
    assert action == TakeOverFence(epoch=ROW.epoch, version=None, owner="cluster-2/")


def again(takeovers: int, ago: float) -> Scene:
    """Return the scene of a cluster that took over that many times in a row, the last time some seconds ago."""
    taken = FailoverStatus(owner="cluster-2", takeovers=takeovers, taken_over_at=NOW - timedelta(seconds=ago))
    return WAITS.said(failover=taken).seen(other_cluster=LOST)


@pytest.mark.parametrize(
    ("takeovers", "ago", "takes"),
    [
        (1, 59, False),
        (1, 60, True),
        (2, 119, False),
        (2, 120, True),
        (6, 1799, False),
        (6, 1800, True),
        (99, 1800, True),
    ],
)
def test_takeovers_in_a_row_are_twice_as_far_apart_each_time(takeovers: int, ago: float, takes: bool) -> None:
    decision = again(takeovers, ago).decide()
    assert isinstance(decision.action, TakeOverFence) is takes
    if not takes:
        assert (decision.reason, decision.status.state) == ("FenceOwnedElsewhere", State.STANDBY)
        assert f"took over {takeovers} times in a row: it does so again at" in decision.status.message
        assert f"{ADOPT_ANNOTATION}=cluster-2@3" in decision.status.message


def test_a_person_takes_over_at_any_time() -> None:
    adopted = again(6, 1).with_pipeline(annotations={ADOPT_ANNOTATION: "cluster-2@3"}).decide()
    assert isinstance(adopted.action, TakeOverFence)


WAITED = FailoverStatus(owner="cluster-2")
TAKEN = replace(THEIRS, epoch=4, owner=ROW.owner, driver=None)


@pytest.mark.parametrize(
    ("before", "row", "after"),
    [
        pytest.param(None, THEIRS, WAITED, id="waits"),
        pytest.param(None, ROW, FailoverStatus(owner="cluster-1"), id="created the row"),
        pytest.param(WAITED, TAKEN, FailoverStatus(owner="cluster-1", takeovers=1, taken_over_at=NOW), id="the first"),
        pytest.param(
            replace(WAITED, takeovers=1, taken_over_at=NOW - timedelta(minutes=59)), TAKEN,
            FailoverStatus(owner="cluster-1", takeovers=2, taken_over_at=NOW), id="within an hour",
        ),
        pytest.param(
            replace(WAITED, takeovers=6, taken_over_at=NOW - timedelta(hours=1)), TAKEN,
            FailoverStatus(owner="cluster-1", takeovers=1, taken_over_at=NOW), id="after an hour",
        ),
        pytest.param(
            WAITED, replace(TAKEN, owner="cluster-1/"), FailoverStatus(owner="cluster-1"), id="moved here, not taken"
        ),
        pytest.param(
            FailoverStatus(owner="cluster-1"), TAKEN, FailoverStatus(owner="cluster-1"), id="the first run after a move"
        ),
    ],
)  # fmt: skip
def test_what_this_cluster_took_over_is_counted(
    before: FailoverStatus | None, row: FenceRow, after: FailoverStatus
) -> None:
    seen = WAITS.said(failover=before).seen(fence=row, other_cluster=ALIVE)
    assert seen.decide().status.failover == after


def test_what_is_taken_back_or_by_a_user_is_not_counted() -> None:
    ours = FailoverStatus(owner="cluster-1")
    moved = WAITS.said(failover=ours).seen(fence=MOVED, other_cluster=replace(ALIVE, note="Suspended"))
    assert moved.decide().status.failover == ours, "it was not run there"
    adopted = WAITS.said(failover=WAITED).with_pipeline(annotations={ADOPT_ANNOTATION: "cluster-2@3"})
    assert adopted.seen(fence=TAKEN).decide().status.failover == ours


def test_an_invalid_spec_does_not_reset_the_count() -> None:
    taken = replace(WAITED, takeovers=3, taken_over_at=NOW)
    scene = WAITS.said(failover=taken)
    assert scene.asked(failover={"takeOverAfter": "1s"}).decide().status.failover == taken
    assert scene.asked(checkpoint=STORE).decide().status.failover is None


def blocked(scene: Scene) -> str:
    found = condition_of(scene.decide().status.conditions, "FailoverBlocked")
    return found.message if found is not None else ""


@pytest.mark.parametrize(
    ("scene", "said"),
    [
        (moving().seen(other_cluster=None), "no sign of life came from there in the last hour"),
        (moving(has_moved=False, silent_for=15.0), "no sign of life has come from there for 15 s"),
        (moving(silent_for=15.0), "no sign of life has come from there for 15 s"),
        (moving(note="Suspended"), "could not run, for the reason Suspended"),
        (moving().seen(other_cluster=DENIED), "signs of life from there cannot be read"),
        (moving().asked(suspend=True, failover={}, checkpoint=STORE), "the state Stopping of this cluster comes first"),
    ],
)
def test_a_move_that_does_not_begin_says_why(scene: Scene, said: str) -> None:
    message = blocked(scene)
    assert message.startswith(
        "The move to cluster cluster-2 from epoch 2 does not begin, and the pipeline stays here: "
    )
    assert said in message
    assert f"{FAIL_OVER_ANNOTATION}-" in message


@pytest.mark.parametrize(
    "scene", [OURS, moving(), moving(has_moved=False), WAITS, BACK, moving(epoch=1), moving(cluster="cluster-1")]
)
def test_nothing_is_said_of_a_move_that_begins_or_that_was_made(scene: Scene) -> None:
    assert blocked(scene) == ""


def test_what_was_said_of_a_move_stays_until_that_is_known_better() -> None:
    """As after a restart of the operator, which sees no sign move at its first look."""
    scene = moving(note="Suspended")
    known = scene.said(conditions=scene.decide().status.conditions)
    for later in (known.seen(other_cluster=SILENT), known.seen(other_cluster=replace(ALIVE, has_moved=False))):
        assert blocked(later) == blocked(scene)
    assert blocked(known.seen(other_cluster=ALIVE)) == "", "it begins"
    over = known.seen(fence=replace(ROW, epoch=3, driver=None))
    assert "did not begin before that epoch ended. Run it again: fencepost failover shop/orders" in blocked(over)
    assert blocked(over.with_pipeline(annotations={})) == "", "it is withdrawn"


def test_a_cluster_that_waits_says_for_whom_and_how_to_move_it() -> None:
    decision = WAITS.decide()
    ready = condition_of(decision.status.conditions, "Ready")
    assert ready is not None
    assert (ready.status, ready.reason) == ("True", "FailoverStandby")
    assert "Cluster cluster-2 owns the checkpoint" in ready.message
    assert "fencepost failover shop/orders --to cluster-1" in ready.message
    assert WAITS.seen(other_cluster=replace(ALIVE, silent_for=1.0)).decide().status == decision.status, (
        "nothing to write"
    )


def test_an_owner_without_signs_is_taken_over_by_a_person() -> None:
    without = WAITS.seen(other_cluster=None)
    found = condition_of(without.decide().status.conditions, "Ready")
    assert found is not None
    assert f"{ADOPT_ANNOTATION}=cluster-2@3" in found.message
    adopted = without.with_pipeline(annotations={ADOPT_ANNOTATION: "cluster-2@3"}).decide()
    assert isinstance(adopted.action, TakeOverFence)


@pytest.mark.parametrize("scene", [OURS, WAITS, asking(suspend=True), moving()])
def test_a_pass_comes_in_time_for_the_next_sign(scene: Scene) -> None:
    assert scene.decide().requeue_after <= 5.0


def test_the_epoch_of_another_cluster_is_of_no_run_here() -> None:
    """A warm standby was to have epoch 3, which the other cluster has begun."""
    decision = BACK.seen(runs=(JOB, replace(JOB, name="orders-run-3", epoch=3))).decide()
    run = decision.status.run
    assert run is not None
    assert run.epoch == RUN.epoch


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"checkpoint": store(serialConsistency="LOCAL_SERIAL")}, "spec.failover"),
        ({"checkpoint": store(consistency="LOCAL_QUORUM")}, "spec.checkpoint.cassandra.consistency"),
        ({"restart": {"onUnprovenDeath": "wait"}}, "spec.restart.onUnprovenDeath"),
        ({"failover": {"takeOverAfter": "10s"}}, "spec.failover.takeOverAfter"),
    ],
)
def test_what_would_break_it_is_refused(changes: dict[str, Any], field: str) -> None:
    found = WELL.asked(**{"failover": {}, "checkpoint": STORE, **changes}).pipeline.spec
    assert not isinstance(found, Spec)
    assert [violation.field for violation in found] == [field]


def test_a_deleted_pipeline_leaves_a_row_that_was_moved_to_it_and_that_it_never_took() -> None:
    moved = replace(ROW, owner="cluster-1/", driver=None)
    deleted = OURS.with_pipeline(deleting_since=NOW, deletion_policy=DeletionPolicy.DELETE)
    ended = deleted.said(run=OVER).seen(runs=(), release=None, cluster=None)
    assert isinstance(ended.decide().action, ReleaseFence)
    assert isinstance(ended.seen(fence=moved).decide().action, RemoveFinalizer)
