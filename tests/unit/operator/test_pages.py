"""Which incidents open, last and end; what is recorded of them; and what a page says."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

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

    def __init__(self, facts: PagingFacts = ONE) -> None:
        self.pipeline: Pipeline = GOOD
        self.now = NOW
        self.facts = facts
        self.events: tuple[Event, ...] = ()

    def goes(
        self,
        conditions: tuple[Condition, ...],
        *,
        after: timedelta = MINUTE,
        events: tuple[Event, ...] = (),
        action: RemoveFinalizer | None = None,
        **status: object,
    ) -> Decision:
        self.now += after
        said = replace(self.pipeline.status, conditions=conditions, **status)  # type: ignore[arg-type]
        decided = Decision(reason=Reason.STREAMING, status=said, events=events, action=action, requeue_after=5.0)
        found = with_pages(self.pipeline, decided, self.facts, POLICY, self.now)
        self.pipeline = replace(self.pipeline, status=found.status)
        return found

    def recovers(self, conditions: tuple[Condition, ...] | None = None) -> None:
        """The pipeline is ready until its fault counts as gone."""
        self.goes(conditions or ready())
        self.goes(conditions or ready(), after=HOLD)

    def delivered(self, outcome: PageState = PageState.OPENED) -> None:
        """All pages reached all receivers; the next decision records it."""
        sent = [PageSent(receiver=name, at=self.now, outcome=outcome) for name in self.facts.receivers or ()]
        receipts = [
            Receipt(reason=page.reason, opened_at=page.opened_at, sent=each)
            for page in self.status.pages
            for each in sent
        ]
        self.facts = replace(self.facts, receipts=tuple(receipts))

    @property
    def status(self) -> Status:
        return self.pipeline.status

    def open(self) -> list[str]:
        return [page.reason for page in self.status.pages if page.resolved_at is None]

    def over(self) -> list[str]:
        return [page.reason for page in self.status.pages if page.resolved_at is not None]


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
        (
            (condition("Ready", Reason.SUSPENDED), condition("RetentionRisk", Reason.DATA_EXPIRES_SOON)),
            Reason.DATA_EXPIRES_SOON,
            "critical",
        ),
    ],
)
def test_a_condition_pages_at_once(conditions: tuple[Condition, ...], reason: str, severity: str) -> None:
    story = Story()
    story.goes(conditions)
    (page,) = story.status.pages
    assert (page.reason, page.severity, page.opened_at, page.sent) == (reason, severity, story.now, ())


def test_a_condition_of_a_replica_whose_clock_is_ahead_pages_at_once() -> None:
    """Found by the simulation, seed 4966."""
    story = Story()
    story.goes(tuple(replace(each, last_transition_time=NOW + 2 * MINUTE) for each in stalled()))
    assert story.open() == [Reason.ENTRYPOINT_NOT_FOUND]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("DurabilityAtRisk", Reason.DURABILITY_AT_RISK), ("RetentionRisk", Reason.RETENTION_TOO_SHORT)],
)
def test_a_weak_setting_pages_after_an_hour(kind: str, reason: Reason) -> None:
    story = Story()
    weak = (*ready(), condition(kind, reason))
    story.goes(weak, after=59 * MINUTE)
    assert story.open() == []
    story.goes(weak)
    assert [(page.reason, page.severity) for page in story.status.pages] == [(reason, "warning")]


@pytest.mark.parametrize(
    "conditions",
    [
        ready(),
        (condition("Ready", Reason.SUSPENDED),),
        (condition("Ready", Reason.SUSPENDED), condition("TransactionStalled", Reason.TRANSACTION_STALLED)),
        (condition("Ready", Reason.SUSPENDED), condition("DurabilityAtRisk", Reason.DURABILITY_AT_RISK)),
        (*ready(), condition("SnapshotsUnreadable", Reason.SNAPSHOTS_UNREADABLE)),
        on_its_way(),
    ],
)
def test_a_pipeline_that_needs_no_action_sends_no_page(conditions: tuple[Condition, ...]) -> None:
    story = Story()
    story.goes(conditions)
    assert not story.status.pages


@pytest.mark.parametrize("reason", Reason)
def test_a_stalled_pipeline_pages_whatever_the_reason(reason: Reason) -> None:
    story = Story()
    story.goes(stalled(reason))
    assert story.open() == [reason]
    assert story.status.pages[0].severity != Severity.NONE


def test_an_unknown_reason_of_another_release_pages() -> None:
    story = Story()
    story.goes(stalled("FromTheFuture"))
    (page,) = story.status.pages
    assert page.severity == "warning"
    assert page_of(story.pipeline, story.status, page, None, POLICY, NOW).summary


def test_a_retry_that_fails_is_not_a_recovery() -> None:
    story = Story()
    story.goes(stalled())
    story.delivered()
    story.goes(on_its_way())
    assert story.open() == [Reason.ENTRYPOINT_NOT_FOUND]
    story.goes(stalled())
    (page,) = story.status.pages
    assert page.opened_at == NOW + MINUTE
    assert [sent.outcome for sent in page.sent] == [PageState.OPENED], "no receiver gets it again"


def test_another_reason_to_stall_takes_the_place_of_the_first() -> None:
    story = Story()
    story.goes(stalled())
    story.delivered()
    story.recovers(stalled(Reason.TRANSFORM_INVALID))
    assert (story.open(), story.over()) == ([Reason.TRANSFORM_INVALID], [Reason.ENTRYPOINT_NOT_FOUND])


def test_recovery_resolves_a_page_which_is_removed_once_each_receiver_knows() -> None:
    story = Story()
    story.goes(stalled())
    story.delivered()
    story.recovers()
    (page,) = story.status.pages
    assert page.resolved_at == story.now
    assert not page.is_reported_to("operator/pagerduty/1")
    story.goes(ready())
    assert story.over() == [Reason.ENTRYPOINT_NOT_FOUND], "a receiver does not know"
    story.delivered(PageState.RESOLVED)
    story.goes(ready())
    assert not story.status.pages


def test_an_incident_that_ends_before_its_page_was_sent_is_sent_nevertheless() -> None:
    story = Story()
    story.goes(stalled())
    story.recovers()
    (page,) = due_pages(story.pipeline, story.status, story.now)
    assert page.wanted is PageState.RESOLVED


def test_two_operators_do_not_correct_each_other() -> None:
    """Found in seed 56 of the simulation: each kept a receipt of its own, and wrote it over the other's."""
    story = Story()
    story.goes(stalled())
    story.delivered()
    story.goes(stalled())
    before = story.status.pages
    story.now += MINUTE
    story.delivered()
    story.goes(stalled())
    assert story.status.pages == before
    story.goes(ready())
    story.delivered(PageState.RESOLVED)
    story.pipeline = replace(
        story.pipeline,
        status=replace(
            story.status,
            pages=tuple(
                replace(page, sent=tuple(receipt.sent for receipt in story.facts.receipts))
                for page in story.status.pages
            ),
        ),
    )
    story.facts = UNKNOWN
    story.delivered()
    story.goes(ready())
    assert all(sent.outcome is PageState.RESOLVED for sent in story.status.pages[0].sent), (
        "what it knows is not unlearned"
    )


