"""Random histories: what must hold holds at every moment, and every pipeline arrives and is quiet."""

from __future__ import annotations

import pytest

from fakes.manifests import KEY
from fencepost_operator.api import State
from simulation import events, history
from simulation.__main__ import MODEL
from simulation.coverage import Coverage
from simulation.hash_seeds import outputs
from simulation.history import History
from simulation.playing import Play, play
from simulation.scheduling import without_event_loop

HISTORIES, SHARES = range(1000, 2000), 20
"""Seeds that together reach every rule; those from 0 to 999 do not. `make test` plays the first share."""
reached, played = Coverage(), set[int]()


@pytest.mark.parametrize("share", [0, *(pytest.param(share, marks=pytest.mark.long) for share in range(1, SHARES))])
def test_every_history_keeps_what_must_hold(share: int) -> None:
    coverage, failures = MODEL.campaign(HISTORIES[share::SHARES])
    reached.update(coverage)
    played.add(share)
    for seed, failure in sorted(failures.items())[:1]:
        pytest.fail(MODEL.explained(History.random(seed), failure), pytrace=False)


@pytest.mark.long
def test_the_histories_reach_every_phase_and_every_rule() -> None:
    """Runs after the histories: its figures are theirs."""
    if len(played) < SHARES:
        pytest.skip("needs all the histories")
    assert reached.missing() == ()
    assert {state for state, _ in reached.pairs} == {str(state) for state in State}
    assert {
        "claim under an open acceptance",
        "skip at a claim",
        "skip by a run",
        "new partition read",
        "held again by a rewind",
        "run ended by content: RecordFailed",
        "run ended by content: PoisonRecord",
        "record set aside",
    } <= reached.met.keys()


@pytest.mark.parametrize("workers", [False, True])
@pytest.mark.parametrize("volume", [False, True])
def test_a_drained_master_is_one_move_to_a_new_cluster(workers: bool, volume: bool) -> None:
    """Whether the run has workers left, and finishes its batch, or none."""
    with without_event_loop():
        playing = Play(History(0, history.Setup(volume=volume), (events.Drain(40.0, workers=workers, seconds=180.0),)))
        playing.run()
        (row,) = playing.world.table.rows.values()
        assert row.epoch == 2, playing.trace
        assert set(playing.world.sets[KEY]) == {2}
        playing.end()


def test_a_page_that_is_due_after_ten_minutes_is_not_a_restless_status() -> None:
    """A long batch (seed 1001938), or a rewind (1066), moves the page for a missing topic into the quiet time."""
    slow = (events.LoseTopic(2.1, missing=True), events.SlowBatches(38.2, seconds=180.0, lasts=20.0))
    assert play(History(1001938, history.Setup(rate=100.0, operators=2, driver_skew=-30.0), slow)) is None
    first, second = (events.Rewind(at, delete_output=True) for at in (23.0, 43.0))
    back = (first, events.AcceptLoss(29.0), second, events.LoseTopic(46.0))
    assert play(History(1066, history.Setup(), back)) is None


def test_a_loop_of_restarts_that_is_over_is_not_a_restless_status() -> None:
    """Minutes in which the operators are blind move its end into the quiet time (seed 3741)."""
    happens = (
        events.DeleteJob(15.3),
        events.Interrupt(39.0, call="mark_rewind", when="after", how="late", seconds=5.0),
        events.Drain(53.3, workers=True, seconds=180.0),
        events.Blindness(53.8, dependency="cassandra", seconds=1500.0),
        events.LoseNode(54.5, seconds=180.0, removed=True),
    )
    setup = history.Setup(operators=2, operator_skew=20.0, driver_skew=30.0, retain=False, volume=True)
    assert play(History(3741, setup, happens)) is None


