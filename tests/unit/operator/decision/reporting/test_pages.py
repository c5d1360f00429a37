"""Which incidents open, last and end; what is recorded of them; and what a page says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from fencepost.contract.guidance import GUIDANCE, Severity
from fencepost_operator.actions import RemoveFinalizer
from fencepost_operator.api import (
    PAUSED_ANNOTATION,
    SILENCE_ANNOTATION,
    Condition,
    DataRisk,
    Event,
    EventType,
    FailureStatus,
    PageSent,
    PageState,
    PageStatus,
    Pipeline,
    Reason,
    State,
    Status,
)
from fencepost_operator.decision.decision import Decision
from fencepost_operator.decision.reporting.page_outbox import (
    GIVE_UP,
    HOLD_DELETION,
    PAGING_DEGRADED,
    due_pages,
    with_pages,
)
from fencepost_operator.decision.reporting.page_text import page_of
from fencepost_operator.decision.run.restart_loop import restarted_at
from fencepost_operator.paging.page import PagingFacts, PagingProblem, Receipt
from unit.operator.scenes import GOOD, NOW, POLICY, RUN

ONE: Final = PagingFacts(receivers=("operator/pagerduty/1",))
UNKNOWN: Final = PagingFacts(receivers=None)
NO_RECEIVERS: Final = PagingFacts()
MINUTE: Final = timedelta(minutes=1)
HOLD: Final = timedelta(seconds=POLICY.page_resolve_after)


def condition(kind: str, reason: str, status: str = "True", message: str = "it happened") -> Condition:
    return Condition(
        type=kind, status=status, reason=reason, message=message, last_transition_time=NOW, observed_generation=1
    )


def ready() -> tuple[Condition, ...]:
    return (condition("Ready", "Streaming"),)


def stalled(reason: str = Reason.ENTRYPOINT_NOT_FOUND) -> tuple[Condition, ...]:
    return condition("Ready", reason, "False"), condition("Stalled", reason)


def on_its_way(reason: str = Reason.STARTING) -> tuple[Condition, ...]:
    return condition("Ready", reason, "False"), condition("Reconciling", reason)


class Story:
    """One pipeline through a series of decisions; each is recorded, as the loop does."""

    decision: Decision

    def __init__(self, facts: PagingFacts = ONE) -> None:
        self.pipeline: Pipeline = GOOD
        self.now = NOW
        self.facts = facts

    def goes(
        self,
        conditions: tuple[Condition, ...],
        *,
        after: timedelta = MINUTE,
        events: tuple[Event, ...] = (),
        action: RemoveFinalizer | None = None,
        **status: Any,
    ) -> Story:
        self.now += after
        said = replace(self.pipeline.status, conditions=conditions, **status)
        decided = Decision(reason=Reason.STREAMING, status=said, events=events, action=action, requeue_after=5.0)
        self.decision = with_pages(self.pipeline, decided, self.facts, POLICY, self.now)
        return self.changed(status=self.decision.status)

    def stalls(self, reason: str = Reason.ENTRYPOINT_NOT_FOUND) -> Story:
        return self.goes(stalled(reason))

    def recovers(self, conditions: tuple[Condition, ...] | None = None) -> Story:
        """The pipeline is ready until its fault counts as gone."""
        return self.goes(conditions or ready()).goes(conditions or ready(), after=HOLD)

    def delivered(self, outcome: PageState = PageState.OPENED) -> Story:
        """All pages reached all receivers; the next decision records it."""
        sent = [PageSent(receiver=name, at=self.now, outcome=outcome) for name in self.facts.receivers or ()]
        receipts = [
            Receipt(reason=page.reason, opened_at=page.opened_at, sent=each)
            for page in self.status.pages
            for each in sent
        ]
        self.facts = replace(self.facts, receipts=tuple(receipts))
        return self

    def changed(self, **pipeline: Any) -> Story:
        self.pipeline = replace(self.pipeline, **pipeline)
        return self

    def silenced(self, value: str) -> Story:
        return self.changed(annotations={SILENCE_ANNOTATION: value})

    @property
    def status(self) -> Status:
        return self.pipeline.status

    @property
    def page(self) -> PageStatus:
        (page,) = self.status.pages
        return page

    def open(self) -> list[str]:
        return [page.reason for page in self.status.pages if page.resolved_at is None]

    def over(self) -> list[str]:
        return [page.reason for page in self.status.pages if page.resolved_at is not None]

    def due(self) -> list[str]:
        return [page.reason for page in due_pages(self.pipeline, self.status, self.now)]


@pytest.mark.parametrize(
    ("conditions", "reason", "severity"),
    [
        (stalled(Reason.ENTRYPOINT_NOT_FOUND), Reason.ENTRYPOINT_NOT_FOUND, "critical"),
        (stalled(Reason.TOPIC_RECREATED), Reason.TOPIC_RECREATED, "critical"),
        (stalled(Reason.ROLLED_BACK), Reason.ROLLED_BACK, "warning"),
        ((*ready(), condition("RetentionRisk", Reason.DATA_EXPIRES_SOON)), Reason.DATA_EXPIRES_SOON, "critical"),
        ((*ready(), condition("RetentionRisk", Reason.DATA_EXPIRED)), Reason.DATA_EXPIRED, "critical"),
        ((*ready(), condition("TransactionStalled", Reason.TRANSACTION_STALLED)), "TransactionStalled", "warning"),
        ((*ready(), condition("FallingBehind", Reason.FALLING_BEHIND)), Reason.FALLING_BEHIND, "warning"),
        ((*ready(), condition("ScalingLimited", Reason.SCALING_LIMITED)), Reason.SCALING_LIMITED, "warning"),
        (
            (condition("Ready", Reason.SUSPENDED), condition("RetentionRisk", Reason.DATA_EXPIRES_SOON)),
            Reason.DATA_EXPIRES_SOON,
            "critical",
        ),
    ],
)
def test_a_condition_pages_at_once(conditions: tuple[Condition, ...], reason: str, severity: str) -> None:
    story = Story().goes(conditions)
    page = story.page
    assert (page.reason, page.severity, page.opened_at, page.sent) == (reason, severity, story.now, ())


@pytest.mark.parametrize(
    ("kind", "reason"), [("DurabilityAtRisk", Reason.DURABILITY_AT_RISK), ("RetentionRisk", Reason.RETENTION_TOO_SHORT)]
)
def test_a_weak_setting_pages_after_an_hour(kind: str, reason: Reason) -> None:
    weak = (*ready(), condition(kind, reason))
    story = Story().goes(weak, after=59 * MINUTE)
    assert story.open() == []
    story.goes(weak)
    assert (story.page.reason, story.page.severity) == (reason, "warning")


@pytest.mark.parametrize("reason", [*Reason, "FromTheFuture"])
def test_a_stalled_pipeline_pages_whatever_the_reason(reason: str) -> None:
    story = Story().stalls(reason)
    assert story.open() == [reason]
    assert story.page.severity != Severity.NONE
    assert page_of(story.pipeline, story.status, story.page, None, POLICY, NOW).summary


BACKING_OFF: Final = on_its_way(Reason.BACKING_OFF)
FAILED: Final = FailureStatus(count=3, epoch=4, at=NOW, reason=Reason.RUN_FAILED, message="m", remedy="r")
LOST: Final = Event(EventType.WARNING, Reason.DEAD_LETTER_WRITTEN, "a record was set aside")
RISK: Final = condition("RetentionRisk", Reason.DATA_EXPIRES_SOON)
SUSPENDED: Final = (condition("Ready", Reason.SUSPENDED),)
UNREACHABLE: Final = on_its_way(Reason.KAFKA_UNREACHABLE)
WARNED: Final = (*ready(), condition("FallingBehind", Reason.FALLING_BEHIND))
STALL: Final = Reason.ENTRYPOINT_NOT_FOUND
HISTORIES: Final[dict[str, tuple[Callable[[Story], object], list[str], list[str]]]] = {
    "ready": (lambda story: story.goes(ready()), [], []),
    "suspended": (lambda story: story.goes(SUSPENDED), [], []),
    "suspended, with a transaction that is open": (
        lambda story: story.goes((*SUSPENDED, condition("TransactionStalled", Reason.TRANSACTION_STALLED))), [], [],
    ),
    "suspended, with a weak setting": (
        lambda story: story.goes((*SUSPENDED, condition("DurabilityAtRisk", Reason.DURABILITY_AT_RISK))), [], [],
    ),
    "snapshots unreadable": (
        lambda story: story.goes((*ready(), condition("SnapshotsUnreadable", Reason.SNAPSHOTS_UNREADABLE))), [], [],
    ),
    "on its way": (lambda story: story.goes(on_its_way()), [], []),
    "stalled by a replica whose clock is ahead (seed 4966)": (
        lambda story: story.goes(tuple(replace(each, last_transition_time=NOW + 2 * MINUTE) for each in stalled())),
        [STALL], [],
    ),
    "a retry is not a recovery": (lambda story: story.stalls().delivered().goes(on_its_way()), [STALL], []),
    "another reason to stall takes the place of the first": (
        lambda story: story.stalls().delivered().recovers(stalled(Reason.TRANSFORM_INVALID)),
        [Reason.TRANSFORM_INVALID], [STALL],
    ),
    "a suspension counts as ready": (lambda story: story.stalls().recovers(SUSPENDED), [], [STALL]),
    "a receiver does not know that it is over": (
        lambda story: story.stalls().delivered().recovers().goes(ready()), [], [STALL],
    ),
    "each receiver knows that it is over": (
        lambda story: story.stalls().delivered().recovers().goes(ready()).delivered(PageState.RESOLVED).goes(ready()),
        [], [],
    ),
    "the end is not repeated forever": (lambda story: story.stalls().recovers().goes(ready(), after=GIVE_UP), [], []),
    "nine minutes on its way": (lambda story: story.goes(UNREACHABLE).goes(on_its_way(), after=9 * MINUTE), [], []),
    "a pipeline that does not come up": (
        lambda story: story.goes(UNREACHABLE).goes(on_its_way(), after=9 * MINUTE).goes(UNREACHABLE),
        [Reason.NOT_READY], [],
    ),
    "a pipeline that does not come up, then stalls": (
        lambda story: story.goes(UNREACHABLE).goes(on_its_way(), after=9 * MINUTE).goes(UNREACHABLE).stalls(),
        [Reason.NOT_READY, STALL], [],
    ),
    "three failures in a row": (lambda story: story.goes(BACKING_OFF, failure=FAILED), [], []),
    "four failures in a row": (
        lambda story: story.goes(BACKING_OFF, failure=replace(FAILED, count=4)), [Reason.BACKING_OFF], [],
    ),
    "an event does not wait twice": (
        lambda story: story.goes(ready(), events=(LOST,)).goes(ready(), after=timedelta(minutes=30)),
        [], [Reason.DEAD_LETTER_WRITTEN],
    ),
    "a deletion does not wait": (
        lambda story: story.stalls().goes(ready()).changed(deleting_since=NOW).goes(on_its_way(Reason.DELETING)),
        [], [STALL],
    ),
    "what ends in silence is not reported when the silence ends": (
        lambda story: story.silenced(at(NOW + 3 * MINUTE)).stalls().goes(ready()).goes(ready(), after=2 * MINUTE),
        [], [],
    ),
}  # fmt: skip
"""What happens, which incidents are open then, and which are over."""


@pytest.mark.parametrize("history", HISTORIES)
def test_which_incidents_are_open_and_over(history: str) -> None:
    happens, open_, over = HISTORIES[history]
    story = Story()
    happens(story)
    assert (story.open(), story.over()) == (open_, over)


def test_a_retry_that_fails_is_not_a_recovery() -> None:
    page = Story().stalls().delivered().goes(on_its_way()).stalls().page
    assert page.opened_at == NOW + MINUTE
    assert [sent.outcome for sent in page.sent] == [PageState.OPENED], "no receiver gets it again"


def test_recovery_resolves_a_page() -> None:
    story = Story().stalls().delivered()
    story.recovers()
    assert story.page.resolved_at == story.now
    assert not story.page.is_reported_to("operator/pagerduty/1")


def test_an_incident_that_ends_before_its_page_was_sent_is_sent_nevertheless() -> None:
    story = Story().stalls().recovers()
    (page,) = due_pages(story.pipeline, story.status, story.now)
    assert page.wanted is PageState.RESOLVED


def test_two_operators_do_not_correct_each_other() -> None:
    """Found in seed 56 of the simulation: each kept a receipt of its own, and wrote it over the other's."""
    story = Story().stalls().delivered().stalls()
    before = story.status.pages
    story.now += MINUTE
    story.delivered().stalls()
    assert story.status.pages == before
    story.goes(ready()).delivered(PageState.RESOLVED)
    known = replace(story.page, sent=tuple(receipt.sent for receipt in story.facts.receipts))
    story.changed(status=replace(story.status, pages=(known,)))
    story.facts = UNKNOWN
    story.delivered().goes(ready())
    assert [sent.outcome for sent in story.page.sent] == [PageState.RESOLVED], "what it knows is not unlearned"