def test_a_receipt_is_forgotten_with_its_receiver() -> None:
    """Else a Secret that is created again each hour fills the status, until the API server refuses it."""
    story = Story()
    story.goes(stalled())
    for number in range(3):
        name = f"shop/apprise/{number}"
        story.facts = PagingFacts(receivers=(name,))
        story.delivered()
        story.goes(stalled())
        assert [each.receiver for each in story.status.pages[0].sent] == [name]
    story.facts = UNKNOWN
    story.goes(stalled())
    assert [each.receiver for each in story.status.pages[0].sent] == ["shop/apprise/2"]


def test_a_namespaces_secret_that_is_gone_keeps_what_its_receivers_know() -> None:
    """The operator's receiver got everything; the namespace's gets the end when its Secret is back."""
    story = Story(PagingFacts(receivers=("operator/pagerduty/1", "namespace/apprise/2")))
    story.goes(stalled())
    story.delivered()
    story.goes(stalled())
    story.facts = ONE
    story.recovers()
    story.delivered(PageState.RESOLVED)
    story.goes(ready())
    (page,) = story.status.pages
    assert {each.receiver: each.outcome for each in page.sent} == {
        "operator/pagerduty/1": PageState.RESOLVED,
        "namespace/apprise/2": PageState.OPENED,
    }
    story.facts = PagingFacts(receivers=("operator/pagerduty/1", "namespace/apprise/2"))
    story.delivered(PageState.RESOLVED)
    story.goes(ready())
    assert not story.status.pages


