"""The simulation finds faults: each rule that is broken here, on purpose, is found within some histories."""

from __future__ import annotations

import hmac
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from fakes.world import START
from fencepost import errors
from fencepost.driver.planning import plan
from fencepost.driver.planning.claiming import Claiming
from fencepost.driver.recovery import lost_ranges
from fencepost.driver.recovery.bisection import Bisection
from fencepost.errors import BatchFailed, OutOfMemory
from fencepost.fence import Fence, FenceRow
from fencepost.spark import failures
from fencepost_operator.api import Condition, Pipeline
from fencepost_operator.decision import decide, outcome, status
from fencepost_operator.decision.cluster import readiness
from fencepost_operator.decision.context import Context, RunContext
from fencepost_operator.decision.reporting import conditions, incident_record, incidents, page_outbox
from fencepost_operator.decision.rewind import target
from fencepost_operator.decision.rules import handoff, health, preconditions, restart, start
from fencepost_operator.decision.run import blindness, liveness, open_batch, takeover
from fencepost_operator.observation import Known, Liveness, Observation, RunList, Unknown
from fencepost_operator.runtime import clock_steps
from fencepost_operator.runtime.passes import attempts, observer, reconciler
from simulation import events, operators
from simulation.__main__ import MODEL
from simulation.broken_fence import commits_are_unconditional, zombies_write_later
from simulation.drivers import SimulatedDriver
from simulation.history import History, Setup
from simulation.playing import Play, play
from simulation.scheduling import without_event_loop

HISTORIES = 400
"""In which each broken rule is found."""

Patch = pytest.MonkeyPatch


def never(*_args: Any, **_options: Any) -> None:
    """Conclude nothing."""


def without(rule: Callable[..., Any], rules: tuple[Callable[..., Any], ...]) -> tuple[Callable[..., Any], ...]:
    return tuple(kept for kept in rules if kept is not rule)


def starts_on_unknown(patch: Patch) -> None:
    """Take a list of runs that cannot be read for an empty one."""
    patch.setattr(decide, "PRECONDITIONS", without(preconditions.kubernetes_is_unreachable, decide.PRECONDITIONS))
    update = status.update_status

    def blind(pipeline: Any, observation: Any, config: Any) -> Any:
        seen = Known(()) if isinstance(observation.runs, Unknown) else observation.runs
        return update(pipeline, replace(observation, runs=seen), config)

    patch.setattr(decide, "update_status", blind)


def fence_is_not_bumped(patch: Patch) -> None:
    """Take over without a new epoch."""

    def taken(_fence: Fence, before: FenceRow, owner: str) -> FenceRow:
        return replace(before, owner=owner, driver=None, version=before.version + 1)

    patch.setattr(Fence, "_taken", taken)


def epoch_is_used_again(patch: Patch) -> None:
    """Start the next run under the epoch of the last one."""
    patch.setattr(start, "epoch_is_used", never)


def death_needs_no_proof(patch: Patch) -> None:
    """Take every driver that is not seen to live for a dead one."""
    judge = liveness.liveness_of

    def hasty(*args: Any, **options: Any) -> Liveness | None:
        found = judge(*args, **options)
        return Liveness.DEAD if found is Liveness.UNKNOWN else found

    patch.setattr(status, "liveness_of", hasty)


def acts_before_it_records(patch: Patch) -> None:
    """Record what is done after it is done."""
    record, act = reconciler.Reconciler._record, reconciler.Reconciler._act
    unrecorded: list[tuple[Any, Any]] = []

    async def record_later(self: Any, pipeline: Any, decision: Any) -> Any:
        if decision.action is None:
            return await record(self, pipeline, decision)
        unrecorded[:] = [(pipeline, decision)]
        return pipeline

    async def act_first(self: Any, *args: Any) -> Any:
        result = await act(self, *args)
        for pipeline, decision in unrecorded:
            await record(self, pipeline, decision)
        return result

    patch.setattr(reconciler.Reconciler, "_record", record_later)
    patch.setattr(reconciler.Reconciler, "_act", act_first)


def retries_at_once(patch: Patch) -> None:
    """Never back off."""
    patch.setattr(attempts, "retry_delay", lambda _count, **_: 0.0)
    patch.setattr(reconciler, "retry_delay", lambda _count, **_: 0.0)