def test_a_receipt_is_forgotten_with_its_receiver() -> None:
    """Else a Secret that is created again each hour fills the status, until the API server refuses it."""
    story = Story().stalls()
    for number in range(3):
        name = f"shop/apprise/{number}"
        story.facts = PagingFacts(receivers=(name,))
        story.delivered().stalls()
        assert [each.receiver for each in story.page.sent] == [name]
    story.facts = UNKNOWN
    story.stalls()
    assert [each.receiver for each in story.page.sent] == ["shop/apprise/2"]


def test_a_namespaces_secret_that_is_gone_keeps_what_its_receivers_know() -> None:
    """The operator's receiver got everything; the namespace's gets the end when its Secret is back."""
    both = PagingFacts(receivers=("operator/pagerduty/1", "namespace/apprise/2"))
    story = Story(both).stalls().delivered().stalls()
    story.facts = ONE
    story.recovers().delivered(PageState.RESOLVED).goes(ready())
    assert {each.receiver: each.outcome for each in story.page.sent} == {
        "operator/pagerduty/1": PageState.RESOLVED,
        "namespace/apprise/2": PageState.OPENED,
    }
    story.facts = both
    story.delivered(PageState.RESOLVED).goes(ready())
    assert not story.status.pages


def test_a_warning_waits_for_no_receiver_of_critical_pages() -> None:
    story = Story(replace(ONE, critical_only=frozenset({"operator/pagerduty/1"})))
    story.goes(WARNED).recovers()
    assert not story.status.pages
    assert story.stalls().delivered().recovers().over() == [STALL]


