"""Who may have to act finds the runbook at the end of the message, where the operator knows where runbooks are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencepost_operator.api import EventType
from fencepost_operator.decision.decide import decide
from fencepost_operator.decision.decision import Decision
from fencepost_operator.decision.wording import with_runbook
from unit.operator.decision.rules.test_rules import CASES
from unit.operator.scenes import BURIED, DEAD, DENIED, POLICY, RUN, SILENT, WELL, Scene

URL = "https://docs.example/runbooks"


def linked(scene: Scene) -> Decision:
    return decide(scene.pipeline, scene.observation, replace(POLICY, runbook_url=URL))


@pytest.mark.parametrize("case", CASES)
def test_every_warning_names_its_runbook_and_nothing_else_does(case: str) -> None:
    decision = linked(CASES[case][0])
    kinds = {condition.type: condition for condition in decision.status.conditions}
    if "Stalled" in kinds:
        assert kinds["Stalled"].message.endswith(f"Runbook: {URL}/{decision.reason}.md")
        assert decision.status.message == kinds["Ready"].message == kinds["Stalled"].message
    for event in decision.events:
        assert (URL in event.message) == (event.type is EventType.WARNING)


def test_the_event_of_a_failed_run_names_the_page_of_its_failure() -> None:
    (event,) = [event for event in linked(DEAD).events if event.reason == "RunFailed"]
    assert event.message.endswith(f"{URL}/Killed.md")


def test_a_condition_that_stays_while_its_facts_are_unknown_names_its_page_once() -> None:
    first = linked(WELL.seen(snapshots=DENIED))
    again = linked(WELL.said(conditions=first.status.conditions).seen(snapshots=SILENT))
    (message,) = [c.message for c in again.status.conditions if c.type == "SnapshotsUnreadable"]
    assert message.count(URL) == 1


def test_without_an_address_messages_are_as_they_are() -> None:
    assert with_runbook("It failed. Correct it.", "RunFailed", "") == "It failed. Correct it."
    stalled = BURIED.said(run=replace(RUN, ended_at=RUN.recorded_at, dead=True))
    assert "Runbook" not in stalled.decide().status.message