def transition_times_move(patch: Patch) -> None:
    """Say at each look that a condition has just changed."""
    make = conditions._condition

    def fresh(context: Context, *args: Any) -> Condition:
        return replace(make(context, *args), last_transition_time=context.now.replace(microsecond=0))

    patch.setattr(conditions, "_condition", fresh)


def stalled_pipelines_loop(patch: Patch) -> None:
    """Take the fence over while the pipeline waits for its user."""
    rule = restart.failure_needs_a_person

    def looping(context: RunContext) -> Any:
        outcome = rule(context)
        return None if outcome is None else replace(outcome, action=takeover.take_over(context, "again").action)

    patch.setattr(decide, "RULES", tuple(looping if kept is rule else kept for kept in decide.RULES))


def stalled_sends_no_page(monkeypatch: Patch) -> None:
    monkeypatch.setattr(incidents, "PAGED", frozenset())


def incidents_end_at_once(monkeypatch: Patch) -> None:
    monkeypatch.setattr(incident_record.IncidentRecord, "_has_lasted", lambda *_: True)


def restarts_need_no_permit(monkeypatch: Patch) -> None:
    monkeypatch.setattr(operators.SimulatedPermits, "may_restart", lambda *_: True)


def ends_are_not_sent(monkeypatch: Patch) -> None:
    monkeypatch.setattr(page_outbox, "_is_done", lambda page, *_, **__: page.resolved_at is not None)


def pages_are_not_sent(monkeypatch: Patch) -> None:
    monkeypatch.setattr(reconciler, "due_pages", lambda *_: ())


def mixed_output_is_not_recorded(patch: Patch) -> None:
    patch.setattr(start, "mixed_output", lambda context, _run, _code: context.status.mixed_output)


def new_code_repeats_the_open_batch(patch: Patch) -> None:
    """Start the new code at once, whatever the old code has begun."""
    patch.setattr(open_batch, "_open_batch", never)


def acts_again_at_once(patch: Patch) -> None:
    """Make the next pass a part of this one for as long as there is something to do."""
    reconcile = reconciler.Reconciler.reconcile

    async def repeated(self: Any, key: Any, **how: Any) -> Any:
        again = await reconcile(self, key, **how)
        for _ in range(3):
            if again == 0:
                again = await reconcile(self, key, **how)
        return again

    patch.setattr(reconciler.Reconciler, "reconcile", repeated)


def pauses_are_ignored(patch: Patch) -> None:
    patch.setattr(decide, "is_paused", lambda _pipeline: False)


@dataclass(frozen=True)
class Mutation:
    """A broken rule, and what the simulation says about it."""

    breaks: Callable[[Patch], None]
    said: tuple[str, ...]


LATE = {
    "commits_are_unconditional",
    "death_needs_no_proof",
    "epoch_is_used_again",
    "mixed_output_is_not_recorded",
    "retries_at_once",
    "starts_on_unknown",
}
"""Found after hundreds of histories, which take up to a minute."""
MUTATIONS = {
    mutation.breaks.__name__: mutation
    for mutation in (
        Mutation(starts_on_unknown, ("a start on Unknown",)),
        Mutation(fence_is_not_bumped, ("not arrived", "epoch", "too many passes", "a hot loop")),
        Mutation(epoch_is_used_again, ("not arrived", "not quiet")),
        Mutation(death_needs_no_proof, ("run ",)),
        Mutation(
            commits_are_unconditional,
            ("offsets go back", "two drivers", "versions jump", "a commit passes", "the clock goes back"),
        ),
        Mutation(zombies_write_later, ("the clock goes back",)),
        Mutation(acts_before_it_records, ("starts before it is recorded",)),
        Mutation(retries_at_once, ("a hot loop",)),
        Mutation(stalled_sends_no_page, ("without a page",)),
        Mutation(incidents_end_at_once, ("is over after",)),
        Mutation(restarts_need_no_permit, ("without a permit",)),
        Mutation(ends_are_not_sent, ("open at the receiver",)),
        Mutation(pages_are_not_sent, ("not sent",)),
        Mutation(transition_times_move, ("Ready did not change",)),
        Mutation(stalled_pipelines_loop, ("a stalled pipeline loops",)),
        Mutation(mixed_output_is_not_recorded, ("rows of two codes without a record",)),
        Mutation(new_code_repeats_the_open_batch, ("rows of two codes without a record",)),
        Mutation(acts_again_at_once, ("more than one dangerous action",)),
        Mutation(pauses_are_ignored, ("a paused pipeline is written to", "a paused pipeline changes")),
    )
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in LATE else ()) for name in MUTATIONS]
)
def test_a_broken_rule_is_found(name: str, monkeypatch: Patch) -> None:
    mutation = MUTATIONS[name]
    mutation.breaks(monkeypatch)
    found = MODEL.first_failure(range(HISTORIES))
    assert found is not None, f"not found in {HISTORIES} histories"
    seed, failure = found
    assert any(said in failure.why for said in mutation.said), f"seed {seed}: {failure.why}"


