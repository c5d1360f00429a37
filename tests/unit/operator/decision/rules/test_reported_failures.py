"""However a run ends, its status, its Event and the condition while the next one waits say how, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from fencepost.contract import ExitCode, Reason, Verdict
from fencepost.contract.guidance import GUIDANCE, Category
from fencepost_operator.api import Status
from fencepost_operator.decision.run.diagnosis import DISRUPTIONS
from present import present
from unit.operator.scenes import FAILED, JOB, POD, ROW, RUN, WELL, Scene

LOG: Final = ("one line", "the last line")


def verdict(code: ExitCode, reason: Reason) -> dict[str, Any]:
    found = Verdict(exit_code=code, reason=reason, message="what the driver saw", remedy="what it advises")
    return {"exit_code": int(code), "verdict": found}


ENDS: Final[Mapping[str, tuple[dict[str, Any], Reason]]] = {
    "no code of its own": ({"exit_code": 1}, Reason.RUN_FAILED),
    "stopped by a user": ({"exit_code": 0}, Reason.RUN_ENDED),
    "fenced": ({"exit_code": 50}, Reason.FENCED_OUT),
    "bad spec": (verdict(ExitCode.BAD_SPEC, Reason.ENTRYPOINT_FAILED), Reason.BAD_SPEC),
    "lost records": (verdict(ExitCode.DATA_LOSS, Reason.LOG_TRUNCATED), Reason.LOG_TRUNCATED),
    "dependency": (verdict(ExitCode.DEPENDENCY_DOWN, Reason.SINK_UNREACHABLE), Reason.DEPENDENCY_DOWN),
    "cut off": (verdict(ExitCode.DEPENDENCY_DOWN, Reason.KAFKA_UNREACHABLE), Reason.DRIVER_CUT_OFF),
    "master lost": (verdict(ExitCode.DEPENDENCY_DOWN, Reason.SPARK_UNREACHABLE), Reason.SPARK_UNREACHABLE),
    "JVM": (verdict(ExitCode.DEPENDENCY_DOWN, Reason.JVM_FAILED), Reason.JVM_FAILED),
    "no executors": (verdict(ExitCode.NO_EXECUTORS, Reason.NO_EXECUTORS), Reason.NO_EXECUTORS),
    "worker crash loop": (verdict(ExitCode.NO_EXECUTORS, Reason.EXECUTOR_CRASH_LOOP), Reason.EXECUTOR_CRASH_LOOP),
    "executor out of memory": (verdict(ExitCode.FAILED, Reason.OUT_OF_MEMORY), Reason.OUT_OF_MEMORY),
    "driver out of memory": ({"exit_code": 137, "termination_reason": "OOMKilled"}, Reason.OUT_OF_MEMORY),
    "killed": ({"exit_code": 137}, Reason.KILLED),
    **{
        disruption: ({"exit_code": 143, "disruption": disruption}, reason)
        for disruption, (reason, _) in DISRUPTIONS.items()
    },
}


def ended(changes: Mapping[str, Any]) -> Scene:
    """A run that ends so, the second in a row without progress."""
    pod = replace(POD, **{"phase": "Failed", "termination_reason": "Error", "log": LOG, **changes})
    run = replace(RUN, resumed_from=ROW.committed_at)
    return WELL.said(run=run, failure=replace(FAILED, count=1, epoch=1)).seen(
        runs=(replace(JOB, finished=True, pod=pod),)
    )


@pytest.mark.parametrize("case", ENDS)
def test_a_failed_run_is_reported_everywhere_and_its_log_outlives_its_job(case: str) -> None:
    changes, reason = ENDS[case]
    scene = ended(changes)
    decision = scene.decide()
    failure = present(decision.status.failure)
    assert (failure.reason, failure.log) == (reason, LOG)
    assert failure.message
    assert failure.remedy
    (event,) = [event for event in decision.events if event.reason == "RunFailed"]
    assert f"({reason}): {failure.message}" in event.message
    assert failure.remedy.lower().rstrip(".") in event.message.lower()

    later = scene.with_pipeline(status=decision.status).seen(runs=()).decide().status
    assert (later.failure, condition(later)) == (failure, condition(decision.status))
    assert failure.message.rstrip(".") in condition(later)
    assert failure.remedy.lower().rstrip(".") in condition(later).lower()


def condition(status: Status) -> str:
    return next(found.message for found in status.conditions if found.type == "Ready")


def test_every_end_of_a_run_is_in_a_case() -> None:
    """The others need more than a pod: a record, a loss, a timeout, what the operator sees."""
    others = {
        Reason.BATCH_FAILED,
        Reason.POISON_RECORD,
        Reason.DATA_LOSS,
        Reason.OFFSET_OUT_OF_RANGE,
        Reason.TOPIC_DELETED,
        Reason.TOPIC_RECREATED,
        Reason.DRIVER_CUT_OFF,
        Reason.UNRESPONSIVE,
        Reason.HEARTBEAT_LOST,
        Reason.NEVER_CLAIMED,
    }
    ends = {reason for reason, found in GUIDANCE.items() if found.category is Category.END}
    assert {reason for _, reason in ENDS.values()} | others == ends