def test_unknown_receivers_are_not_absent() -> None:
    story = Story(UNKNOWN).stalls().recovers()
    assert story.over() == [STALL]
    story.facts = NO_RECEIVERS
    story.goes(ready())
    assert not story.status.pages


def test_the_same_reason_again_is_a_new_incident_with_its_own_key() -> None:
    """The end of the first one is still to be sent, and may arrive after the page of the second (seed 559532)."""
    story = Story().stalls().delivered().recovers().stalls()
    old, new = story.status.pages
    assert (old.wanted, new.wanted) == (PageState.RESOLVED, PageState.OPENED)
    assert (new.opened_at, new.sent) == (story.now, ()), "an old receipt says nothing of a new incident"
    sent = [page_of(story.pipeline, story.status, page, None, POLICY, NOW) for page in (old, new)]
    assert sent[0].dedup_key != sent[1].dedup_key
    assert sent[0].shared_key == sent[1].shared_key
    story.delivered(PageState.RESOLVED).stalls()
    assert story.page.opened_at == new.opened_at


def test_no_receiver_gets_only_the_end_of_an_incident_whose_reason_is_open_again() -> None:
    """Else an incident that flaps fills the status while a receiver is out of reach."""
    story = Story().stalls().delivered().recovers().delivered(PageState.RESOLVED)
    story.facts = replace(story.facts, receivers=("operator/pagerduty/1", "namespace/apprise/2"))
    story.goes(ready())
    assert story.over() == [STALL], "one receiver knows neither its beginning nor its end"
    story.stalls()
    assert (story.open(), story.over()) == ([STALL], [])