def test_a_warning_waits_for_no_receiver_of_critical_pages() -> None:
    story = Story(replace(ONE, critical_only=frozenset({"operator/pagerduty/1"})))
    story.goes((*ready(), condition("FallingBehind", Reason.FALLING_BEHIND)))
    story.recovers()
    assert not story.status.pages
    story.goes(stalled())
    story.delivered()
    story.recovers()
    assert story.over() == [Reason.ENTRYPOINT_NOT_FOUND]


def test_unknown_receivers_are_not_absent() -> None:
    story = Story(UNKNOWN)
    story.goes(stalled())
    story.recovers()
    assert story.over() == [Reason.ENTRYPOINT_NOT_FOUND]
    story.facts = NO_RECEIVERS
    story.goes(ready())
    assert not story.status.pages


def test_the_end_of_an_incident_is_not_repeated_forever() -> None:
    story = Story()
    story.goes(stalled())
    story.recovers()
    story.goes(ready(), after=GIVE_UP)
    assert not story.status.pages


def test_the_same_reason_again_is_a_new_incident() -> None:
    story = Story()
    story.goes(stalled())
    story.delivered()
    story.recovers()
    story.goes(stalled())
    (page,) = story.status.pages
    assert (page.opened_at, page.sent) == (story.now, ()), "an old receipt says nothing of a new incident"


def test_a_pipeline_that_does_not_come_up_pages_after_its_patience() -> None:
    story = Story()
    story.goes(on_its_way(Reason.KAFKA_UNREACHABLE))
    since = story.status.not_ready_since
    story.goes(on_its_way(Reason.STARTING), after=timedelta(minutes=9))
    assert (story.status.not_ready_since, story.open()) == (since, [])
    story.goes(on_its_way(Reason.KAFKA_UNREACHABLE), after=MINUTE)
    assert story.open() == [Reason.NOT_READY]
    story.goes(stalled())
    assert story.open() == [Reason.NOT_READY, Reason.ENTRYPOINT_NOT_FOUND]
    story.recovers()
    assert story.open() == []
    assert story.status.not_ready_since is None


def test_a_stop_that_is_part_of_a_restart_after_a_failure_counts() -> None:
    """Otherwise a pipeline whose runs never start would begin again with each stop of one."""
    story = Story()
    story.goes(on_its_way())
    since = story.status.not_ready_since
    story.goes(on_its_way(Reason.STOPPING), state=State.RESTARTING)
    assert story.status.not_ready_since == since
    story.goes(on_its_way(Reason.STOPPING), state=State.UPGRADING)
    assert story.status.not_ready_since is None


def test_planned_steps_do_not_count() -> None:
    story = Story()
    story.goes(on_its_way(Reason.STARTING))
    story.goes(on_its_way(Reason.REWINDING))
    story.goes(on_its_way(Reason.REWINDING), after=timedelta(hours=3))
    story.goes(on_its_way(Reason.STARTING))
    assert story.open() == []
    assert story.status.not_ready_since == story.now


def test_a_loop_of_restarts_pages_at_the_fourth_failure() -> None:
    failed = FailureStatus(count=3, epoch=4, at=NOW, reason=Reason.RUN_FAILED, message="m", remedy="r")
    story = Story()
    story.goes(on_its_way(Reason.BACKING_OFF), failure=failed)
    assert story.open() == []
    story.goes(on_its_way(Reason.BACKING_OFF), failure=replace(failed, count=4))
    assert story.open() == [Reason.BACKING_OFF]


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
    (page,) = story.status.pages
    assert (page.reason, page.severity) == (Reason.BACKING_OFF, "critical")
    assert "OutOfMemory" in page.message
    story.delivered()
    restarting(story, every=9 * MINUTE, times=20)
    (page,) = story.status.pages
    assert [sent.outcome for sent in page.sent] == [PageState.OPENED], "one incident, sent once"
    assert len(story.status.restarted_at) == 4
    story.recovers()
    story.goes(ready(), after=30 * MINUTE)
    story.goes(ready(), after=HOLD)
    assert story.over() == [Reason.BACKING_OFF]