def test_an_incident_of_an_event_that_ends_is_not_a_restless_status() -> None:
    """Half an hour after another Event of MixedOutput its incident resolves, in the quiet time (seed 1585)."""
    setup = history.Setup(operators=2, operator_skew=-20.0, max_attempts=4, batch_takes=3.0, stops_soon=True)
    happens = (
        events.Interrupt(1.3, call="install", when="after", how="late", seconds=90.0, operator=1),
        events.Stale(12.2, seconds=180.0, operator=1),
        events.ChangeImage(24.4, number=0),
        events.Freeze(40.4, seconds=20.0),
        events.Unseen(42.1, fact="release", seconds=90.0),
        events.Blindness(54.4, dependency="kafka", seconds=1500.0),
    )
    assert play(History(1585, setup, happens)) is None


def test_a_run_that_ends_unseen_after_the_last_fault_is_not_a_restless_status() -> None:
    """It dies without an event, and the operator looks three minutes later (seed 2015)."""
    happens = (events.LoseNode(25.0, seconds=45.0), events.FailingCode(46.0, lasts=1.0))
    assert play(History(2015, history.Setup(rate=0.0), happens)) is None


def test_a_scheduled_snapshot_is_not_a_restless_status() -> None:
    """An hour of catching up moves it into the quiet time (seed 56087)."""
    slow = (events.TooLargeBatches(1.6, lasts=20.0), events.SlowBatches(56.0, seconds=180.0, lasts=1.0))
    assert play(History(56087, history.Setup(rate=100.0), slow)) is None


def test_rewinds_beside_an_invalid_spec_are_over_before_the_quiet_time() -> None:
    """Two rewinds count and delete for minutes, while the last valid spec streams (seed 75949)."""
    happens = (
        events.Unseen(20.0, seconds=20.0),
        events.BreakSpec(30.0),
        events.Rewind(32.0, delete_output=True),
        events.LoseKafka(38.0, seconds=22.0),
        events.Rewind(54.0, delete_output=True),
    )
    assert play(History(75949, history.Setup(rate=0.0), happens)) is None


def test_an_incident_that_a_rewind_prolongs_is_no_restlessness() -> None:
    """The pipeline is not ready during a second rewind, so the end falls into the quiet time (seed 7798)."""
    happens = (
        events.LoseCassandra(14.0, seconds=20.0),
        events.DeleteJob(23.0),
        events.Rewind(23.0, delete_output=True),
        events.BreakImage(25.0, number=1, lasts=22.0),
        events.StuckPurges(39.0, seconds=11.0),
        events.Rewind(49.0, delete_output=True),
    )
    assert play(History(7798, history.Setup(), happens)) is None


def test_a_rewind_of_a_suspended_pipeline_whose_progress_was_deleted_waits() -> None:
    """Deletion with deletionPolicy: Delete keeps the epoch in a released row, without offsets (seed 13755)."""
    happens = (events.Delete(15.0), events.Create(57.0), events.Suspend(57.0), events.RewindToTime(61.0))
    assert play(History(13755, history.Setup(retain=False), happens)) is None


def test_a_rewind_to_a_time_keeps_its_target_when_the_topic_is_recreated() -> None:
    """Injected: between the two, the next step of the rewind; the next claim reports the loss (seed 307363)."""
    happens = (events.RewindToTime(21.0, delete_output=True), events.GrowTopic(24.0), events.RecreateTopic(30.0))
    assert play(History(307363, history.Setup(), happens)) is None


def test_a_backlog_of_minutes_takes_as_long_as_small_batches_need_to_grow() -> None:
    """The driver hangs for 25 minutes after batches of four records, the size of which doubles slowly (seed 321449)."""
    happens = (
        events.TooLargeBatches(5.0, fits=5, lasts=45.0),
        events.ChangeImage(19.0),
        events.Blindness(48.0, seconds=1500.0),
    )
    assert play(History(321449, history.Setup(operators=2, operator_skew=20.0), happens)) is None