def test_the_time_without_readiness_ends_with_it() -> None:
    story = Story().goes(UNREACHABLE)
    since = story.status.not_ready_since
    story.goes(on_its_way(), after=9 * MINUTE)
    assert story.status.not_ready_since == since
    story.goes(UNREACHABLE).stalls().recovers()
    assert (story.open(), story.status.not_ready_since) == ([], None)


def test_a_stop_that_is_part_of_a_restart_after_a_failure_counts() -> None:
    """Otherwise a pipeline whose runs never start would begin again with each stop of one."""
    story = Story().goes(on_its_way())
    since = story.status.not_ready_since
    story.goes(on_its_way(Reason.STOPPING), state=State.RESTARTING)
    assert story.status.not_ready_since == since
    story.goes(on_its_way(Reason.STOPPING), state=State.UPGRADING)
    assert story.status.not_ready_since is None


def test_planned_steps_do_not_count() -> None:
    story = Story().goes(on_its_way()).goes(on_its_way(Reason.REWINDING))
    story.goes(on_its_way(Reason.REWINDING), after=timedelta(hours=3)).goes(on_its_way())
    assert (story.open(), story.status.not_ready_since) == ([], story.now)


def restarting(story: Story, *, every: timedelta, times: int, reason: Reason = Reason.OUT_OF_MEMORY) -> None:
    """Each run makes progress, and dies."""
    for _ in range(times):
        count = story.status.restarts + 1
        failed = FailureStatus(count=1, epoch=count, at=story.now, reason=reason, message="m", remedy="r")
        story.goes(on_its_way(Reason.RUN_STARTED), after=every / 2, restarts=count, failure=failed)
        story.goes(ready(), after=every / 2)