@pytest.mark.parametrize(
    ("every", "reason"), [(11 * MINUTE, Reason.OUT_OF_MEMORY), (MINUTE, Reason.DRAINED)], ids=["seldom", "drained"]
)
def test_rare_and_planned_restarts_send_no_page(every: timedelta, reason: Reason) -> None:
    story = Story()
    restarting(story, every=every, times=12, reason=reason)
    assert not story.status.pages


def test_another_spec_begins_the_count_again_and_runs_without_progress_are_not_in_it() -> None:
    failed = FailureStatus(count=1, epoch=1, at=NOW, reason=Reason.BAD_SPEC, message="m", remedy="r")
    before = Status(restarts=3, failure=failed, run=RUN, restarted_at=(NOW, NOW, NOW))
    again = replace(before, restarts=4)
    assert len(restarted_at(before, again, NOW)) == 4
    assert len(restarted_at(before, replace(again, failure=replace(failed, count=2)), NOW)) == 3
    assert restarted_at(before, replace(again, run=replace(RUN, spec_hash="another")), NOW) == ()


def test_a_restart_loop_ends_when_a_user_suspends_the_pipeline() -> None:
    story = Story()
    restarting(story, every=MINUTE, times=4)
    assert story.open() == [Reason.BACKING_OFF]
    story.recovers((condition("Ready", Reason.SUSPENDED),))
    assert story.over() == [Reason.BACKING_OFF]


@pytest.mark.parametrize("reason", [Reason.DEAD_LETTER_WRITTEN, Reason.MIXED_OUTPUT])
def test_an_event_pages_until_none_has_come_for_half_an_hour(reason: Reason) -> None:
    event = (Event(EventType.WARNING, reason, "a record was set aside"),)
    story = Story()
    story.goes(ready(), events=event)
    story.goes(ready(), events=event, after=timedelta(minutes=29))
    story.goes(ready(), after=timedelta(minutes=29))
    assert story.open() == [reason]
    story.goes(ready(), after=MINUTE)
    assert story.over() == [reason]


def test_a_pause_keeps_incidents_and_records_receipts() -> None:
    story = Story()
    story.goes(stalled())
    story.pipeline = replace(story.pipeline, annotations={PAUSED_ANNOTATION: "true"})
    story.delivered()
    story.goes(ready())
    assert story.open() == [Reason.ENTRYPOINT_NOT_FOUND]
    assert story.status.pages[0].is_reported_to("operator/pagerduty/1")


def test_a_paused_pipeline_pages_when_its_data_expires_and_for_nothing_else() -> None:
    story = Story()
    story.goes(stalled())
    story.pipeline = replace(story.pipeline, annotations={PAUSED_ANNOTATION: "true"})
    risk, slow = condition("RetentionRisk", Reason.DATA_EXPIRES_SOON), condition("FallingBehind", Reason.FALLING_BEHIND)
    story.goes((*stalled(), risk, slow))
    assert story.open() == [Reason.ENTRYPOINT_NOT_FOUND, Reason.DATA_EXPIRES_SOON]
    story.delivered()
    story.goes(stalled())
    story.goes(stalled(), after=HOLD)
    assert story.over() == [Reason.DATA_EXPIRES_SOON]
    story.delivered()
    story.goes(stalled())
    assert story.open() == [Reason.ENTRYPOINT_NOT_FOUND]


def silenced(story: Story, value: str) -> None:
    story.pipeline = replace(story.pipeline, annotations={SILENCE_ANNOTATION: value})