@pytest.mark.parametrize(
    "made",
    [
        History(
            354757,
            history.Setup(),
            (events.Unseen(6.0, seconds=45.0), events.StepClock(32.0, seconds=1.0), events.LoseTopic(37.0)),
        ),
        History(
            351922,
            history.Setup(batch_takes=3.0),
            (
                events.StepClock(13.0, seconds=45.0),
                events.AcceptLoss(16.0, seconds=1.0),
                events.SlowBatches(57.0, seconds=180.0, lasts=1.0),
            ),
        ),
        History(353987, history.Setup(), (events.TooLargeBatches(9.0, lasts=1.0), events.StepClock(52.0, seconds=1.0))),
        History(363432, history.Setup(), (events.LoseTopic(14.5), events.StepClock(48.8, seconds=1.0))),
    ],
    ids=lambda made: str(made.seed),
)
def test_figures_wait_for_no_clock_that_was_put_right(made: History) -> None:
    """A window that began ten minutes ahead ended in the quiet time, or a lag grew for ten minutes (seed 353987)."""
    assert play(made) is None


def test_an_upgrade_takes_as_long_as_the_pieces_of_the_batch_that_the_old_code_finishes() -> None:
    """Injected: no memory for more than 38 of its 310 records, each piece takes three minutes (seed 555178)."""
    happens = (
        events.TooLargeBatches(4.0, lasts=5.0),
        events.SlowBatches(7.0, seconds=180.0, lasts=45.0),
        events.ChangeImage(30.0),
    )
    assert play(History(555178, history.Setup(), happens)) is None


def test_the_end_of_an_incident_that_is_sent_late_ends_no_later_one() -> None:
    """The other operator still has the earlier incident when the reason is open again (seed 559532)."""
    happens = (
        events.BreakImage(15.0, lasts=2.0, upgrades=True),
        events.Stale(18.0, seconds=22.0, operator=1),
        events.Rewind(34.0),
        events.StepClock(34.0, ahead=7200.0, seconds=5.0, operator=1),
    )
    assert play(History(559532, history.Setup(operators=2, max_attempts=2), happens)) is None


def test_a_restart_that_began_with_a_permit_needs_no_other_one_when_the_clock_steps() -> None:
    """Injected: ten minutes ahead, while other pipelines have all permits (seed 142)."""
    happens = (
        events.ChangeImage(22.0),
        events.HostileRecord(26.0),
        events.BusyFleet(36.0, seconds=45.0),
        events.StepClock(58.0, seconds=1.0),
    )
    assert play(History(142, history.Setup(), happens)) is None


def test_an_acceptance_of_ranges_withdraws_one_of_what_expires_later() -> None:
    """Injected: a second acceptance of the same loss, after a run claimed under the open one (seed 410498)."""
    happens = (
        events.Interrupt(4.0, seconds=1.0, operator=1),
        events.SlowBatches(10.0, seconds=2.0, lasts=20.0),
        events.KeepExpiring(19.9, seconds=11.0),
        events.AcceptLoss(20.0, opens=True, seconds=1.0),
        events.AcceptLoss(28.0),
        events.ChangeImage(28.0),
    )
    assert play(History(410498, history.Setup(operators=2), happens)) is None


def test_a_job_with_a_second_pod_is_not_finished_when_the_first_is_collected() -> None:
    """Injected: the node of the first pod is removed (seed 63413)."""
    lost = (events.StartTwin(56.2), events.LoseNode(58.0, seconds=5.0, removed=True))
    assert play(History(63413, history.Setup(), lost)) is None


def test_a_rewind_may_be_deleted_before_its_writer_has_the_answer() -> None:
    """Injected: the operator is frozen after the write (seed 52236)."""
    frozen = events.Interrupt(23.0, call="write_rewind", when="after", how="freeze", seconds=1.0)
    assert play(History(52236, history.Setup(), (frozen, events.Rewind(40.5), events.DeleteRewinds(42.0)))) is None


def test_a_rewind_leaves_a_batch_open_for_a_pipeline_that_takes_the_row_over() -> None:
    """Injected: the object is removed without its finalizer, and its status with it (seed 1027108)."""
    happens = (
        events.Rewind(7.0),
        events.Suspend(14.0),
        events.RemoveFinalizer(26.0),
        events.Create(27.0),
        events.BreakImage(28.0, lasts=1.0, upgrades=True),
    )
    assert play(History(1027108, history.Setup(), happens)) is None


