"""A condition that flaps is one incident: it is over when its cause has been gone for a while."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest

from fencepost_operator.api import PAUSED_ANNOTATION, Condition, Event, EventType, PageState, PageStatus, Reason
from fencepost_operator.decision.reporting.page_text import page_of
from unit.operator.scenes import POLICY
from unit.operator.test_pages import HOLD, MINUTE, Story, at, condition, on_its_way, ready, silenced, stalled

RISK: Final = condition("RetentionRisk", Reason.DATA_EXPIRES_SOON)
SECOND: Final = timedelta(seconds=1)


def ready_since(story: Story, *others: Condition) -> tuple[Condition, ...]:
    """Ready turns True with the next decision, a minute from now."""
    return replace(ready()[0], last_transition_time=story.now + MINUTE), *others


def only_page(story: Story) -> PageStatus:
    (page,) = story.status.pages
    return page


@pytest.mark.parametrize("bad", [stalled(), (*ready(), RISK)], ids=["stalled", "condition"])
def test_a_condition_that_flaps_is_one_incident(bad: tuple[Condition, ...]) -> None:
    story = Story()
    story.goes(bad)
    story.delivered()
    opened = story.now
    for _ in range(20):
        story.goes(ready_since(story))
        assert only_page(story).quiet_since == story.now
        story.goes(bad, after=HOLD - SECOND)
        page = only_page(story)
        assert (page.opened_at, page.quiet_since, page.resolved_at) == (opened, None, None)
        assert [sent.outcome for sent in page.sent] == [PageState.OPENED], "no receiver gets it again"
    story.goes(ready_since(story))
    calm = story.status.conditions
    story.goes(calm, after=HOLD - SECOND)
    assert story.over() == []
    story.goes(calm, after=SECOND)
    assert len(story.over()) == 1
    story.goes(bad)
    assert (only_page(story).opened_at, only_page(story).sent) == (story.now, ()), "another incident"


def test_a_stall_is_not_over_while_the_pipeline_is_not_ready_for_another_cause() -> None:
    """And that cause is reported later: the first one was believed to be gone."""
    story = Story()
    story.goes(stalled())
    story.delivered()
    story.goes(ready_since(story))
    story.goes(on_its_way(Reason.KAFKA_UNREACHABLE))
    story.goes(on_its_way(Reason.KAFKA_UNREACHABLE), after=HOLD)
    assert story.open() == [Reason.ENTRYPOINT_NOT_FOUND]
    story.goes(on_its_way(Reason.KAFKA_UNREACHABLE), after=timedelta(seconds=POLICY.page_not_ready_after))
    assert Reason.NOT_READY in story.open()
    story.goes(ready_since(story))
    calm = story.status.conditions
    story.goes(calm, after=HOLD - SECOND)
    assert Reason.NOT_READY in story.open(), "it has to be ready for a while"
    story.goes(calm, after=SECOND)
    assert story.open() == []


def test_a_stall_is_over_although_another_cause_keeps_the_pipeline() -> None:
    story = Story()
    story.goes(stalled())
    story.goes(stalled(Reason.TRANSFORM_INVALID))
    assert story.open() == [Reason.ENTRYPOINT_NOT_FOUND, Reason.TRANSFORM_INVALID]
    story.goes(stalled(Reason.TRANSFORM_INVALID), after=HOLD)
    assert (story.open(), story.over()) == ([Reason.TRANSFORM_INVALID], [Reason.ENTRYPOINT_NOT_FOUND])


def test_a_suspension_counts_as_ready() -> None:
    story = Story()
    story.goes(stalled())
    story.recovers((condition("Ready", Reason.SUSPENDED),))
    assert story.over() == [Reason.ENTRYPOINT_NOT_FOUND]


def test_a_deletion_does_not_wait() -> None:
    story = Story()
    story.goes(stalled())
    story.goes(ready())
    story.pipeline = replace(story.pipeline, deleting_since=story.now)
    story.goes(on_its_way(Reason.DELETING), after=SECOND)
    assert story.over() == [Reason.ENTRYPOINT_NOT_FOUND]


def test_an_event_does_not_wait_twice() -> None:
    story = Story()
    story.goes(ready(), events=(Event(EventType.WARNING, Reason.DEAD_LETTER_WRITTEN, "a record was set aside"),))
    story.goes(ready(), after=timedelta(minutes=30))
    assert story.over() == [Reason.DEAD_LETTER_WRITTEN]


def test_what_ends_in_silence_is_not_reported_when_the_silence_ends() -> None:
    story = Story()
    silenced(story, at(story.now + timedelta(minutes=3)))
    story.goes(stalled())
    story.goes(ready())
    story.goes(ready(), after=timedelta(minutes=2))
    assert not story.status.pages


def test_a_pause_lets_the_time_pass() -> None:
    story = Story()
    story.goes(stalled())
    story.delivered()
    story.goes(ready())
    story.pipeline = replace(story.pipeline, annotations={PAUSED_ANNOTATION: "true"})
    story.goes(ready(), after=HOLD)
    assert story.open() == [Reason.ENTRYPOINT_NOT_FOUND]
    story.pipeline = replace(story.pipeline, annotations={})
    story.goes(ready())
    assert story.over() == [Reason.ENTRYPOINT_NOT_FOUND]


@pytest.mark.parametrize("ahead", [2 * MINUTE, timedelta(days=4000)])
def test_a_replica_whose_clock_was_ahead_delays_for_minutes_at_most(ahead: timedelta) -> None:
    story = Story()
    story.goes(stalled())
    story.now += ahead
    story.goes(ready())
    calm = (replace(ready()[0], last_transition_time=story.now),)
    story.now -= ahead
    story.goes(calm)
    assert only_page(story).quiet_since == story.now
    story.goes(calm, after=HOLD)
    story.goes(calm, after=2 * MINUTE)
    assert story.over() == [Reason.ENTRYPOINT_NOT_FOUND]


def test_a_quiet_page_says_since_when_its_cause_is_gone() -> None:
    story = Story()
    story.goes(stalled())
    story.goes(ready_since(story))
    page = only_page(story)

    def said() -> dict[str, str]:
        return dict(page_of(story.pipeline, story.status, page, None, POLICY, story.now).details)

    assert page.quiet_since is not None
    moment = f"{page.quiet_since:%Y-%m-%d %H:%M:%S} UTC"
    assert said()["Gone since"].startswith(moment)
    story.goes(story.status.conditions, after=HOLD)
    page = only_page(story)
    assert said()["Over since"] == moment