def test_a_driver_that_claims_while_its_job_is_not_listed_is_not_taken_for_dead(monkeypatch: Patch) -> None:
    """Found in seed 1900, from which this history is shrunk; it breaks again without the correction.

    A new cluster for what was never seen would keep the two apart as well, and is left out here.
    """
    monkeypatch.setattr(readiness, "_has_an_unseen_driver", never)
    history = History(1900, Setup(), (events.Stale(0.0, fact="runs", seconds=30.0),))
    assert play(history) is None
    monkeypatch.setattr(status, "_is_claimed", never)
    failure = play(history)
    assert failure is not None
    assert "still lives" in failure.why


def test_a_rewind_does_not_wait_for_a_job_that_is_not_deleted() -> None:
    """Found in seed 40214, from which this history is shrunk."""
    stale = events.Stale(1.0, fact="runs", seconds=90.0)
    history = History(40214, Setup(rate=0.0), (stale, events.Rewind(40.0, delete_output=True), events.StartTwin(43.0)))
    assert play(history) is None


def test_a_rewind_waits_for_no_driver_of_an_epoch_without_a_claim() -> None:
    """Found in seed 23458, from which this history is shrunk."""
    upgrade = events.BreakImage(17.0, lasts=1.0, upgrades=True)
    history = History(23458, Setup(), (upgrade, events.Rewind(19.0, delete_output=True), events.DeleteJob(22.0)))
    assert play(history) is None


def test_a_rewind_without_proof_of_a_drivers_end_asks_its_user() -> None:
    """Found in seed 7023, from which this history is shrunk: the Job is deleted before its pod is seen."""
    happens = (
        events.Rewind(10.0, delete_output=True),
        events.Stale(35.0, fact="runs", seconds=22.0),
        events.Rewind(44.0, delete_output=True),
        events.DeleteJob(53.0),
    )
    assert play(History(7023, Setup(), happens)) is None


def test_a_run_that_was_never_seen_is_not_taken_for_asked_to_stop() -> None:
    """Found in seed 5001487, from which this history is shrunk."""
    happens = (
        events.Stale(2.0, fact="runs", seconds=20.0),
        events.Kill(4.0),
        events.DeleteJob(13.0),
        events.LoseTopic(16.0, missing=False),
    )
    assert play(History(5001487, Setup(operators=2, waits=True), happens)) is None


def test_new_code_does_not_wait_for_a_batch_of_a_topic_that_is_gone() -> None:
    """Found in seed 52430, from which this history is shrunk: the new topic may never have as many records."""
    happens = (events.RecreateTopic(6.0), events.AcceptLoss(16.0), events.BreakImage(19.0, upgrades=True))
    assert play(History(52430, Setup(rate=0.0), happens)) is None


def test_a_job_that_is_created_late_is_stopped_before_the_next_run_starts() -> None:
    """Found in seed 67796, from which this history is shrunk."""
    happens = (
        events.Interrupt(5.4, call="start", how="late", seconds=45.0, operator=1),
        events.BreakImage(17.0, upgrades=True),
        events.LoseKafka(18.0, seconds=45.0),
    )
    assert play(History(67796, Setup(operators=2, operator_skew=20.0), happens)) is None