def test_another_chart_is_one_planned_restart_on_a_new_cluster() -> None:
    with without_event_loop():
        playing = Play(History(0, history.Setup(operators=2), (events.NewChart(40.0),)))
        playing.run()
        (row,) = playing.world.table.rows.values()
        pipeline = playing.world.pipeline(KEY)
        assert pipeline is not None
        assert (row.epoch, pipeline.status.restarts, pipeline.status.failure) == (2, 0, None), playing.trace
        assert set(playing.world.sets[KEY]) == {2}
        playing.end()


def test_a_seed_is_the_same_history_on_each_machine() -> None:
    """Injected: another hash seed, which orders sets and dicts of strings differently."""
    code = (
        "from simulation.history import History; from simulation.playing import Play;"
        "from simulation.scheduling import without_event_loop\n"
        "with without_event_loop():\n"
        "    for seed in range(10):\n"
        "        playing = Play(History.random(seed)); playing.run(); print('\\n'.join(playing.trace))"
    )
    (trace,) = outputs(code)
    assert "commits under epoch" in trace


def test_a_history_prints_as_the_python_that_makes_it() -> None:
    for seed in range(50):
        made = History.random(seed)
        assert eval(str(made), {**vars(events), **vars(history)}) == made  # noqa: S307 - our own text


def test_playing_a_history_again_changes_nothing() -> None:
    made = History.random(7)
    assert play(made) == play(made)


def test_a_restart_without_a_permit_is_judged_once_when_the_clock_steps_and_returns() -> None:
    """The status shows the moment of its beginning a second time (seed 2006732)."""
    happens = (
        events.BusyFleet(7.0, seconds=20.0),
        events.ChangeImage(9.0),
        events.Resize(25.0),
        events.FailInstalls(31.0, seconds=22.0),
        events.StepClock(54.0, ahead=-600.0, seconds=1.0),
    )
    assert play(History(2006732, history.Setup(), happens)) is None


def test_an_operator_with_an_old_look_at_the_cluster_may_repair_it_while_a_rollback_is_in_effect() -> None:
    """Each repair comes after a longer pause (seed 2013372)."""
    happens = (
        events.BreakImage(15.0, lasts=5.0, upgrades=True),
        events.Stale(21.0, fact="cluster", seconds=45.0),
        events.Drain(55.0, seconds=1.0),
    )
    setup = history.Setup(operators=2, operator_skew=-20.0, rate=0.0, rolls_back=True)
    assert play(History(2013372, setup, happens)) is None


def test_a_restart_that_another_operator_moved_by_its_clock_does_not_begin_again() -> None:
    """It seems to begin now where the other operator recorded it ahead (seed 3016462)."""
    happens = (
        events.BreakImage(19.0, upgrades=True),
        events.BusyFleet(44.0, seconds=2.0),
        events.StepClock(45.0, seconds=1.0),
    )
    assert play(History(3016462, history.Setup(operators=2), happens)) is None


def test_a_run_that_fails_is_replaced_while_the_last_valid_spec_is_in_effect() -> None:
    """An operator whose clock is ahead takes the first pauses for over (seed 4000390)."""
    happens = (
        events.Suspend(8.0),
        events.BreakSpec(19.0),
        events.FailingCode(19.0, lasts=45.0),
        events.HostileRecord(33.0),
    )
    assert play(History(4000390, history.Setup(operators=2, operator_skew=20.0), happens)) is None


def test_a_second_job_of_a_run_that_ended_is_stopped_before_the_run_after_a_rewind() -> None:
    """An operator that was frozen creates the Job again as the first one ends, still without a pod (seed 4069236)."""
    happens = (
        events.BreakImage(28.0, upgrades=True),
        events.Interrupt(31.0, call="write_status", when="after", how="freeze", seconds=5.0, operator=1),
        events.Rewind(35.0),
    )
    assert play(History(4069236, history.Setup(operators=2), happens)) is None
