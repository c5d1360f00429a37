"""A change that the API server shows is a write of the operator, or of another one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from campaign import writes
from campaign.faults import KINDS, blinded
from campaign.world import NAME
from harness.faults.schedule import Draw, Pace, Schedule
from harness.kubernetes.object_changes import Change
from harness.pipelines import PIPELINE_LABEL


def found(manager: str = writes.MANAGER, **metadata: Any) -> dict[str, Any]:
    own = {"labels": {PIPELINE_LABEL: NAME}, "managedFields": [{"manager": manager}]}
    return {"metadata": {**own, **metadata}}


def test_a_status_that_changed_is_a_write_and_a_changed_spec_is_not() -> None:
    """Only the operator may write a status; a user scales and applies meanwhile."""
    before = {"metadata": {}, "spec": {"a": 1}, "status": {"epoch": 1}}
    assert writes.is_status(Change("MODIFIED", before, {**before, "status": {"epoch": 2}}))
    assert not writes.is_status(Change("MODIFIED", before, {**before, "spec": {"a": 2}}))
    assert not writes.is_status(Change("ADDED", None, before))


def test_a_job_that_the_operator_created_is_a_write_and_a_copy_is_not() -> None:
    """The fault that copies a Job creates it with kubectl."""
    assert writes.is_created(Change("ADDED", None, found()))
    assert not writes.is_created(Change("ADDED", None, found("kubectl-create")))
    assert not writes.is_created(Change("ADDED", None, found(labels={PIPELINE_LABEL: "another"})))
    assert not writes.is_created(Change("MODIFIED", found(), found()))


def test_a_deletion_begins_once() -> None:
    """A change of an object that is being deleted does not delete it again."""
    leaving = found(deletionTimestamp="2026-01-01T00:00:00Z")
    assert writes.is_deletion(Change("MODIFIED", found(), leaving))
    assert not writes.is_deletion(Change("MODIFIED", leaving, leaving))
    assert not writes.is_deletion(Change("MODIFIED", found(), found()))


def test_an_event_of_the_operator_is_a_write_also_when_it_is_counted_up() -> None:
    """The kubelet's Events are not."""
    ours = {"metadata": {}, "reportingComponent": writes.MANAGER}
    assert writes.is_event(Change("ADDED", None, ours))
    assert writes.is_event(Change("MODIFIED", ours, ours))
    assert not writes.is_event(Change("ADDED", None, {"metadata": {}, "reportingComponent": "kubelet"}))


def test_a_revision_of_the_pipeline_is_a_write() -> None:
    """Helm writes it, for the operator."""
    ours = {"owner": "helm", PIPELINE_LABEL: NAME}
    assert writes.is_revision(Change("ADDED", None, found("helm", labels=ours)))
    assert not writes.is_revision(Change("ADDED", None, found("helm", labels={"owner": "helm"})))
    assert not writes.is_revision(Change("DELETED", found(labels=ours), found(labels=ours)))


@pytest.mark.parametrize(
    ("kind", "while_it_lasts", "afterwards"),
    [
        ("node paused", True, True),
        ("driver killed", False, False),
        ("operator killed at its write of a Job", False, True),
    ],
)
def test_the_operator_is_not_blind_while_a_fault_waits_for_a_write(
    kind: str, while_it_lasts: bool, afterwards: bool
) -> None:
    """The promise about minutes without commits is watched while the fault waits."""
    seen: list[bool] = []

    def act() -> None:
        seen.append(blinded(made, since=0.0))

    made = Schedule(
        draw=lambda _: Draw(kind=kind, target=KINDS[kind].target, label=kind, act=act),
        chance=random.Random(1),
        pace=Pace(between=(0.0, 0.0)),
        report=lambda _: None,
    )
    made.inject(until=lambda: bool(made.since(0.0)))
    assert seen == [while_it_lasts]
    assert blinded(made, since=0.0) is afterwards
