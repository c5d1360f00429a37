"""What uses up restart.maxAttempts, what does not, and what starts it again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from fencepost.batch import Range, Record, between
from fencepost.contract import ExitCode, Reason, Verdict
from fencepost.driver.reporting.verdict import judge
from fencepost.driver.sizing.record_size import with_size
from fencepost.errors import OutOfMemory
from fencepost.fence import FenceRow
from fencepost_operator.actions import StartRun
from fencepost_operator.api import FailureStatus, Spec, State
from fencepost_operator.decision.context import bounds_token, retry_token
from fencepost_operator.desired.identity.hashes import fingerprints
from fencepost_operator.observation import Watermarks
from present import present
from unit.operator.scenes import (
    BURIED,
    FAILED,
    FENCED,
    GOOD,
    JOB,
    NOW,
    POD,
    ROW,
    RUN,
    WELL,
    Scene,
    started,
    unclaimed_for,
)

ENDED = replace(RUN, ended_at=NOW, dead=True)


def source(**bounds: Any) -> dict[str, Any]:
    return {"kafka": {"bootstrapServers": "kafka:9092", "topics": ["orders"], **bounds}}


def after(code: int, before: FailureStatus | None) -> FailureStatus:
    """Return the failure that is recorded when the run ends so, after an earlier failure without progress since."""
    pod = replace(POD, exit_code=code, phase="Failed", termination_reason="Error")
    run = replace(RUN, resumed_from=ROW.committed_at)
    seen = WELL.said(failure=before, run=run).seen(runs=(replace(JOB, finished=True, pod=pod),))
    return present(seen.decide().status.failure)


def idle(failure: FailureStatus, row: FenceRow) -> FailureStatus:
    """Return the record of an earlier failure after a run has held the fence for an hour and has nothing left to read.

    The run began at offset 50, without dead letters.
    """
    run = replace(RUN, resumed_from=ROW.committed_at, resumed_offsets=50, resumed_dead_letters=0)
    scene = WELL.said(failure=failure, run=run).seen(fence=row, source=Watermarks(ends=row.offsets))
    return present(scene.decide().status.failure)


def test_an_idle_run_ends_the_row_of_failures() -> None:
    """Over months, failures that had nothing to do with each other used the whole budget up."""
    reset = idle(replace(FAILED, count=7, attempts=19, smallest=1, repeats=5, epoch=1), ROW)
    assert (reset.count, reset.attempts, reset.smallest, reset.repeats) == (0, 0, 0, 0)
    later = after(ExitCode.FAILED, reset)
    assert (later.count, later.attempts, later.repeats) == (1, 1, 1)
    assert waiting(later).decide().status.state is not State.STALLED


def test_a_run_that_sets_aside_all_that_it_reads_does_not_earn_a_new_budget() -> None:
    row = replace(ROW, offsets={"orders/0": 53}, dead_letters=3, committed_at=NOW)
    found = idle(replace(FAILED, count=7, attempts=19, epoch=1), row)
    assert (found.count, found.attempts) == (0, 19)


def test_an_idle_run_ends_the_row_of_failures_though_it_commits_batches_without_records() -> None:
    """Timers of a stateful pipeline make one after the other."""
    found = idle(
        replace(FAILED, count=7, attempts=19, epoch=1), replace(ROW, offsets={"orders/0": 50}, committed_at=NOW)
    )
    assert (found.count, found.attempts) == (0, 0)


def waiting(failure: FailureStatus) -> Scene:
    return BURIED.said(run=ENDED, failure=failure)


@pytest.mark.parametrize(
    ("code", "counts"),
    [
        (ExitCode.FAILED, True),
        (137, True),
        (ExitCode.BAD_SPEC, True),
        (ExitCode.DEPENDENCY_DOWN, False),
        (ExitCode.NO_EXECUTORS, False),
        (ExitCode.FENCED, False),
        (ExitCode.STOPPED, True),
    ],
)
def test_only_failures_of_the_pipeline_itself_use_the_budget_up(code: int, counts: bool) -> None:
    before = replace(FAILED, count=7, attempts=3, epoch=1)
    found = after(code, before)
    assert (found.count, found.attempts) == (8, 4 if counts else 3)


def test_a_record_of_an_older_release_counted_every_failure() -> None:
    assert after(ExitCode.FAILED, replace(FAILED, count=7, epoch=1)).attempts == 8


def test_an_outage_of_hours_backs_off_at_the_cap_and_stalls_nothing() -> None:
    failure: FailureStatus | None = None
    for _ in range(200):
        failure = after(ExitCode.DEPENDENCY_DOWN, failure)
    assert failure is not None
    assert (failure.count, failure.attempts) == (200, 0)
    assert failure.next_attempt_at == NOW + timedelta(seconds=300)
    decision = waiting(failure).decide()
    assert decision.status.state is State.RESTARTING
    assert "such failures do not count towards restart.maxAttempts" in decision.status.message


def test_code_that_always_fails_stalls_by_default_after_about_an_hour() -> None:
    failure, backoff = after(ExitCode.FAILED, None), timedelta()
    while waiting(failure).decide().status.state is not State.STALLED:
        if failure.count > 1:
            said = waiting(failure).decide().status.message
            assert f"{failure.count} of 20 attempts of restart.maxAttempts are used up" in said
        backoff += present(failure.next_attempt_at) - NOW
        failure = after(ExitCode.FAILED, failure)
    assert failure.count == 20
    assert timedelta(minutes=30) < backoff < timedelta(hours=1)
    message = waiting(failure).decide().status.message
    assert message.startswith("20 runs in a row failed without progress, as many as restart.maxAttempts allows")


@pytest.mark.parametrize("how", ["nonce", "annotation"])
def test_a_nonce_and_an_annotation_try_again(how: str) -> None:
    failure = replace(FAILED, attempts=20, count=20, next_attempt_at=NOW)
    stalled = FENCED.said(run=replace(ENDED, epoch=2), failure=failure)
    assert stalled.decide().status.state is State.STALLED
    again = (
        stalled.asked(restart={"nonce": "2"})
        if how == "nonce"
        else stalled.with_pipeline(annotations={"streaming.fencepost.dev/retry": "2"})
    )
    assert isinstance(again.decide().action, StartRun)


@pytest.mark.parametrize(
    "changed",
    [
        {"source": source(maxRecordsPerBatch=500)},
        {"source": source(minRecordsPerBatch=1)},
        {"source": source(maxBytesPerBatch="1Mi")},
        {"source": source(targetBatchDuration="2s")},
        {"onPoison": {"failures": 1}},
    ],
)
def test_other_bounds_of_batches_try_again_and_replace_no_run_that_streams(changed: dict[str, Any]) -> None:
    failure = replace(FAILED, attempts=20, count=20, next_attempt_at=NOW)
    stalled = FENCED.said(run=replace(ENDED, epoch=2), failure=failure)
    assert stalled.decide().status.state is State.STALLED
    assert isinstance(stalled.asked(**changed).decide().action, StartRun)
    with_them = replace(failure, batch_bounds=bounds_token(stalled.asked(**changed).pipeline))
    assert stalled.said(failure=with_them).asked(**changed).decide().status.state is State.STALLED, "of that failure"
    assert isinstance(stalled.said(failure=with_them).decide().action, StartRun), "back to the defaults"
    assert WELL.asked(**changed).decide().reason == "Streaming"


def test_a_failure_is_recorded_with_its_bounds_and_starts_the_count() -> None:
    before = replace(FAILED, count=7, attempts=7, epoch=1)
    pod = replace(POD, exit_code=1, phase="Failed", termination_reason="Error")
    run = replace(RUN, resumed_from=ROW.committed_at)
    seen = WELL.said(failure=before, run=run).seen(runs=(replace(JOB, finished=True, pod=pod),))
    smaller = seen.asked(source=source(maxRecordsPerBatch=500))
    failure = present(smaller.decide().status.failure)
    assert (failure.count, failure.batch_bounds) == (1, bounds_token(smaller.pipeline))
    again = present(smaller.said(failure=replace(failure, epoch=1)).decide().status.failure)
    assert again.count == 2


def test_a_planned_batch_is_still_cut_when_the_bounds_are_lowered() -> None:
    failure = replace(out_of_memory(None, planned=1000), next_attempt_at=NOW)
    row = replace(ROW, epoch=3, driver=None, version=10, planned={"orders/0": 1050})
    lowered = FENCED.said(failure=failure).seen(fence=row).asked(source=source(maxRecordsPerBatch=500))
    assert started(lowered).first_batch_limit == 500


def test_a_nonce_restarts_no_run_that_streams() -> None:
    spec = WELL.asked(restart={"nonce": "2", "startTimeout": "10m", "maxAttempts": 3}).pipeline.spec
    assert isinstance(spec, Spec)
    assert isinstance(GOOD.spec, Spec)
    assert fingerprints(spec, {}) == fingerprints(GOOD.spec, {})


def test_an_annotation_that_was_set_before_there_was_a_nonce_is_the_same_token() -> None:
    assert retry_token(replace(GOOD, annotations={"streaming.fencepost.dev/retry": "7"})) == "7"


def test_the_start_timeout_is_the_specs_and_its_message_names_it() -> None:
    slow = unclaimed_for(599, None).asked(restart={"startTimeout": "10m"})
    assert slow.decide().reason != "NeverClaimed"
    late = unclaimed_for(601, None).asked(restart={"startTimeout": "10m"}).decide()
    assert late.reason == "NeverClaimed"
    assert "raise restart.startTimeout (10 min)" in late.status.message


def test_a_topic_without_records_never_alarms() -> None:
    """No reading, no commit, for ten days: neither replaced, nor counted, nor warned about."""
    run = replace(RUN, claimed_at=NOW - timedelta(days=10), resumed_from=ROW.committed_at)
    row = replace(ROW, committed_at=NOW - timedelta(days=10))
    quiet = WELL.said(run=run).seen(fence=row)
    decision = quiet.decide()
    assert (decision.reason, decision.action, decision.status.state) == ("Streaming", None, State.RUNNING)
    assert [c.type for c in decision.status.conditions if c.status == "True"] == ["Ready", "Streaming"]
    assert [event for event in decision.events if event.type == "Warning"] == []


OUT_OF_MEMORY: Final = Verdict(
    exit_code=1, reason=Reason.OUT_OF_MEMORY, message="a Python worker ran out of memory", remedy="r"
)


def out_of_memory(
    before: FailureStatus | None, *, planned: int, claimed: bool = True, verdict: Verdict = OUT_OF_MEMORY
) -> FailureStatus:
    """Return the failure of a run that ran out of memory while so many records were planned."""
    pod = replace(POD, exit_code=1, phase="Failed", termination_reason="Error", verdict=verdict)
    row = replace(ROW, driver=ROW.driver if claimed else None, planned={"orders/0": 50 + planned})
    run = replace(RUN, resumed_from=ROW.committed_at, claimed_at=RUN.claimed_at if claimed else None)
    seen = WELL.said(failure=before, run=run)
    return present(seen.seen(runs=(replace(JOB, finished=True, pod=pod),), fence=row).decide().status.failure)


def test_a_batch_that_does_not_fit_is_cut_and_the_event_says_so() -> None:
    failure = replace(out_of_memory(None, planned=1000), next_attempt_at=NOW)
    assert (failure.reason, failure.batch_records, failure.smallest) == ("OutOfMemory", 1000, 0)
    row = replace(ROW, epoch=3, driver=None, version=10, planned={"orders/0": 1050})
    decision = FENCED.said(failure=failure).seen(fence=row).decide()
    assert decision.status.message.endswith("; the planned batch of 1000 records ran out of memory and is cut to 500")
    assert [event.message for event in decision.events if event.reason == "RunStarted"] == [decision.status.message]


def test_a_run_out_of_memory_before_its_claim_cuts_no_batch() -> None:
    """Found: its predecessor's planned batch, which it had not begun, was halved once per attempt to start."""
    failure = replace(out_of_memory(None, planned=1000, claimed=False), next_attempt_at=NOW)
    assert (failure.reason, failure.batch_records, failure.smallest) == ("OutOfMemory", None, 0)
    row = replace(ROW, epoch=3, driver=None, version=10, planned={"orders/0": 1050})
    after = FENCED.said(failure=failure).seen(fence=row)
    assert started(after).first_batch_limit is None
    decision = after.decide()
    assert "cut" not in decision.status.message
    again = out_of_memory(replace(failure, epoch=1), planned=1, claimed=False)
    assert again.smallest == 0, "nor does it say that one record does not fit"