def test_the_next_run_shares_no_cluster_with_one_that_a_rewind_replaced_before_it_was_seen(monkeypatch: Patch) -> None:
    """Found in seed 92466, from which this history is shrunk."""
    happens = (
        events.BreakImage(15.0, number=1, code=1),
        events.Drain(16.6, workers=True, seconds=1.0),
        *(events.Stale(at, fact="release", seconds=0.1) for at in (31.1, 43.1)),  # an event, as runs 3 and 4 end
        events.Stale(55.0, fact="runs", seconds=5.0),
        events.Rewind(57.0),
    )
    is_corrected(History(92466, Setup(), happens), "_has_an_unseen_driver", monkeypatch)


def test_the_next_run_shares_no_cluster_with_one_whose_pod_was_never_seen(monkeypatch: Patch) -> None:
    """Found in seed 98554, from which this history is shrunk: one operator's list is older than the run's Job."""
    happens = (
        events.Stale(5.0, fact="runs", seconds=20.0, operator=1),
        events.DeletePod(17.0, force=True),
        events.BreakImage(20.0, upgrades=True),
        events.Stale(21.8, fact="runs", seconds=2.0),
        events.BreakImage(23.0),
    )
    history = History(98554, Setup(operators=2, operator_skew=-20.0), happens)
    is_corrected(history, "_has_an_unseen_driver", monkeypatch)


def test_the_next_run_shares_no_cluster_with_an_older_one_whose_job_is_created_late(monkeypatch: Patch) -> None:
    """Found in seed 14718, from which this history is shrunk."""
    happens = (
        events.Interrupt(33.0, how="late"),
        events.NewChart(40.0),
        events.KillAtClaim(43.0),
        events.DeleteJob(45.4),
        events.Unseen(47.0, seconds=1.0),
    )
    is_corrected(History(14718, Setup(operators=2), happens), "_has_an_older_driver", monkeypatch)


def test_an_end_that_was_watched_proves_nothing_with_an_older_list(monkeypatch: Patch) -> None:
    """Found in seed 336296, from which this history is shrunk: the list lacks a second pod of the run."""
    happens = (
        events.NewChart(6.0),
        events.Stale(12.9, fact="runs", seconds=22.0),
        events.ExpireRecords(17.0),
        events.BreakImage(24.0, lasts=1.0, upgrades=True),
        events.StartTwin(26.0),
    )
    history = History(336296, Setup(operators=2), happens)
    assert play(history) is None
    usual, newest = observer.Observer._run_terminated, Known(RunList(runs=(), version=sys.maxsize))
    monkeypatch.setattr(observer.Observer, "_run_terminated", lambda self, run, _: usual(self, run, newest))
    failure = play(history)
    assert failure is not None
    assert "still lives" in failure.why


def test_a_rewind_of_one_partition_leaves_the_open_batch_of_another_to_its_code(monkeypatch: Patch) -> None:
    """Found in seed 134, from which this history is shrunk."""
    history = History(134, Setup(), (events.Rewind(13.0), events.ChangeImage(22.0)))
    assert play(history) is None

    monkeypatch.setattr(FenceRow, "left_open", lambda _row, _offsets: {})
    failure = play(history)
    assert failure is not None
    assert "rows of two codes without a record" in failure.why


@pytest.mark.parametrize("dependency", ["kafka", "cassandra"])
def test_a_driver_that_hangs_while_no_operator_sees_it_is_paged(
    dependency: events.Dependency, monkeypatch: Patch
) -> None:
    history = History(0, Setup(), (events.Blindness(30.0, dependency=dependency, seconds=1500.0),))
    assert play(history) is None
    for module in (blindness, outcome, health):
        monkeypatch.setattr(module, "is_blind", never)
    failure = play(history)
    assert failure is not None
    assert failure.kind == "minutes without commits or a page"


def test_a_driver_that_hangs_is_replaced_or_reported_within_minutes(monkeypatch: Patch) -> None:
    """Broken on purpose: an operator that does not see Kafka says that all is well."""
    history = History(0, Setup(), (events.Hang(30.0), events.Blindness(30.5, seconds=600.0, hangs=False)))
    assert play(history) is None
    monkeypatch.setattr(decide, "RULES", without(health.reading_is_unobserved, decide.RULES))
    failure = play(history)
    assert failure is not None
    assert failure.kind == "minutes without commits or a reason"


