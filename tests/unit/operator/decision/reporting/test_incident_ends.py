"""A condition that flaps is one incident: it is over when its cause has been gone for a while."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest

from fencepost_operator.api import Condition, PageState, Reason
from fencepost_operator.decision.reporting.page_text import page_of
from present import present
from unit.operator.decision.reporting.test_pages import (
    HOLD,
    MINUTE,
    PAUSED,
    RISK,
    STALL,
    UNREACHABLE,
    Story,
    ready,
    stalled,
)
from unit.operator.scenes import POLICY

SECOND: Final = timedelta(seconds=1)


def ready_since(story: Story, *others: Condition) -> tuple[Condition, ...]:
    """Ready turns True with the next decision, a minute from now."""
    return replace(ready()[0], last_transition_time=story.now + MINUTE), *others


@pytest.mark.parametrize("bad", [stalled(), (*ready(), RISK)], ids=["stalled", "condition"])
def test_a_condition_that_flaps_is_one_incident(bad: tuple[Condition, ...]) -> None:
    story = Story().goes(bad).delivered()
    opened = story.now
    for _ in range(20):
        story.goes(ready_since(story))
        assert story.page.quiet_since == story.now
        story.goes(bad, after=HOLD - SECOND)
        page = story.page
        assert (page.opened_at, page.quiet_since, page.resolved_at) == (opened, None, None)
        assert [sent.outcome for sent in page.sent] == [PageState.OPENED], "no receiver gets it again"
    story.goes(ready_since(story))
    calm = story.status.conditions
    story.goes(calm, after=HOLD - SECOND)
    assert story.over() == []
    story.goes(calm, after=SECOND)
    assert len(story.over()) == 1
    story.goes(bad)
    another = story.status.pages[-1]
    assert (another.opened_at, another.sent) == (story.now, ()), "another incident"


def test_a_stall_is_not_over_while_the_pipeline_is_not_ready_for_another_cause() -> None:
    """And that cause is reported later: the first one was believed to be gone."""
    story = Story().stalls().delivered()
    story.goes(ready_since(story)).goes(UNREACHABLE).goes(UNREACHABLE, after=HOLD)
    assert story.open() == [STALL]
    story.goes(UNREACHABLE, after=timedelta(seconds=POLICY.page_not_ready_after))
    assert Reason.NOT_READY in story.open()
    story.goes(ready_since(story))
    calm = story.status.conditions
    story.goes(calm, after=HOLD - SECOND)
    assert Reason.NOT_READY in story.open(), "it has to be ready for a while"
    story.goes(calm, after=SECOND)
    assert story.open() == []


def test_a_stall_is_over_although_another_cause_keeps_the_pipeline() -> None:
    story = Story().stalls().stalls(Reason.TRANSFORM_INVALID)
    assert story.open() == [STALL, Reason.TRANSFORM_INVALID]
    story.goes(stalled(Reason.TRANSFORM_INVALID), after=HOLD)
    assert (story.open(), story.over()) == ([Reason.TRANSFORM_INVALID], [STALL])


def test_a_pause_lets_the_time_pass() -> None:
    story = Story().stalls().delivered().goes(ready()).changed(annotations=PAUSED).goes(ready(), after=HOLD)
    assert story.open() == [STALL]
    assert story.changed(annotations={}).goes(ready()).over() == [STALL]


@pytest.mark.parametrize("ahead", [2 * MINUTE, timedelta(days=4000)])
def test_a_replica_whose_clock_was_ahead_delays_for_minutes_at_most(ahead: timedelta) -> None:
    story = Story().stalls()
    story.now += ahead
    story.goes(ready())
    calm = (replace(ready()[0], last_transition_time=story.now),)
    story.now -= ahead
    story.goes(calm)
    assert story.page.quiet_since == story.now
    assert story.goes(calm, after=HOLD).goes(calm, after=2 * MINUTE).over() == [STALL]


def test_a_quiet_page_says_since_when_its_cause_is_gone() -> None:
    story = Story().stalls()
    story.goes(ready_since(story))
    page = story.page

    def said() -> dict[str, str]:
        return dict(page_of(story.pipeline, story.status, page, None, POLICY, story.now).details)

    moment = f"{present(page.quiet_since):%Y-%m-%d %H:%M:%S} UTC"
    assert said()["Gone since"].startswith(moment)
    story.goes(story.status.conditions, after=HOLD)
    page = story.page
    assert said()["Over since"] == moment