def test_runs_that_die_after_some_progress_each_page_at_the_fourth_within_half_an_hour() -> None:
    story = Story()
    restarting(story, every=9 * MINUTE, times=3)
    assert story.open() == []
    restarting(story, every=9 * MINUTE, times=1)
    assert (story.page.reason, story.page.severity) == (Reason.BACKING_OFF, "critical")
    assert "OutOfMemory" in story.page.message
    story.delivered()
    restarting(story, every=9 * MINUTE, times=20)
    assert [sent.outcome for sent in story.page.sent] == [PageState.OPENED], "one incident, sent once"
    assert len(story.status.restarted_at) == 4
    story.recovers().goes(ready(), after=30 * MINUTE).goes(ready(), after=HOLD)
    assert story.over() == [Reason.BACKING_OFF]


@pytest.mark.parametrize(
    ("every", "reason"), [(11 * MINUTE, Reason.OUT_OF_MEMORY), (MINUTE, Reason.DRAINED)], ids=["seldom", "drained"]
)
def test_rare_and_planned_restarts_send_no_page(every: timedelta, reason: Reason) -> None:
    story = Story()
    restarting(story, every=every, times=12, reason=reason)
    assert not story.status.pages


def test_another_spec_begins_the_count_again_and_runs_without_progress_are_not_in_it() -> None:
    failed = replace(FAILED, count=1, epoch=1, reason=Reason.BAD_SPEC)
    before = Status(restarts=3, failure=failed, run=RUN, restarted_at=(NOW, NOW, NOW))
    again = replace(before, restarts=4)
    assert len(restarted_at(before, again, NOW)) == 4
    assert len(restarted_at(before, replace(again, failure=replace(failed, count=2)), NOW)) == 3
    assert restarted_at(before, replace(again, run=replace(RUN, spec_hash="another")), NOW) == ()


