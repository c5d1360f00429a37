"""A tool that prunes deletes the Secret before the pipeline whose checkpoint it leads to."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fencepost_operator.actions import RemoveFinalizer
from fencepost_operator.api import ABANDON_ANNOTATION, DeletionPolicy, EventType
from fencepost_operator.observation import References
from unit.operator.scenes import DENIED, DROPPED, NOW, Scene

SECRET = "account"  # noqa: S105 - an object's name
CASSANDRA = {"contactPoints": ["c"], "credentialsFrom": {"secretName": SECRET}}


def pruned(seconds: float) -> Scene:
    """Return a deleted pipeline whose deletionPolicy is Delete, and whose Secret is gone."""
    gone = References(hashes={f"Secret/{SECRET}": None})
    deleted = DROPPED.asked(checkpoint={"cassandra": CASSANDRA}).with_pipeline(
        deleting_since=NOW - timedelta(seconds=seconds)
    )
    return deleted.seen(fence=DENIED, references=gone)


def test_for_a_minute_the_deletion_waits_and_says_which_secret_to_create_again() -> None:
    decision = pruned(59).decide()
    assert (decision.reason, decision.action) == ("CassandraUnreachable", None)
    assert f"Create Secret/{SECRET} again; 60 s after the deletion" in decision.status.message
    assert [event.type for event in decision.events] == [EventType.WARNING]


def test_after_it_nothing_holds_the_deletion_up_and_a_warning_says_what_stays() -> None:
    decision = pruned(61).decide()
    assert isinstance(decision.action, RemoveFinalizer)
    (event,) = decision.events
    assert event.type is EventType.WARNING
    assert "its checkpoint is kept, because its credentials are deleted" in event.message
    assert "apply the pipeline, suspended, with its Secret" in event.message


@pytest.mark.parametrize(
    "scene",
    [
        pruned(61).with_pipeline(deletion_policy=DeletionPolicy.RETAIN),
        pruned(5).with_pipeline(annotations={ABANDON_ANNOTATION: "true"}),
    ],
    ids=["Retain", "the user gave it up"],
)
def test_who_wants_the_checkpoint_to_stay_is_not_warned(scene: Scene) -> None:
    decision = scene.decide()
    assert isinstance(decision.action, RemoveFinalizer)
    assert [event.type for event in decision.events] == [EventType.NORMAL]