def at(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_silence_defers_what_is_new_and_not_what_is_known() -> None:
    story = Story()
    story.goes(stalled())
    story.delivered()
    silenced(story, at(NOW + timedelta(hours=1)))
    story.goes((*stalled(), condition("RetentionRisk", Reason.DATA_EXPIRES_SOON)))
    assert [page.reason for page in due_pages(story.pipeline, story.status, story.now)] == ["EntrypointNotFound"]
    story.recovers()
    assert story.over() == [Reason.ENTRYPOINT_NOT_FOUND], "whoever knows of it hears that it is over"
    story.goes((*ready(), condition("RetentionRisk", Reason.DATA_EXPIRES_SOON)))
    story.goes(story.status.conditions, after=timedelta(hours=1))
    assert "DataExpiresSoon" in [p.reason for p in due_pages(story.pipeline, story.status, story.now)]


@pytest.mark.parametrize(
    "value",
    ["tomorrow", "2026-01-02", "2026-01-01T13:00:00", at(NOW + timedelta(days=31)), "2026-13-01T00:00:00Z", "x" * 9000],
)
def test_a_silence_without_a_proper_end_is_none(value: str) -> None:
    story = Story()
    silenced(story, value)
    found = story.goes(stalled())
    assert len(due_pages(story.pipeline, story.status, story.now)) == 1
    (said,) = [c for c in found.status.conditions if c.type == PAGING_DEGRADED]
    assert said.reason == Reason.SILENCE_INVALID
    assert SILENCE_ANNOTATION in said.message
    assert len(said.message) <= 1024
    assert [event.reason for event in found.events] == [Reason.SILENCE_INVALID]
    assert not story.goes(stalled()).events, "it is reported once"


def test_a_bad_silence_is_reported_beside_a_bad_receiver() -> None:
    story = Story(replace(ONE, problems=(PagingProblem(reason="ReceiverInvalid", message="line 3 is not a URL."),)))
    silenced(story, "tomorrow")
    (event,) = story.goes(ready()).events
    assert event.reason == Reason.SILENCE_INVALID
    assert SILENCE_ANNOTATION in event.message
    assert event.message.endswith("line 3 is not a URL.")


def test_a_bad_receiver_is_reported_once_until_it_is_corrected() -> None:
    story = Story(replace(ONE, problems=(PagingProblem(reason="ReceiverInvalid", message="line 3 is not a URL"),)))
    assert [event.message for event in story.goes(ready()).events] == ["line 3 is not a URL"]
    assert not story.goes(ready()).events
    story.facts = ONE
    assert PAGING_DEGRADED not in [c.type for c in story.goes(ready()).status.conditions]


def test_a_deletion_waits_for_the_last_words_but_not_for_long() -> None:
    story = Story()
    story.goes(stalled())
    story.delivered()
    story.pipeline = replace(story.pipeline, deleting_since=NOW)
    held = story.goes(on_its_way(Reason.RELEASED), action=RemoveFinalizer())
    assert (held.action, story.over()) == (None, [Reason.ENTRYPOINT_NOT_FOUND])
    gone = story.goes(on_its_way(Reason.RELEASED), action=RemoveFinalizer(), after=HOLD_DELETION)
    assert isinstance(gone.action, RemoveFinalizer)
    assert [event.reason for event in gone.events] == [Reason.PAGE_FAILED]


def test_a_deletion_continues_as_soon_as_each_receiver_knows() -> None:
    story = Story()
    story.goes(stalled())
    story.pipeline = replace(story.pipeline, deleting_since=NOW)
    story.goes(on_its_way(Reason.DELETING))
    story.delivered(PageState.RESOLVED)
    gone = story.goes(on_its_way(Reason.RELEASED), action=RemoveFinalizer(), after=timedelta(seconds=1))
    assert isinstance(gone.action, RemoveFinalizer)
    assert not gone.events


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
    page = PageStatus(
        reason="BadSpec", condition="Stalled", severity=Severity.CRITICAL, message=written, opened_at=NOW
    )  # fmt: skip
    config = replace(POLICY, runbook_url="https://docs.example/runbooks")
    found = page_of(GOOD, GOOD.status, page, None, config, NOW)
    assert found.details["What happened"] == said
    assert found.runbook == "https://docs.example/runbooks/BadSpec.md", "the platform's own link works"


def test_what_a_page_says() -> None:
    risk = DataRisk(partition="orders/0", expires_at=NOW + timedelta(hours=3, minutes=10))
    failed = FailureStatus(count=2, epoch=4, at=NOW, reason=Reason.BAD_SPEC, message="m", remedy="r")
    status = replace(GOOD.status, lag=1234, restarts=2, epoch=4, data_risk=risk, failure=failed)
    page = PageStatus(
        reason="EntrypointNotFound",
        condition="Stalled",
        severity=Severity.CRITICAL,
        message="no module\norders",
        opened_at=NOW,
    )
    config = replace(POLICY, runbook_url="https://docs.example/runbooks")
    said = page_of(GOOD, status, page, None, config, NOW)
    assert said.dedup_key == "fencepost/cluster-1/shop/orders/EntrypointNotFound"
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
    assert page_of(GOOD, status, replace(page, resolved_at=NOW), None, config, NOW).summary.startswith("Resolved: ")
