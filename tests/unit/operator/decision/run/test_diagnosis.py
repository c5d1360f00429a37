"""What pods show, in words; how long to wait."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fencepost.contract import Verdict
from fencepost_operator.api import Reason
from fencepost_operator.backoff import jittered, restart_delay, retry_delay
from fencepost_operator.decision.run.diagnosis import POD_ISSUES, Diagnosis, diagnose_end, diagnose_pod_issue
from fencepost_operator.observation import DriverPod, MemoryKill, PodIssue, Run

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POD = DriverPod(
    name="p", uid="u", phase="Failed", node="n", node_uid="nu", node_ready=True, started_at=NOW, deleting_since=None,
    exit_code=1, termination_reason="Error", finished_at=NOW, verdict=None, issue=None,
)  # fmt: skip
RUN = Run(
    name="orders-run-1", epoch=1, spec_hash="h", cluster_generation=1, created_at=NOW, deleting=False, finished=True,
    pod=POD,
)  # fmt: skip


def end(**pod: Any) -> Diagnosis:
    """Diagnose a run whose pod ended so."""
    return diagnose_end(replace(RUN, pod=replace(POD, **pod)), RUN.name)


def said(code: int, reason: Reason, **more: Any) -> dict[str, Any]:
    """Return the end of a pod whose driver says why."""
    verdict = Verdict(exit_code=code, reason=reason, message="m", remedy="do that", log=("a", "b"), **more)
    return {"exit_code": code, "verdict": verdict, "log": verdict.log}


@pytest.mark.parametrize(
    ("pod", "category"),
    [
        ({"exit_code": 0}, Reason.RUN_ENDED),
        ({"exit_code": 1}, Reason.RUN_FAILED),
        ({"exit_code": 50}, Reason.FENCED_OUT),
        ({"exit_code": 51}, Reason.BAD_SPEC),
        ({"exit_code": 52}, Reason.DATA_LOSS),
        ({"exit_code": 53}, Reason.BATCH_FAILED),  # a suspicion: no record is named
        ({"exit_code": 54}, Reason.DEPENDENCY_DOWN),
        ({"exit_code": 55}, Reason.NO_EXECUTORS),
        ({"exit_code": 137}, Reason.KILLED),
        ({"exit_code": 143}, Reason.KILLED),
        ({"exit_code": 99}, Reason.RUN_FAILED),
        ({"exit_code": 137, "termination_reason": "OOMKilled"}, Reason.OUT_OF_MEMORY),
        # A record is poison only when the verdict names it.
        (said(53, Reason.POISON_RECORD, suspect=True), Reason.BATCH_FAILED),
        (said(53, Reason.POISON_RECORD, record={"t/0": 5}), Reason.POISON_RECORD),
        (said(1, Reason.TRANSFORM_FAILED, suspect=True), Reason.BATCH_FAILED),
        (said(1, Reason.BATCH_FAILED), Reason.RUN_FAILED),
        (said(1, Reason.OUT_OF_MEMORY, suspect=True), Reason.OUT_OF_MEMORY),
        (said(54, Reason.DEPENDENCY_DOWN, suspect=True), Reason.DEPENDENCY_DOWN),
        # It failed before its disruption.
        ({"exit_code": 51, "disruption": "EvictionByEvictionAPI"}, Reason.BAD_SPEC),
        (
            {"exit_code": 137, "termination_reason": "OOMKilled", "disruption": "EvictionByEvictionAPI"},
            Reason.OUT_OF_MEMORY,
        ),
    ],
)
def test_how_a_run_ended(pod: dict[str, Any], category: Reason) -> None:
    found = end(**pod)
    assert (found.category, found.exit_code) == (category, pod["exit_code"])
    assert found.summary
    assert found.category is not Reason.OUT_OF_MEMORY or "verdict" in pod or "job.resources" in found.remedy


@pytest.mark.parametrize(
    ("code", "reported", "category"),
    [
        (52, Reason.LOG_TRUNCATED, Reason.LOG_TRUNCATED),
        (52, Reason.TOPIC_DELETED, Reason.TOPIC_DELETED),
        (52, Reason.STREAMING, Reason.DATA_LOSS),
        (1, Reason.LOG_TRUNCATED, Reason.RUN_FAILED),
    ],
)
def test_a_loss_has_the_reason_that_the_driver_reports(code: int, reported: Reason, category: Reason) -> None:
    found = end(**said(code, reported, loss="3f0c5a9b7d21"))
    assert (found.category, found.loss) == (category, "3f0c5a9b7d21" if code == 52 else "")


@pytest.mark.parametrize("reason", ["StartError", "ContainerCannotRun"])
def test_a_program_that_cannot_be_started_is_a_container_config_error(reason: str) -> None:
    found = end(exit_code=128, termination_reason=reason, log=('exec: "/no-such-program": no such file',))
    assert found.category is Reason.CONTAINER_CONFIG_ERROR
    assert "/no-such-program" in found.message
    assert not found.is_environment


def test_the_drivers_own_words_go_first() -> None:
    found = end(**said(51, Reason.ENTRYPOINT_NOT_FOUND))
    assert found.message.endswith("EntrypointNotFound: m")
    assert found.remedy == "do that"


def test_a_driver_that_disappeared_is_lost() -> None:
    assert diagnose_end(None, "orders-run-1").category is Reason.POD_LOST
    found = end(exit_code=None, termination_reason="Evicted")
    assert (found.category, "Evicted" in found.summary) == (Reason.POD_LOST, True)


@pytest.mark.parametrize(
    ("code", "reported", "category", "counts"),
    [
        (54, Reason.SPARK_UNREACHABLE, Reason.SPARK_UNREACHABLE, False),
        (54, Reason.KAFKA_UNREACHABLE, Reason.DEPENDENCY_DOWN, False),
        (54, Reason.JVM_FAILED, Reason.JVM_FAILED, True),
        (55, Reason.NO_EXECUTORS, Reason.NO_EXECUTORS, False),
        (55, Reason.EXECUTOR_CRASH_LOOP, Reason.EXECUTOR_CRASH_LOOP, True),
        (1, Reason.DEPENDENCY_DOWN, Reason.DEPENDENCY_DOWN, False),
        (1, Reason.OUT_OF_MEMORY, Reason.OUT_OF_MEMORY, True),
        (51, Reason.ENTRYPOINT_NOT_FOUND, Reason.BAD_SPEC, True),
    ],
)
def test_the_drivers_reason_says_more_than_its_exit_code(
    code: int, reported: Reason, category: Reason, counts: bool
) -> None:
    found = end(**said(code, reported))
    assert (found.category, found.is_environment) == (category, not counts)
    assert (found.detail, found.remedy, found.log) == (f"{reported}: m", "do that", ("a", "b"))


@pytest.mark.parametrize(
    ("deleting_since", "category", "is_environment"),
    [(None, Reason.RUN_ENDED, False), (NOW, Reason.POD_LOST, True)],
    ids=["by its own code", "its pod was deleted"],
)
def test_a_driver_that_stopped_uses_the_budget_unless_it_was_asked_to(
    deleting_since: datetime | None, category: Reason, is_environment: bool
) -> None:
    found = end(exit_code=0, deleting_since=deleting_since)
    assert (found.category, found.is_environment) == (category, is_environment)


@pytest.mark.parametrize("code", [0, 137, 143, None])
@pytest.mark.parametrize(
    ("reason", "category"),
    [
        ("EvictionByEvictionAPI", Reason.DRAINED),
        ("DeletionByTaintManager", Reason.DRAINED),
        ("Terminated", Reason.DRAINED),
        ("PreemptionByScheduler", Reason.PREEMPTED),
        ("Preempting", Reason.PREEMPTED),
        ("Evicted", Reason.EVICTED),
        ("TerminationByKubelet", Reason.EVICTED),
        ("DeletionByPodGC", Reason.POD_LOST),
        ("OfALaterRelease", Reason.EVICTED),
    ],
)
def test_who_ended_the_driver_is_named(reason: str, category: Reason, code: int | None) -> None:
    found = end(exit_code=code, disruption=reason, disruption_message="low on ephemeral-storage")
    assert (found.category, found.is_environment) == (category, True)
    assert "low on ephemeral-storage" in found.message
    gone = diagnose_end(None, RUN.name, disruption=reason)
    assert gone.category is category, "its pod was gone when it was observed"


KILL = MemoryKill(pod="orders-g1-worker-0", at=NOW, limit="1Gi")


@pytest.mark.parametrize(
    ("code", "reported", "category"),
    [
        (1, Reason.BATCH_FAILED, Reason.OUT_OF_MEMORY),
        (1, Reason.OUT_OF_MEMORY, Reason.OUT_OF_MEMORY),
        (55, Reason.NO_EXECUTORS, Reason.OUT_OF_MEMORY),
        (51, Reason.ENTRYPOINT_FAILED, Reason.BAD_SPEC),
        (54, Reason.KAFKA_UNREACHABLE, Reason.DEPENDENCY_DOWN),
    ],
)
def test_a_worker_that_the_kernel_killed_is_why_its_executor_was_lost(
    code: int, reported: Reason, category: Reason
) -> None:
    """The kernel ends all processes of a container at once, so that nothing in it can say why."""
    verdict = Verdict(exit_code=code, reason=reported, message="Remote RPC client disassociated", remedy="")
    pod = replace(POD, exit_code=code, verdict=verdict)
    found = diagnose_end(replace(RUN, pod=pod), RUN.name, kills=[KILL])
    assert found.category is category
    if category is Reason.OUT_OF_MEMORY:
        assert found.summary.startswith("The container of pod orders-g1-worker-0 (limit 1Gi) ran out of memory")
        assert "cluster.worker.memory" in found.remedy


def test_memory_of_the_drivers_container_is_its_own() -> None:
    pod = replace(POD, exit_code=137, termination_reason="OOMKilled")
    found = diagnose_end(replace(RUN, pod=pod), RUN.name, kills=[KILL])
    assert found.summary == "The driver's container ran out of memory"


@pytest.mark.parametrize(
    ("reason", "message", "category"),
    [
        ("FailedCreate", 'pods "a" is forbidden: exceeded quota: team, requested: memory=2Gi', Reason.QUOTA_EXCEEDED),
        ("FailedCreate", 'admission webhook "policy" denied: no image of that registry', Reason.POD_REFUSED),
        (
            "Unschedulable",
            "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
            Reason.VOLUME_PENDING,
        ),
        ("Unschedulable", "0/3 nodes are available: 3 Insufficient memory.", Reason.UNSCHEDULABLE),
        ("ImagePullBackOff", 'Back-off pulling image "a:b"', Reason.IMAGE_PULL_FAILED),
        ("Unhealthy", "Liveness probe failed: dial tcp 10.0.0.1:7077: connect: refused", Reason.PROBE_FAILED),
        ("CrashLoopBackOff", "back-off 10s", Reason.CRASH_LOOP),
    ],
)
def test_what_keeps_a_pod_from_running_is_named(reason: str, message: str, category: Reason) -> None:
    found = diagnose_pod_issue(PodIssue(pod="p", reason=reason, message=message))
    assert found.category is category
    assert message in found.message


@pytest.mark.parametrize("reason", [*POD_ISSUES, "SomethingNew"])
def test_every_trouble_says_what_to_do(reason: str) -> None:
    found = diagnose_pod_issue(PodIssue(pod="p", reason=reason, message="because"))
    assert found.remedy
    assert "because" in found.message


def test_long_messages_are_cut() -> None:
    found = diagnose_pod_issue(PodIssue(pod="p", reason="Unschedulable", message="x" * 5000))
    assert len(found.message) < 800


def test_the_first_restart_comes_at_once_and_then_ever_later() -> None:
    waits = [restart_delay(n, longest=300).total_seconds() for n in range(1, 22)]
    assert waits[:5] == [0, 2, 6, 12, 20]
    assert waits[-1] == 300
    assert restart_delay(0, longest=300) == timedelta(0)


def test_retries_double_up_to_a_minute() -> None:
    assert [retry_delay(n) for n in (1, 2, 3, 7, 50)] == [1, 2, 4, 60, 60]
    assert all(4 <= jittered(5) <= 6 for _ in range(100))