@pytest.mark.parametrize("ahead", [-7200.0, 600.0, 7200.0])
def test_a_step_of_the_wall_clock_replaces_no_run(ahead: float, monkeypatch: Patch) -> None:
    """A pass a second before the step sees records that wait, which the step must not make ten minutes old."""
    history = History(0, Setup(), (events.Retry(40.2), events.StepClock(41.2, ahead=ahead)))
    assert epochs(history) == 1
    if ahead > 0:
        monkeypatch.setattr(clock_steps.ClockSteps, "by_this_clock", lambda _self, pipeline, *_: pipeline)
        assert epochs(history) > 1


def test_another_operators_clock_backs_out_no_next_run(monkeypatch: Patch) -> None:
    """An operator that is an hour ahead looks at a next run that the other one has just recorded."""
    happens = (events.StepClock(30.0, ahead=3600.0, seconds=90.0, operator=1), events.ChangeImage(40.0, number=2))
    history = History(0, Setup(operators=2, hands_over=True), happens)
    assert play(history) is None
    monkeypatch.setattr(handoff, "waited_for", lambda context, found: context.now - found.since)
    failure = play(history)
    assert failure is not None
    assert "is backed out as NeverClaimed after" in failure.why


def test_another_operators_clock_is_not_a_grace_period(monkeypatch: Patch) -> None:
    """One that is two hours behind asks a run to stop, and the other one's list is older than its pod (seed 2512).

    How long that one has seen the node would keep the two drivers apart as well, and is left out here.
    """
    happens = (
        events.StepClock(8.0, ahead=-7200.0, seconds=90.0),
        events.Stale(38.0, seconds=22.0, operator=1),
        events.ChangeImage(46.0),
    )
    history = History(2512, Setup(operators=2), happens)
    assert play(history) is None
    usual = clock_steps.ClockSteps.measured

    def by_recorded_times(
        self: clock_steps.ClockSteps, found: Pipeline, pipeline: Pipeline, observation: Observation, monotonic: float
    ) -> Observation:
        run = pipeline.status.run
        return replace(
            usual(self, found, pipeline, observation, monotonic),
            stop_measured_since=run.stop_requested_at if run is not None else None,
            node_measured_since=START - timedelta(days=1),
        )

    monkeypatch.setattr(clock_steps.ClockSteps, "measured", by_recorded_times)
    failure = play(history)
    assert failure is not None
    assert failure.why.startswith("run 5 starts on cluster generation 4, where ")


@pytest.mark.long
def test_a_standby_that_begins_its_own_epoch_is_found(monkeypatch: Patch) -> None:
    """Broken on purpose: it takes over as soon as it is warm, and so does the next one, so that none ever waits."""
    history = History(0, Setup(stands_by=True), ())
    assert play(history) is None

    def take_over(driver: SimulatedDriver) -> bool:
        row = driver.fence.read()
        if row is not None and driver.config.awaits_epoch and row.epoch < driver.config.epoch:
            driver.fence.take_over(row, owner=row.owner)
        return False

    monkeypatch.setattr(SimulatedDriver, "_awaits_its_epoch", take_over)
    failure = play(history)
    assert failure is not None
    assert failure.why == "the standby is neither warm nor waits for long"


EXPIRING = History(
    0,
    Setup(),
    (
        events.KeepExpiring(20.0, seconds=45.0),
        events.AcceptLoss(21.0, opens=True, seconds=90.0),
        events.KillAtClaim(25.0),
    ),
)
"""Retention deletes records while a loss is accepted as an open one, and the run that claims under that is killed."""
GROWING = History(0, Setup(), (events.GrowTopic(30.0), events.RewindToTime(48.0, ago=30.0)))


def hostile(kind: str) -> History:
    """Return a history with one record that fails; it is to be set aside."""
    return History(0, Setup(sets_aside=True), (events.HostileRecord(20.0, kind=kind),))


def seals_are_not_checked(patch: Patch) -> None:
    patch.setattr(hmac, "compare_digest", lambda *_: True)


def seals_are_of_no_attempt(patch: Patch) -> None:
    patch.setattr(errors, "_attempt", lambda: "")