def test_a_restart_loop_ends_when_a_user_suspends_the_pipeline() -> None:
    story = Story()
    restarting(story, every=MINUTE, times=4)
    assert story.open() == [Reason.BACKING_OFF]
    assert story.recovers(SUSPENDED).over() == [Reason.BACKING_OFF]


@pytest.mark.parametrize("reason", [Reason.DEAD_LETTER_WRITTEN, Reason.MIXED_OUTPUT])
def test_an_event_pages_until_none_has_come_for_half_an_hour(reason: Reason) -> None:
    event = (replace(LOST, reason=reason),)
    story = Story().goes(ready(), events=event).goes(ready(), events=event, after=timedelta(minutes=29))
    assert story.goes(ready(), after=timedelta(minutes=29)).open() == [reason]
    assert story.goes(ready()).over() == [reason]


PAUSED: Final = {PAUSED_ANNOTATION: "true"}


def test_a_pause_keeps_incidents_and_records_receipts() -> None:
    story = Story().stalls().changed(annotations=PAUSED).delivered().goes(ready())
    assert story.open() == [STALL]
    assert story.page.is_reported_to("operator/pagerduty/1")


def test_a_paused_pipeline_pages_when_its_data_expires_and_for_nothing_else() -> None:
    story = Story().stalls().changed(annotations=PAUSED)
    story.goes((*stalled(), RISK, WARNED[-1]))
    assert story.open() == [STALL, Reason.DATA_EXPIRES_SOON]
    story.delivered().stalls().goes(stalled(), after=HOLD)
    assert story.over() == [Reason.DATA_EXPIRES_SOON]
    assert story.delivered().stalls().open() == [STALL]