def test_what_is_known_of_a_batch_that_does_not_fit_outlives_a_run_that_never_claimed() -> None:
    failed = replace(out_of_memory(None, planned=1000), epoch=1)
    failure = replace(out_of_memory(failed, planned=1000, claimed=False), next_attempt_at=NOW)
    assert (failure.count, failure.batch_records) == (2, 1000)
    row = replace(ROW, epoch=3, driver=None, version=10, planned={"orders/0": 1050})
    assert started(FENCED.said(failure=failure).seen(fence=row)).first_batch_limit == 500


def test_one_record_that_does_not_fit_twice_stalls_with_the_sizes() -> None:
    once = replace(out_of_memory(None, planned=1), next_attempt_at=NOW)
    assert waiting(once).decide().status.state is not State.STALLED
    twice = replace(out_of_memory(replace(once, epoch=1), planned=1), next_attempt_at=NOW)
    decision = waiting(twice).decide()
    assert (decision.reason, decision.status.state) == ("OutOfMemory", State.STALLED)
    message = decision.status.message
    assert "2 runs in a row ran out of memory with a batch of one record" in message
    assert "cluster.worker.memory is 2048Mi, the driver's limit 1408Mi" in message
    assert "a Python worker ran out of memory" in message
    assert out_of_memory(replace(twice, epoch=1), planned=9).smallest == 0, "a larger batch can be cut"


def test_the_size_that_a_driver_measures_is_in_the_message_with_its_advice() -> None:
    """Through the termination log, also when Spark says more than fits there."""
    killed = OutOfMemory("an executor's JVM ran out of memory: exit code 137. " + "\tat org.apache.spark\n" * 200)
    error = with_size(killed, between({"orders/0": 50}, {"orders/0": 51}), LargeRecords())
    verdict = present(Verdict.from_json(judge(error, epoch=2, version=9).to_json()))
    once = out_of_memory(None, planned=1, verdict=verdict)
    twice = out_of_memory(replace(once, epoch=1), planned=1, verdict=verdict)
    message = waiting(replace(twice, next_attempt_at=NOW)).decide().status.message
    assert "the batch is one record of 5000010 bytes, orders/0@50: an executor's JVM ran out" in message
    assert "Raise spec.cluster.worker.memory" in message
    assert "change the spec or set the annotation" in message


class LargeRecords:
    """Kafka with one record of 5 MB."""

    def first(self, part: Range) -> Record:
        assert (part.key, part.start) == ("orders/0", 50)
        return Record(
            topic="orders", partition=0, offset=50, timestamp=NOW, key=b"k" * 10, value=b"v" * 5_000_000, headers=()
        )