def lost_memory_is_searched_in_texts(patch: Patch) -> None:
    known = failures._known

    def searched(error: Exception, *, is_warm_up: bool) -> Any:
        without = failures.WITHOUT_MEMORY.search(str(error))
        return OutOfMemory("a process") if without else known(error, is_warm_up=is_warm_up)

    patch.setattr(failures, "_known", searched)


def outages_are_searched_in_texts(patch: Patch) -> None:
    def searched(error: Exception, message: str) -> Any:
        return BatchFailed(message) if "DependencyDown" in str(error) else None

    patch.setattr(failures, "outage", searched)


def sinks_suspect_no_record(patch: Patch) -> None:
    patch.setattr(failures, "_kind", lambda _error: BatchFailed)


def whole_pieces_are_suspects(patch: Patch) -> None:
    """Set aside without cutting a piece down to the one record that fails."""
    patch.setattr(Bisection, "failed", lambda self: self._pieces[-1][0])


def forgets_acceptances(patch: Patch) -> None:
    patch.setattr(FenceRow, "accepted_after", lambda *_: {})


def skips_what_was_accepted_for_later(patch: Patch) -> None:
    """Skip up to where a user accepts what retention may delete."""
    usual = lost_ranges._opened

    def further(found: Any, report: Any, log: Any) -> Any:
        return usual(found, report, replace(log, begins=log.ends))

    patch.setattr(lost_ranges, "_opened", further)


def skips_without_a_record(patch: Patch) -> None:
    patch.setattr(Claiming, "_note", never)


def new_partitions_are_not_held(patch: Patch) -> None:
    patch.setattr(plan, "_is_passed", lambda *_: True)


def rewinds_hold_no_partition(patch: Patch) -> None:
    patch.setattr(target, "_grown_since", lambda *_: set())


@pytest.mark.parametrize(
    ("history", "breaks", "said"),
    [
        (EXPIRING, forgets_acceptances, "an accepted loss is reported again"),
        (EXPIRING, skips_what_was_accepted_for_later, "records that Kafka holds are skipped"),
        (EXPIRING, skips_without_a_record, "what is skipped is not recorded"),
        (GROWING, new_partitions_are_not_held, "a new partition is read before older records"),
        (GROWING, rewinds_hold_no_partition, "a new partition is read before older records"),
        (hostile("loss"), seals_are_not_checked, "a record's content decides the verdict"),
        (hostile("seal"), seals_are_of_no_attempt, "a record's content decides the verdict"),
        (hostile("memory"), lost_memory_is_searched_in_texts, "a record's content decides the verdict"),
        (hostile("outage"), outages_are_searched_in_texts, "a record's content decides the verdict"),
        (hostile("sink"), sinks_suspect_no_record, "a record's content decides the verdict"),
        (hostile("loss"), whole_pieces_are_suspects, "a good record is set aside"),
    ],
)
def test_a_broken_rule_of_the_data_path_is_found(
    history: History, breaks: Callable[[Patch], None], said: str, monkeypatch: Patch
) -> None:
    assert play(history) is None
    breaks(monkeypatch)
    failure = play(history)
    assert failure is not None
    assert failure.kind == said


def epochs(history: History) -> int:
    """Return the epoch in which a history ends."""
    with without_event_loop():
        playing = Play(history)
        playing.run()
        playing.end()
    (row,) = playing.world.table.rows.values()
    return row.epoch


def is_corrected(history: History, correction: str, monkeypatch: Patch) -> None:
    """Check that a history holds, and that two drivers share a cluster without the correction."""
    assert play(history) is None
    monkeypatch.setattr(readiness, correction, never)
    failure = play(history)
    assert failure is not None
    assert "still lives" in failure.why


@pytest.mark.long
def test_a_failure_is_shown_as_the_smallest_history(monkeypatch: Patch) -> None:
    death_needs_no_proof(monkeypatch)
    found = MODEL.first_failure(range(HISTORIES))
    assert found is not None
    seed, failure = found
    shown = MODEL.explained(History.random(seed), failure)
    assert f"seed {seed}: " in shown
    events = [line for line in shown.partition("\n\n")[2].partition("\n\n")[0].splitlines() if "at=" in line]
    assert 1 <= len(events) <= min(2, len(History.random(seed).events))
    assert "BROKEN: " in shown
