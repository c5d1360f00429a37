"""The annotation `paused`: nothing is done, and nothing but a condition is written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencepost_operator.api import PAUSED_ANNOTATION, Reason, Status
from unit.operator.scenes import DEAD, DELETED, NEW, SILENT, WELL, Scene


def paused(scene: Scene, value: str = "true") -> Scene:
    return scene.with_pipeline(annotations={PAUSED_ANNOTATION: value})


@pytest.mark.parametrize(
    "scene", [WELL, DEAD, NEW, WELL.asked(batchInterval="x"), WELL.asked(suspend=True), WELL.seen(runs=SILENT)]
)
def test_nothing_is_done_and_one_condition_is_written(scene: Scene) -> None:
    decision = paused(scene).decide()
    before, after = scene.pipeline.status, decision.status
    assert (decision.reason, decision.action, decision.rewinds) == (Reason.PAUSED, None, ())
    assert replace(after, conditions=()) == replace(before, conditions=())
    assert after.conditions[: len(before.conditions)] == before.conditions
    found = {c.type: c.status for c in after.conditions}
    assert found["Paused"] == "True"
    assert "Ready" in found
    assert [event.reason for event in decision.events] == ["Paused"]


def test_a_pause_is_written_and_reported_once() -> None:
    first = paused(WELL).decide()
    again = paused(WELL).said(conditions=first.status.conditions).decide()
    assert (again.status, again.events) == (first.status, ())


def test_the_message_says_how_to_continue() -> None:
    (condition,) = [c for c in paused(WELL).decide().status.conditions if c.type == "Paused"]
    assert f"kubectl annotate streamingpipeline orders --namespace shop {PAUSED_ANNOTATION}-" in condition.message


def test_a_pipeline_that_was_never_seen_is_not_ready() -> None:
    decision = paused(NEW.with_pipeline(status=Status(), finalizers=())).decide()
    found = {c.type: c.status for c in decision.status.conditions}
    assert found == {"Ready": "False", "Reconciling": "True", "Streaming": "False", "Paused": "True"}
    assert decision.status.observed_generation == Status().observed_generation


def test_the_end_of_a_pause_is_reported_and_its_condition_is_removed() -> None:
    during = paused(WELL).decide().status
    after = WELL.said(conditions=during.conditions).decide()
    assert not [c for c in after.status.conditions if c.type == "Paused"]
    assert [event.reason for event in after.events] == ["Resumed"]


@pytest.mark.parametrize(
    ("value", "is_paused"), [("true", True), ("True", True), ("yes", True), ("false", False), ("", False)]
)
def test_any_value_but_false_pauses(value: str, is_paused: bool) -> None:
    assert (paused(WELL, value).decide().reason == Reason.PAUSED) == is_paused


def test_a_pipeline_that_is_deleted_is_not_paused() -> None:
    assert paused(DELETED).decide() == DELETED.decide()
    assert paused(DELETED).decide().action is not None