def at(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_silence_defers_what_is_new_and_not_what_is_known() -> None:
    story = Story().stalls().delivered().silenced(at(NOW + timedelta(hours=1)))
    assert story.goes((*stalled(), RISK)).due() == [STALL]
    assert story.recovers().over() == [STALL], "the receiver that has its start gets its end"
    story.goes((*ready(), RISK)).goes((*ready(), RISK), after=timedelta(hours=1))
    assert "DataExpiresSoon" in story.due()


@pytest.mark.parametrize(
    "value",
    ["tomorrow", "2026-01-02", "2026-01-01T13:00:00", at(NOW + timedelta(days=31)), "2026-13-01T00:00:00Z", "x" * 9000],
)
def test_a_silence_without_a_proper_end_is_none(value: str) -> None:
    story = Story().silenced(value).stalls()
    assert story.due() == [STALL]
    (said,) = [c for c in story.status.conditions if c.type == PAGING_DEGRADED]
    assert said.reason == Reason.SILENCE_INVALID
    assert SILENCE_ANNOTATION in said.message
    assert len(said.message) <= 1024
    assert [event.reason for event in story.decision.events] == [Reason.SILENCE_INVALID]
    assert not story.stalls().decision.events, "it is reported once"


BAD_LINE: Final = replace(ONE, problems=(PagingProblem(reason="ReceiverInvalid", message="line 3 is not a URL."),))


def test_a_bad_silence_is_reported_beside_a_bad_receiver() -> None:
    (event,) = Story(BAD_LINE).silenced("tomorrow").goes(ready()).decision.events
    assert event.reason == Reason.SILENCE_INVALID
    assert SILENCE_ANNOTATION in event.message
    assert event.message.endswith("line 3 is not a URL.")


def test_a_bad_receiver_is_reported_once_until_it_is_corrected() -> None:
    story = Story(BAD_LINE).goes(ready())
    assert [event.message for event in story.decision.events] == ["line 3 is not a URL."]
    assert not story.goes(ready()).decision.events
    story.facts = ONE
    assert PAGING_DEGRADED not in [c.type for c in story.goes(ready()).status.conditions]


def test_a_deletion_waits_for_the_last_words_but_not_for_long() -> None:
    story = Story().stalls().delivered().changed(deleting_since=NOW)
    story.goes(on_its_way(Reason.RELEASED), action=RemoveFinalizer())
    assert (story.decision.action, story.over()) == (None, [STALL])
    gone = story.goes(on_its_way(Reason.RELEASED), action=RemoveFinalizer(), after=HOLD_DELETION).decision
    assert isinstance(gone.action, RemoveFinalizer)
    assert [event.reason for event in gone.events] == [Reason.PAGE_FAILED]


def test_a_deletion_continues_as_soon_as_each_receiver_knows() -> None:
    story = Story().stalls().changed(deleting_since=NOW).goes(on_its_way(Reason.DELETING))
    story.delivered(PageState.RESOLVED)
    gone = story.goes(on_its_way(Reason.RELEASED), action=RemoveFinalizer(), after=timedelta(seconds=1)).decision
    assert isinstance(gone.action, RemoveFinalizer)
    assert not gone.events


LINKED: Final = replace(POLICY, runbook_url="https://docs.example/runbooks")
PAGE: Final = PageStatus(
    reason=STALL, condition="Stalled", severity=Severity.CRITICAL, message="no module\norders", opened_at=NOW
)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("see https://evil.example/login", "see https[:]//evil[.]example/login"),
        ("[fix it](HTTP://evil.example)", "[fix it](HTTP[:]//evil.example)"),
        ("slack://channel?id=1", "slack[:]//channel?id=1"),
        ("www.evil.example", "www[.]evil.example"),
        ("go to evil.example/login?a=b", "go to evil[.]example/login?a=b"),
        ("orders.job:transform raised java.lang.Error", "orders.job:transform raised java.lang.Error"),
        ("evil.example", "evil.example"),
        (
            "run kubectl annotate spl a streaming.fencepost.dev/paused-",
            "run kubectl annotate spl a streaming.fencepost.dev/paused-",
        ),
    ],
)
def test_no_tenants_text_is_a_link_in_a_page(written: str, said: str) -> None:
    """A message of the author's code, or a name, would look like the platform's own link to whoever is on call."""
    found = page_of(GOOD, GOOD.status, replace(PAGE, message=written), None, LINKED, NOW)
    assert found.details["What happened"] == said
    assert found.runbook == f"https://docs.example/runbooks/{STALL}.md", "the platform's own link works"


def test_what_a_page_says() -> None:
    risk = DataRisk(partition="orders/0", expires_at=NOW + timedelta(hours=3, minutes=10))
    failed = FailureStatus(count=2, epoch=4, at=NOW, reason=Reason.BAD_SPEC, message="m", remedy="r")
    status = replace(GOOD.status, lag=1234, restarts=2, epoch=4, data_risk=risk, failure=failed)
    said = page_of(GOOD, status, PAGE, None, LINKED, NOW)
    assert said.dedup_key == "fencepost/cluster-1/shop/orders/EntrypointNotFound/2026-01-01T12:00:00.000+00:00"
    assert said.shared_key == "fencepost/cluster-1/shop/*/EntrypointNotFound"
    assert said.runbook == "https://docs.example/runbooks/EntrypointNotFound.md"
    assert said.details == {
        "Pipeline": "shop/orders",
        "What happened": "no module orders",
        "Since": "2026-01-01 12:00:00 UTC",
        "Lag": "1234 records",
        "Time to data loss": "3 h 10 min, at 2026-01-01 15:10:00 UTC",
        "What was tried": ("2 restarts, epoch 4; 2 failures in a row, the last one BadSpec at 2026-01-01 12:00:00 UTC"),
        "What to do": said.details["What to do"],
        "Look at it": "kubectl describe spl -n shop orders",
    }
    remedy = GUIDANCE[Reason.ENTRYPOINT_NOT_FOUND].remedy
    assert said.details["What to do"].lower() == remedy.lower()
    assert page_of(GOOD, status, replace(PAGE, resolved_at=NOW), None, LINKED, NOW).summary.startswith("Resolved: ")
