"""From a batch that fails for what is in it to the poison record: the configuration of the next run, and the status."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from fencepost.contract import Reason, Verdict
from fencepost_operator.api import DeadLettersStatus, OnPoisonSpec, PoisonAction, Spec
from fencepost_operator.desired.identity.hashes import Fingerprints, fingerprints
from fencepost_operator.observation import Watermarks
from present import present
from unit.operator.scenes import DEAD, FAILED, FENCED, GOOD, JOB, NOW, POD, ROW, RUN, WELL, Scene, started

ENDED = replace(RUN, ended_at=NOW, dead=True)
SUSPECT = replace(FAILED, count=3, repeats=3, reason=Reason.BATCH_FAILED, next_attempt_at=NOW)
FOUND = replace(FAILED, count=1, reason=Reason.POISON_RECORD, message="orders/0@50 fails alone", next_attempt_at=NOW)


@pytest.mark.parametrize(
    ("failure", "isolates"),
    [
        (SUSPECT, True),
        (replace(SUSPECT, repeats=2), False),
        (replace(SUSPECT, repeats=9), True),
        (replace(SUSPECT, reason=Reason.RUN_FAILED), False),
        (replace(SUSPECT, reason=Reason.DEPENDENCY_DOWN), False),
        (replace(SUSPECT, reason=Reason.OUT_OF_MEMORY), False),
        (replace(SUSPECT, spec_hash="old"), False),  # other code may fix it
        (replace(SUSPECT, retry="1"), False),
        (replace(SUSPECT, count=0), False),  # a commit came after it
        (replace(FOUND, spec_hash="old"), True),
    ],
)
def test_a_run_looks_for_the_record_after_three_failures_of_one_batch(failure: object, isolates: bool) -> None:
    assert started(FENCED.said(failure=failure)).isolate is isolates


def test_the_spec_says_after_how_many_failures() -> None:
    asked = FENCED.asked(onPoison={"failures": 5})
    assert not started(asked.said(failure=replace(SUSPECT, repeats=4))).isolate
    assert started(asked.said(failure=replace(SUSPECT, repeats=5))).isolate


@pytest.mark.parametrize(
    ("attempts", "repeats", "isolates"), [(2, 1, True), (3, 1, False), (3, 2, True), (9, 2, False)]
)
def test_the_last_attempt_of_the_restart_budget_looks_for_the_record(
    attempts: int, repeats: int, isolates: bool
) -> None:
    asked = FENCED.asked(restart={"maxAttempts": attempts})
    failure = replace(SUSPECT, count=repeats, repeats=repeats, spec_hash=prints(asked).run)
    assert started(asked.said(failure=failure)).isolate is isolates


def prints(scene: Scene) -> Fingerprints:
    assert isinstance(scene.pipeline.spec, Spec)
    return fingerprints(scene.pipeline.spec, {})


def test_a_run_knows_for_how_long_dead_letters_are_kept() -> None:
    assert started(FENCED).dead_letter_retention is None
    assert started(FENCED.asked(onPoison={"retention": "48h"})).dead_letter_retention is None
    kept = FENCED.asked(onPoison={"action": "deadLetter", "retention": "48h"})
    assert started(kept).dead_letter_retention == 48 * 3600


def test_dead_letters_alone_make_another_run() -> None:
    assert isinstance(GOOD.spec, Spec)
    before = fingerprints(GOOD.spec, {})
    assert fingerprints(replace(GOOD.spec, on_poison=OnPoisonSpec(failures=9, retention=7200.0)), {}) == before
    after = fingerprints(replace(GOOD.spec, on_poison=OnPoisonSpec(action=PoisonAction.DEAD_LETTER)), {})
    assert (after.cluster, after.run == before.run) == (before.cluster, False)


def test_the_pipeline_is_stalled_at_a_poison_record_and_names_it() -> None:
    decision = DEAD.said(run=ENDED, failure=FOUND).decide()
    ready = next(condition for condition in decision.status.conditions if condition.type == "Stalled")
    assert (ready.status, ready.reason) == ("True", "PoisonRecord")
    assert "orders/0@50" in ready.message


def test_a_run_that_found_the_record_ends_the_attempts_and_one_that_suspects_does_not() -> None:
    for record, reason in (({"orders/0": 50}, "PoisonRecord"), ({}, "BatchFailed")):
        failure = present(ended(record).decide().status.failure)
        assert failure.reason == reason


def ended(record: dict[str, int]) -> Scene:
    verdict = Verdict(
        exit_code=53,
        reason=Reason.POISON_RECORD,
        message="it fails alone",
        remedy="fix it",
        suspect=True,
        record=record,
    )
    pod = replace(POD, phase="Failed", exit_code=53, finished_at=NOW, verdict=verdict)
    return WELL.seen(runs=(replace(JOB, pod=pod, finished=True),))


def test_each_new_dead_letter_is_reported_once() -> None:
    written = WELL.seen(fence=replace(ROW, dead_letters=3, last_dead_letter="orders/0@49"))
    decision = written.decide()
    assert decision.status.dead_letters == DeadLettersStatus(count=3, last="orders/0@49")
    (event,) = [event for event in decision.events if event.reason == "DeadLetterWritten"]
    assert "3 records were set aside" in event.message
    assert "orders/0@49" in event.message
    again = written.said(dead_letters=decision.status.dead_letters).decide()
    assert "DeadLetterWritten" not in [event.reason for event in again.events]


def test_a_pipeline_without_dead_letters_says_nothing_of_them() -> None:
    assert WELL.decide().status.dead_letters is None


RESUMED = replace(RUN, resumed_from=NOW - timedelta(hours=1), resumed_offsets=50, resumed_dead_letters=100)
"""A run that began at offset 50, when 100 records had been set aside before it."""
PASSED = [
    # offset, dead letters, is progress
    (150, 200, False),  # nothing but records that were set aside
    (250, 200, False),  # a transaction's marker beside each
    (251, 200, True),
    (51, 100, True),  # one record, none set aside
    (50, 100, False),  # a batch without records, with which a stateful run begins on an idle topic
]


@pytest.mark.parametrize(("offset", "letters", "progressed"), PASSED)
def test_a_run_that_only_sets_records_aside_uses_up_the_restart_budget(
    offset: int, letters: int, *, progressed: bool
) -> None:
    """A row that Cassandra alone refuses fails in each batch while others rehearse well: 100 were lost by every run."""
    row = replace(ROW, offsets={"orders/0": offset}, dead_letters=letters)
    before = replace(SUSPECT, epoch=1)
    failure = present(ended({}).said(run=RESUMED, failure=before).seen(fence=row).decide().status.failure)
    assert (failure.count, failure.repeats) == ((1, 1) if progressed else (4, 4))


@pytest.mark.parametrize(("offset", "letters", "progressed"), PASSED)
def test_a_living_run_that_only_sets_records_aside_does_not_reset_the_restart_budget(
    offset: int, letters: int, *, progressed: bool
) -> None:
    row = replace(ROW, offsets={"orders/0": offset}, dead_letters=letters)
    living = WELL.said(run=RESUMED, failure=replace(SUSPECT, epoch=1)).seen(
        fence=row, source=Watermarks(ends={"orders/0": 400})
    )
    decision = living.decide()
    assert (present(decision.status.failure).count == 0) is progressed
    assert decision.reason in {"Streaming", "CatchingUp"}, "it commits: nothing is to be restarted"


def test_a_run_begins_with_what_was_set_aside_before_it() -> None:
    row = replace(ROW, epoch=3, driver=None, version=10, offsets={"orders/0": 50, "b/1": 7}, dead_letters=3)
    run = present(FENCED.seen(fence=row).decide().status.run)
    assert (run.resumed_offsets, run.resumed_dead_letters) == (57, 3)
