"""Two regions and one fence: no history has two committers, and each rule that is broken here is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fencepost.fence import Fence, FenceRow
from fencepost_operator.decision import decide
from fencepost_operator.decision.context import Context, RunContext
from fencepost_operator.decision.failover import asked_target
from fencepost_operator.decision.rules import deletion, failover
from fencepost_operator.observation import Known, LifeSigns
from fencepost_operator.runtime.passes import signs_of_life
from fencepost_operator.runtime.passes.signs_of_life import SignsOfLife
from simulation.broken_fence import commits_are_unconditional
from simulation.failover.__main__ import MODEL
from simulation.failover.history import (
    CutOff,
    Delete,
    Event,
    Flap,
    FreezeRegion,
    History,
    LoseRegion,
    LoseStore,
    Move,
    NoPods,
    Rewind,
    Setup,
    Suspend,
)
from simulation.failover.playing import Reached, play

Patch = pytest.MonkeyPatch
HISTORIES = 60
"""In which each broken rule is found."""


def never(*_args: Any, **_options: Any) -> None:
    """Conclude nothing, or do nothing."""


def epochs_stay(patch: Patch) -> None:
    """Take over without a new epoch."""

    def taken(_fence: Fence, before: FenceRow, owner: str) -> FenceRow:
        return replace(before, owner=owner, driver=None, version=before.version + 1)

    patch.setattr(Fence, "_taken", taken)


def owners_give_no_signs(patch: Patch) -> None:
    """Give one sign, and no more: an owner that has nothing to commit looks lost."""
    give = SignsOfLife._give

    async def once(self: SignsOfLife, *args: Any) -> None:
        if self._number == 0:
            await give(self, *args)

    patch.setattr(SignsOfLife, "_give", once)


def signs_are_not_read(patch: Patch) -> None:
    """Take the commits alone for a sign of life."""
    look = SignsOfLife._look

    async def deaf(self: SignsOfLife, pipeline: Any, spec: Any, row: FenceRow, cluster: str, *, is_ours: bool) -> Any:
        before = self._seen.get(pipeline.key)
        found = await look(self, pipeline, spec, row, cluster, is_ours=is_ours)
        seen = self._seen.get(pipeline.key)
        if before is not None and seen is not None and before.evidence[:2] == seen.evidence[:2]:
            self._seen[pipeline.key] = replace(before, looked_at=seen.looked_at)
            if isinstance(found, Known) and found.value is not None:
                silent_for = self.ports.clock.monotonic() - before.since
                return Known(replace(found.value, silent_for=silent_for))
        return found

    patch.setattr(SignsOfLife, "_look", deaf)


def silence_outlives_an_outage(patch: Patch) -> None:
    """Count the time in which the fence did not answer as silence of the owner."""
    patch.setattr(signs_of_life, "LONGEST_GAP", 1_000.0)


def silence_takes_nothing_over(patch: Patch) -> None:
    patch.setattr(failover, "_take_over", never)


def returning_clusters_keep_their_spark_cluster(patch: Patch) -> None:
    patch.setattr(failover, "_remove", never)


def takeovers_do_not_pause(patch: Patch) -> None:
    patch.setattr(failover, "may_take_over_at", never)


def moves_do_not_drain(patch: Patch) -> None:
    """Hand over while the run holds the fence."""
    rule = failover.move_is_asked_for

    def hasty(context: RunContext) -> Any:
        run = context.status.run
        is_active = run is not None and run.is_active
        ended = replace(run, ended_at=context.now) if run is not None and is_active else run
        return rule(replace(context, status=replace(context.status, run=ended)))

    rules = tuple(hasty if one is rule else one for one in decide.RULES)
    patch.setattr(decide, "RULES", rules)


def moves_go_to_lost_clusters(patch: Patch) -> None:
    """Hand over without a sign of life from there."""
    rule = failover.move_is_asked_for

    def hasty(context: RunContext) -> Any:
        target = asked_target(context.pipeline, context.row)
        signs = LifeSigns(cluster=target or "", silent_for=0.0, has_moved=True)
        return rule(replace(context, observation=replace(context.observation, other_cluster=Known(signs))))

    rules = tuple(hasty if one is rule else one for one in decide.RULES)
    patch.setattr(decide, "RULES", rules)


def moves_take_old_signs(patch: Patch) -> None:
    patch.setattr(failover, "MISSED", 1_000.0)


def signs_have_no_notes(patch: Patch) -> None:
    patch.setattr(signs_of_life, "_note", lambda *_args, **_options: "")


def owners_have_no_notes(patch: Patch) -> None:
    note = signs_of_life._note
    patch.setattr(signs_of_life, "_note", lambda pipeline, is_ours: "" if is_ours else note(pipeline, is_ours=False))


def deletions_release_what_others_own(patch: Patch) -> None:
    end = deletion._end

    def hasty(context: Context, row: FenceRow | None) -> Any:
        uid = row.owner.partition("/")[0] if row is not None else ""
        return end(replace(context, config=replace(context.config, cluster_uid=uid)), row)

    patch.setattr(deletion, "_end", hasty)


ALL: list[Callable[[Patch], None]] = [
    commits_are_unconditional,
    epochs_stay,
    owners_give_no_signs,
    signs_are_not_read,
    returning_clusters_keep_their_spark_cluster,
    moves_do_not_drain,
]


@pytest.mark.parametrize("breaks", ALL, ids=lambda breaks: breaks.__name__)
def test_a_broken_rule_of_failover_is_found(breaks: Callable[[Patch], None], monkeypatch: Patch) -> None:
    breaks(monkeypatch)
    assert MODEL.first_failure(range(HISTORIES)) is not None


@pytest.mark.parametrize(
    ("breaks", "setup", "events", "said"),
    [
        (signs_have_no_notes, Setup(), [Suspend(at=60.0, regions=(1,), seconds=200.0), Move(at=100.0)],
         "moved to west, which is suspended"),
        (owners_have_no_notes, Setup(suspends_moved=1), [Move(at=60.0)],
         "moved to a cluster that cannot run it, and stays"),
        (moves_take_old_signs, Setup(),
         [Suspend(at=90.0, seconds=90.0), Move(at=100.0), LoseRegion(at=150.0, region=1, seconds=60.0)],
         "moved to west, whose last sign is 0:00:32 old"),
        (deletions_release_what_others_own, Setup(), [Delete(at=60.0, regions=(1,), policy="Delete", seconds=0.0)],
         "the row of east is released, and its pipeline is not deleted"),
    ],
)  # fmt: skip
def test_a_broken_rule_about_what_users_do_is_found(
    breaks: Callable[[Patch], None], setup: Setup, events: list[Any], said: str, monkeypatch: Patch
) -> None:
    history = History(seed=0, setup=setup, events=tuple(events))
    assert play(history) is None
    breaks(monkeypatch)
    found = play(history)
    assert found is not None
    assert found.why == said


@pytest.mark.parametrize(
    ("breaks", "events", "said"),
    [
        (silence_takes_nothing_over, [LoseRegion(at=60.0, seconds=200.0)], "west does not run though east is lost"),
        (
            moves_go_to_lost_clusters,
            [LoseRegion(at=55.0, region=1, seconds=200.0), Move(at=100.0)],
            "moved to west, which is lost",
        ),
    ],
)
def test_a_broken_rule_about_a_lost_region_is_found(
    breaks: Callable[[Patch], None], events: list[Any], said: str, monkeypatch: Patch
) -> None:
    history = History(seed=0, setup=Setup(), events=tuple(events))
    assert play(history) is None
    breaks(monkeypatch)
    found = play(history)
    assert found is not None
    assert found.why == said


IN_TURN = (
    Flap(at=60.0, region=0, away=45.0, there=45.0, seconds=1_100.0),
    Flap(at=105.0, region=1, away=45.0, there=45.0, seconds=1_055.0),
)


def test_clusters_that_lose_the_store_in_turn_do_not_pass_the_pipeline_to_and_fro(monkeypatch: Patch) -> None:
    """Each outage is longer than takeOverAfter: without a pause between takeovers there is one for each."""
    history, reached = History(seed=0, setup=Setup(), events=IN_TURN, troubled=1_200.0), Reached()
    assert play(history, reached) is None
    assert 2 <= reached.met["taken over"] <= 10
    takeovers_do_not_pause(monkeypatch)
    found = play(history)
    assert found is not None
    assert "takes over again" in found.why


def test_a_loss_after_moves_that_were_taken_back_is_the_first_one() -> None:
    moves = (Move(at=60.0), Move(at=210.0), Move(at=360.0), Move(at=510.0))
    events: tuple[Event, ...] = (*moves, LoseRegion(at=535.0, region=1, seconds=300.0))
    reached = Reached()
    failure = play(History(seed=0, setup=Setup(suspends_moved=3), events=events, troubled=900.0), reached)
    assert failure is None, failure
    assert dict(reached.met) == {"moved": 4, "taken back": 3, "taken over": 1}


def test_an_outage_that_counts_as_silence_is_found(monkeypatch: Patch) -> None:
    """The store is lost, and the one that waits reaches it a little before the owner, which has had no way to sign."""
    events = (
        NoPods(at=40.0, seconds=140.0),  # no driver that gives signs too
        CutOff(at=61.0, region=1, seconds=60.0),
        CutOff(at=61.0, region=0, seconds=68.0),
    )
    outage = History(seed=0, setup=Setup(rate=0.0), events=events)
    assert play(outage) is None
    silence_outlives_an_outage(monkeypatch)
    found = play(outage)
    assert found is not None
    assert "deaf" in found.why


def test_histories_of_two_regions_hold() -> None:
    reached, failures = MODEL.campaign(range(1_000, 1_020))
    assert not failures
    assert reached.met["taken over"] > 0
    assert reached.met["moved"] > 0


@pytest.mark.long
def test_two_hundred_histories_of_two_regions_hold() -> None:
    _, failures = MODEL.campaign(range(2_000, 2_200))
    assert not failures


IDLE = Setup(rate=0.0)


@pytest.mark.parametrize(
    ("setup", "events", "met"),
    [
        pytest.param(Setup(), [LoseRegion(at=60.0, seconds=120.0)], {"taken over": 1}, id="region lost"),
        pytest.param(IDLE, [LoseRegion(at=60.0, seconds=120.0)], {"taken over": 1}, id="idle region lost"),
        pytest.param(
            Setup(), [LoseRegion(at=60.0, seconds=120.0, drivers=False)], {}, id="operator lost, and its driver commits"
        ),
        pytest.param(Setup(), [CutOff(at=60.0, seconds=120.0)], {"taken over": 1}, id="region cut off from the fence"),
        pytest.param(Setup(), [CutOff(at=60.0, region=1, seconds=120.0)], {}, id="waiting region cut off"),
        pytest.param(Setup(), [FreezeRegion(at=60.0, seconds=120.0)], {"taken over": 1}, id="region frozen"),
        pytest.param(Setup(), [LoseStore(at=60.0, seconds=120.0)], {}, id="store lost"),
        pytest.param(IDLE, [LoseStore(at=60.0, seconds=120.0)], {}, id="store lost while idle"),
        pytest.param(IDLE, [], {}, id="nothing happens"),
        pytest.param(Setup(), [NoPods(at=60.0, seconds=120.0)], {}, id="no commits, and the operator lives"),
        pytest.param(Setup(), [Move(at=60.0)], {"moved": 1}, id="moved"),
        pytest.param(Setup(hands_over=True), [Move(at=60.0)], {"moved": 1}, id="moved where drivers hand over"),
        pytest.param(Setup(), [Move(at=60.0), Move(at=150.0)], {"moved": 2}, id="moved and moved back"),
        pytest.param(
            Setup(),
            [LoseRegion(at=55.0, region=1, seconds=120.0), Move(at=100.0)],
            {"moved": 1},
            id="a move waits for a lost region",
        ),
        pytest.param(
            Setup(),
            [Suspend(at=55.0, regions=(1,), seconds=100.0), Move(at=100.0)],
            {"moved": 1},
            id="a move waits for a suspended region",
        ),
        pytest.param(
            Setup(suspends_moved=1),
            [Move(at=60.0)],
            {"moved": 1, "taken back": 1},
            id="moved to a region that is suspended then",
        ),
        pytest.param(Setup(), [Suspend(at=60.0, regions=(0, 1), seconds=100.0)], {}, id="suspended in both"),
        pytest.param(
            Setup(),
            [Suspend(at=60.0, regions=(1,), seconds=200.0), LoseRegion(at=100.0, seconds=60.0)],
            {},
            id="the one that is left is suspended",
        ),
        pytest.param(Setup(), [Rewind(at=60.0)], {"rewound": 1}, id="rewound"),
        pytest.param(Setup(), [Delete(at=60.0, seconds=0.0)], {"taken over": 1}, id="deleted where it runs, retained"),
        pytest.param(Setup(), [Delete(at=60.0, policy="Delete", seconds=0.0)], {}, id="deleted where it runs"),
        pytest.param(
            Setup(), [Delete(at=60.0, regions=(1,), policy="Delete", seconds=0.0)], {}, id="deleted where it waits"
        ),
        pytest.param(
            Setup(),
            [Delete(at=60.0, regions=(0, 1), policy="Delete", seconds=60.0)],
            {},
            id="deleted, and created again",
        ),
        pytest.param(Setup(), [Delete(at=60.0, regions=(0, 1), seconds=0.0)], {}, id="deleted in both, retained"),
        pytest.param(
            Setup(stands_by=True), [LoseRegion(at=60.0, seconds=60.0)], {"taken over": 1}, id="with warm standbys"
        ),
    ],
)
def test_what_a_fault_leads_to(setup: Setup, events: list[Any], met: dict[str, int]) -> None:
    reached = Reached()
    failure = play(History(seed=0, setup=setup, events=tuple(events)), reached)
    assert failure is None, failure
    assert dict(reached.met) == met
