"""A namespace that is being deleted: when a deleted pipeline stops waiting for its Cassandra, and when it does not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from fencepost_operator.actions import RemoveFinalizer
from fencepost_operator.api import Reason
from fencepost_operator.observation import Unknown, UnknownReason
from unit.operator.scenes import DENIED, DROPPED, NOW, READY, SILENT, WELL, Scene

UNKNOWN = Unknown(reason=UnknownReason.UNREACHABLE, message="no answer", remedy="wait")
SUSPENDED = WELL.asked(suspend=True).said(conditions=(replace(READY, reason="Suspended"),))
ENDING = DROPPED.with_pipeline(deleting_since=NOW - timedelta(hours=1)).seen(namespace_ends=True)
REFUSED = Unknown(reason=UnknownReason.REJECTED, message="no such table", remedy="create it")


@pytest.mark.parametrize(
    "scene",
    [SUSPENDED.with_pipeline(deleting_since=NOW), SUSPENDED.seen(runs=UNKNOWN)],
    ids=["its namespace ends", "its Jobs cannot be listed"],
)
def test_a_pipeline_that_is_still_suspended_is_not_reported_as_resumed(scene: Scene) -> None:
    """In a namespace that ends the API server refuses each Event, so each pipeline logged a warning."""
    assert Reason.RESUMED not in {event.reason for event in scene.decide().events}


def test_a_pipeline_that_is_no_longer_suspended_is_reported_as_resumed() -> None:
    events = SUSPENDED.asked(suspend=False).decide().events
    assert [event.reason for event in events if event.reason == Reason.RESUMED]


def silent_for(seconds: float) -> Scene:
    return ENDING.said(fence_unreachable_since=NOW - timedelta(seconds=seconds)).seen(fence=SILENT)


def test_one_failed_read_gives_nothing_up_however_old_the_deletion_is() -> None:
    decision = ENDING.seen(fence=SILENT).decide()
    assert (decision.reason, decision.action) == ("CassandraUnreachable", None)
    assert decision.status.fence_unreachable_since == NOW


def test_a_cassandra_that_has_not_answered_for_five_minutes_is_not_waited_for() -> None:
    waits = silent_for(299).decide()
    assert (waits.reason, waits.action) == ("CassandraUnreachable", None)
    assert waits.status.fence_unreachable_since == NOW - timedelta(seconds=299)
    assert "after 300 s without an answer" in waits.status.message
    assert isinstance(silent_for(301).decide().action, RemoveFinalizer)


@pytest.mark.parametrize("fence", [DENIED, REFUSED])
def test_a_refusal_is_an_answer(fence: Unknown) -> None:
    decision = silent_for(3600).seen(fence=fence).decide()
    assert (decision.reason, decision.action) == ("CassandraUnreachable", None)
    assert decision.status.fence_unreachable_since is None


def test_an_outage_before_the_deletion_does_not_count() -> None:
    lives = silent_for(3600).with_pipeline(deleting_since=None)
    assert lives.decide().status.fence_unreachable_since is None
