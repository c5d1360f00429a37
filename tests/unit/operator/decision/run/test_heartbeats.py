"""A driver whose heartbeats have ended is frozen or cut off, as long as the fence row says nothing else."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from fencepost.fence import BatchProgress
from fencepost_operator.actions import TakeOverFence
from fencepost_operator.api import Reason, condition_of
from fencepost_operator.decision.run.heartbeats import is_alive
from fencepost_operator.observation import NotAsked
from present import present
from unit.operator.scenes import COMMITTED, DENIED, LAGGING, LONG_AGO, NOW, POLICY, ROW, RUN, SILENT, WELL, Scene

BEAT = BatchProgress(epoch=ROW.epoch, version=ROW.version, done=0, at=LONG_AGO)
BATCH = replace(ROW, planned={"orders/0": 60})


def silent(seconds: float, *, beat: Any = BEAT, asked: float = 0.0, paused: float = 1.0, **committed: Any) -> Scene:
    """A run inside a batch, whose heartbeat and row have been seen to stay for so long.

    The heartbeat was asked for `asked` seconds before the end of the observation, and `paused` seconds after the last
    look.
    """
    now, quiet = NOW - timedelta(seconds=asked), NOW - timedelta(seconds=40)
    looks = {
        "heartbeat_at": NOW - timedelta(seconds=seconds),
        "heartbeat_asked": now - timedelta(seconds=paused),
        "since": quiet,
    }
    before = replace(COMMITTED, version=ROW.version, heartbeat=LONG_AGO, **{**looks, **committed})
    run = replace(RUN, resumed_from=LONG_AGO)
    scene = WELL.said(committed=before, run=run).seen(fence=BATCH, heartbeat=beat, **LAGGING)
    is_asked = not isinstance(beat, NotAsked)
    return replace(scene, observation=replace(scene.observation, heartbeat_asked=now if is_asked else None))


def test_a_run_without_heartbeats_is_fenced_at_the_version_of_the_row() -> None:
    decision = silent(10).decide()
    assert decision.reason == Reason.HEARTBEAT_LOST
    assert isinstance(decision.action, TakeOverFence)
    assert (decision.action.epoch, decision.action.version) == (ROW.epoch, ROW.version), "no commit since"
    assert str(RUN.node_name) in present(decision.status.failure).message
    assert silent(9.9).decide().reason == Reason.STREAMING


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(silent(60, beat=replace(BEAT, at=NOW)), id="a heartbeat has come"),
        pytest.param(silent(60, beat=replace(BEAT, epoch=1)), id="it is of a run before"),
        pytest.param(silent(60, beat=None), id="a driver without heartbeats"),
        pytest.param(silent(60, beat=SILENT), id="no answer"),
        pytest.param(silent(60, beat=DENIED), id="not granted"),
        pytest.param(silent(60, beat=NotAsked()), id="not asked"),
        pytest.param(silent(12, asked=2.5), id="another fact took long"),
        pytest.param(silent(60, paused=3.1), id="the operator was paused"),
        pytest.param(silent(60, observable_since=NOW - timedelta(seconds=7)), id="the database has just come back"),
        pytest.param(silent(60).asked(restart={"onUnprovenDeath": "wait"}), id="its death is waited for"),
        pytest.param(silent(60).seen(fence=ROW, source=WELL.observation.source.value), id="nothing to read"),  # type: ignore[union-attr]
    ],
)
def test_a_run_is_not_judged_by_what_is_not_known(scene: Scene) -> None:
    assert scene.decide().reason not in {Reason.HEARTBEAT_LOST, Reason.UNRESPONSIVE}


def test_a_change_of_the_row_is_as_good_as_a_heartbeat() -> None:
    moved = silent(60).seen(fence=replace(BATCH, version=ROW.version + 1), heartbeat=NotAsked())
    decision = moved.decide()
    assert decision.reason == Reason.STREAMING
    assert present(decision.status.committed).heartbeat_at == NOW


@pytest.mark.parametrize(
    ("beat", "seen"), [(BEAT, NOW - timedelta(seconds=5)), (replace(BEAT, at=NOW), NOW), (None, None)]
)
def test_when_a_heartbeat_was_first_seen_is_recorded(beat: BatchProgress | None, seen: datetime | None) -> None:
    assert present(silent(5, beat=beat).decide().status.committed).heartbeat_at == seen


def test_the_next_look_is_soon_where_the_heartbeat_stays_the_same() -> None:
    assert silent(2).decide().requeue_after == 1.0
    assert silent(2, beat=replace(BEAT, at=NOW)).decide().requeue_after == POLICY.resync_interval


@pytest.mark.parametrize("beat", [SILENT, DENIED])
def test_a_silence_begins_again_where_heartbeats_could_not_be_read(beat: Any) -> None:
    """Injected: the table does not answer for a minute; the first answer has the heartbeat from before."""
    unread = silent(60, beat=beat).decide()
    assert present(unread.status.committed).heartbeat_at == NOW
    answered = silent(60).said(committed=unread.status.committed)
    assert answered.decide().reason == Reason.STREAMING


def test_a_silence_begins_again_after_a_pause_between_two_looks() -> None:
    """Injected: operator and driver stood still together; the first look has the heartbeat from before."""
    decision = silent(60, paused=30).decide()
    assert present(decision.status.committed).heartbeat_at == NOW


def held(scene: Scene) -> Scene:
    """Return it while many others are without heartbeats as well."""
    return replace(scene, observation=replace(scene.observation, may_replace=False))


def test_where_many_are_silent_a_run_waits_for_its_turn_and_the_pipeline_says_so() -> None:
    decision = held(silent(10)).decide()
    assert (decision.reason, decision.action, decision.requeue_after) == (Reason.HEARTBEAT_LOST, None, 1.0)
    assert present(decision.status.run).is_active
    ready = present(condition_of(decision.status.conditions, "Ready"))
    assert (ready.status, ready.reason) == ("True", Reason.HEARTBEAT_LOST), "as before"
    assert "replaces only a few of them at a time" in ready.message
    assert [event.type for event in decision.events if event.reason == Reason.HEARTBEAT_LOST] == ["Warning"]
    assert held(silent(9.9)).decide().reason == Reason.STREAMING


def test_the_other_judges_are_not_held_up() -> None:
    stalled = silent(70, since=NOW - timedelta(seconds=70))
    assert held(stalled).decide().status.failure == stalled.decide().status.failure
    assert present(held(stalled).decide().status.failure).reason == Reason.UNRESPONSIVE
    on_lost_node = held(silent(10, since=NOW - timedelta(seconds=12))).seen(
        silent_nodes=frozenset({present(RUN.node_name)})
    )
    assert present(on_lost_node.decide().status.failure).reason == Reason.HEARTBEAT_LOST


MOVED = replace(BATCH, version=ROW.version + 1)


@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        (silent(3), False),
        (silent(2.9), None),
        (silent(10), None),
        (silent(10, beat=replace(BEAT, at=NOW)), True),
        (silent(10).seen(fence=MOVED, heartbeat=NotAsked()), True),
        (silent(10, beat=SILENT), None),
        (silent(10, beat=NotAsked()), None),
        (silent(10, beat=None), None),
    ],
)
def test_whether_a_driver_was_seen_alive_is_known_from_what_it_writes_alone(
    scene: Scene, expected: bool | None
) -> None:
    assert is_alive(scene.pipeline.status, scene.decide().status, scene.observation) is expected
