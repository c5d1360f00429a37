"""What the state of a pod or a Job means: what happened, why, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fencepost.contract import LOSSES, ExitCode, Verdict
from fencepost.contract.guidance import remedy_of
from fencepost_operator.api import Reason
from fencepost_operator.decision.context import Context
from fencepost_operator.decision.wording import detail
from fencepost_operator.observation import NODE_LOST, DriverPod, Known, MemoryKill, PodIssue, Run

ENVIRONMENT: Final = frozenset(
    {
        Reason.DEPENDENCY_DOWN,
        Reason.SPARK_UNREACHABLE,
        Reason.NO_EXECUTORS,
        Reason.POD_LOST,
        Reason.EVICTED,
        Reason.PREEMPTED,
        Reason.DRAINED,
        Reason.FENCED_OUT,
        Reason.HEARTBEAT_LOST,
    }
)
"""Ends of runs that the surroundings caused: they back off and do not use up restart.maxAttempts.

An outage of Kafka may last for hours, and ends without a user's action.
"""
SIGKILL_EXIT: Final = 137
SIGTERM_EXIT: Final = 143


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A finding: `category` is its reason, `summary` what happened, `detail` the evidence, `remedy` what to do.

    `special` is what to do where that is more than the guidance has for the reason.
    """

    category: Reason
    summary: str
    detail: str = ""
    special: str = ""
    exit_code: int | None = None
    loss: str = ""
    log: tuple[str, ...] = ()

    @property
    def remedy(self) -> str:
        """Return what to do."""
        return self.special or remedy_of(self.category)

    @property
    def is_environment(self) -> bool:
        """Whether the failure says nothing of the pipeline's own code and sizes."""
        return self.category in ENVIRONMENT

    @property
    def message(self) -> str:
        """Return summary and detail in one line."""
        return f"{self.summary}: {self.detail}" if self.detail else self.summary


IMAGE: Final = (Reason.IMAGE_PULL_FAILED, "cannot pull its image", "")
NOT_A_JOB_IMAGE: Final = "see the message; the image or its entrypoint may not be a fencepost-job image"
NEVER_RAN: Final = frozenset({"StartError", "ContainerCannotRun"})
"""Why a container ended whose program could not be started, as containerd and Docker say."""
POD_ISSUES: Final[Mapping[str, tuple[Reason, str, str]]] = {
    "ImagePullBackOff": IMAGE,
    "ErrImagePull": IMAGE,
    "InvalidImageName": IMAGE,
    "ErrImageNeverPull": (
        Reason.IMAGE_PULL_FAILED,
        "may not pull its image, and the node does not have the image",
        "load the image on the nodes, or change job.imagePullPolicy",
    ),
    "Unschedulable": (Reason.UNSCHEDULABLE, "does not fit on any node", ""),
    "CreateContainerConfigError": (Reason.CONTAINER_CONFIG_ERROR, "cannot be configured", ""),
    "CreateContainerError": (Reason.CONTAINER_CONFIG_ERROR, "cannot be created", NOT_A_JOB_IMAGE),
    "RunContainerError": (Reason.CONTAINER_CONFIG_ERROR, "cannot be run", NOT_A_JOB_IMAGE),
    "FailedMount": (Reason.CONTAINER_CONFIG_ERROR, "cannot mount a volume", "see the message, and fix the volume"),
    "CrashLoopBackOff": (Reason.CRASH_LOOP, "keeps crashing", ""),
    "Unhealthy": (Reason.PROBE_FAILED, "does not pass its probe", ""),
    NODE_LOST: (
        Reason.POD_LOST,
        "is on a node that does not respond",
        "restore the node, or delete its Node object if the machine does not exist any more",
    ),
    "FailedCreate": (Reason.POD_REFUSED, "is rejected by the API server", ""),
}
"""What a waiting or scheduling reason of Kubernetes means: reason, what the pod does, and a special remedy or ''."""


BY_MESSAGE: Final[tuple[tuple[str, str, tuple[Reason, str, str]], ...]] = (
    (
        "FailedCreate",
        "exceeded quota",
        (Reason.QUOTA_EXCEEDED, "is more than the quota of the namespace allows", ""),
    ),
    ("Unschedulable", "PersistentVolumeClaim", (Reason.VOLUME_PENDING, "waits for its volume", "")),
)
"""What a reason of Kubernetes means when its message holds a text."""


def diagnose_pod_issue(issue: PodIssue) -> Diagnosis:
    """Return why a pod cannot start."""
    by_message = (found for reason, text, found in BY_MESSAGE if reason == issue.reason and text in issue.message)
    category, summary, special = next(by_message, None) or POD_ISSUES.get(
        issue.reason, (Reason.POD_ISSUE, f"cannot start ({issue.reason})", "")
    )
    return Diagnosis(
        category=category, summary=f"Pod {issue.pod} {summary}", detail=detail(issue.message), special=special
    )


def pod_issue(context: Context) -> Diagnosis | None:
    """Return why a pod cannot start, None when all can. Issues of the run come before those of the cluster."""
    job, cluster = context.job, context.observation.cluster
    own = [job.issue, job.pod.issue if job.pod else None] if job else []
    parts = cluster.value.issues if isinstance(cluster, Known) and cluster.value is not None else ()
    found = [issue for issue in (*own, *parts) if issue is not None]
    return diagnose_pod_issue(found[0]) if found else None


ENDS: Final[Mapping[int, tuple[Reason, str]]] = {
    ExitCode.STOPPED: (Reason.RUN_ENDED, "The driver stopped, and the operator did not request it"),
    ExitCode.FENCED: (Reason.FENCED_OUT, "Another run or pod holds the fence"),
    ExitCode.BAD_SPEC: (Reason.BAD_SPEC, "The spec or the author's code is not valid"),
    ExitCode.DATA_LOSS: (Reason.DATA_LOSS, "Kafka no longer has the records at the committed offsets"),
    ExitCode.POISON_RECORD: (Reason.POISON_RECORD, "A record fails on every attempt, while others pass"),
    ExitCode.DEPENDENCY_DOWN: (
        Reason.DEPENDENCY_DOWN,
        "Kafka or Cassandra did not answer for longer than the driver waits",
    ),
    ExitCode.NO_EXECUTORS: (Reason.NO_EXECUTORS, "The Spark cluster did not provide an executor in time"),
    SIGKILL_EXIT: (Reason.KILLED, "The driver was killed (SIGKILL)"),
    SIGTERM_EXIT: (Reason.KILLED, "The driver was terminated before it could stop (SIGTERM)"),
}


DISRUPTIONS: Final[Mapping[str, tuple[Reason, str]]] = {
    "EvictionByEvictionAPI": (Reason.DRAINED, "was evicted through the API, as kubectl drain does"),
    "DeletionByTaintManager": (
        Reason.DRAINED,
        "was removed from its node by a NoExecute taint, of a drain, a reclaimed machine or a lost node",
    ),
    "Terminated": (Reason.DRAINED, "ended with its node, which shuts down"),
    "NodeShutdown": (Reason.DRAINED, "ended with its node, which shuts down"),
    "PreemptionByScheduler": (Reason.PREEMPTED, "gave way to a pod of a higher priority"),
    "Preempting": (Reason.PREEMPTED, "gave way to a critical pod of its node"),
    "TerminationByKubelet": (Reason.EVICTED, "was ended by its kubelet"),
    "Evicted": (Reason.EVICTED, "was evicted: its node ran short of a resource, or it of its own limit"),
    "DeletionByPodGC": (Reason.POD_LOST, "was deleted because its node is gone"),
}
"""What Kubernetes means by the reason of a disruption."""
STOPS: Final = frozenset({None, int(ExitCode.STOPPED), SIGKILL_EXIT, SIGTERM_EXIT})
"""Exit codes of a driver that something else ended."""


SEEN_BY_OPERATOR: Final = frozenset(
    {Reason.KAFKA_UNREACHABLE, Reason.CASSANDRA_UNREACHABLE, Reason.POSTGRESQL_UNREACHABLE}
)
"""What a driver may say of a dependency that the operator asks as well: the source and the fence, and no sink."""


def diagnose_end(
    run: Run | None, name: str, *, disruption: str = "", kills: Sequence[MemoryKill] = (), answered: bool = False
) -> Diagnosis:
    """Return how a run ended; `run` is its Job, None when it was deleted.

    `disruption` is why Kubernetes ended its pod, as far as it was seen before the pod was gone; `kills` are of the
    cluster during the run; `answered` says that Kafka and Cassandra answered the operator all that time.
    """
    pod = run.pod if run else None
    found = _by_disruption(pod, name, disruption) or _of_end(run, pod, name)
    is_drivers = pod is not None and pod.termination_reason == "OOMKilled"
    if kills and not is_drivers and found.category in BY_LOST_EXECUTOR:
        found = _of_killed_worker(found, max(kills, key=lambda kill: kill.at))
    reason = pod.verdict.reason if pod is not None and pod.verdict is not None else None
    if answered and found.category is Reason.DEPENDENCY_DOWN and reason in SEEN_BY_OPERATOR:
        found = _of_cut_off_driver(found)
    return replace(found, log=pod.log) if pod else found


BY_LOST_EXECUTOR: Final = frozenset(
    {
        Reason.RUN_FAILED,
        Reason.BATCH_FAILED,
        Reason.NO_EXECUTORS,
        Reason.EXECUTOR_CRASH_LOOP,
        Reason.OUT_OF_MEMORY,
    }
)
"""What a run may end with when a worker's container is killed under it."""


def _of_killed_worker(found: Diagnosis, kill: MemoryKill) -> Diagnosis:
    limit = f" (limit {kill.limit})" if kill.limit else ""
    return replace(
        found,
        category=Reason.OUT_OF_MEMORY,
        summary=f"The container of pod {kill.pod}{limit} ran out of memory: its executor or a Python worker",
        detail=found.message,
        special="raise cluster.worker.memory, or lower source.kafka.maxRecordsPerBatch; the batch is retried at half "
        "its size",
    )


def _of_cut_off_driver(found: Diagnosis) -> Diagnosis:
    return replace(
        found,
        category=Reason.DRIVER_CUT_OFF,
        summary="Kafka or Cassandra did not answer the driver, and both answered the operator for as long as it ran",
        special="",
    )


def _by_disruption(pod: DriverPod | None, name: str, seen: str) -> Diagnosis | None:
    """Return why Kubernetes ended the driver; None when nothing says so, or it ended on its own before that."""
    disruption = (pod.disruption if pod else "") or seen
    code, verdict = (pod.exit_code, pod.verdict) if pod else (None, None)
    stopped = code in STOPS or (verdict is not None and verdict.reason is Reason.STOP_TIMED_OUT)
    if not disruption or not stopped or (pod is not None and pod.termination_reason == "OOMKilled"):
        return None
    category, what = DISRUPTIONS.get(disruption, (Reason.EVICTED, f"was disrupted ({disruption})"))
    reported = [pod.disruption_message if pod else "", f"{verdict.reason}: {verdict.message}" if verdict else ""]
    return Diagnosis(
        category=category,
        summary=f"The driver of {name} {what}",
        detail=detail("; ".join(part for part in reported if part)),
        exit_code=code,
    )


def _of_end(run: Run | None, pod: DriverPod | None, name: str) -> Diagnosis:
    if run is None or pod is None:
        return Diagnosis(
            category=Reason.POD_LOST,
            summary=f"The driver of {name} disappeared",
            detail=detail(run.issue.message)
            if run and run.issue
            else "its Job or pod was deleted, or its node was lost",
        )
    if pod.termination_reason == "OOMKilled":
        return Diagnosis(
            category=Reason.OUT_OF_MEMORY,
            summary="The driver's container ran out of memory",
            special="raise job.resources, or lower source.kafka.maxRecordsPerBatch; the batch is retried at half "
            "its size",
            exit_code=pod.exit_code,
        )
    if pod.termination_reason in NEVER_RAN:
        return Diagnosis(
            category=Reason.CONTAINER_CONFIG_ERROR,
            summary="The driver's container cannot be run",
            detail=detail(pod.log[-1]) if pod.log else "",
            special=NOT_A_JOB_IMAGE,
            exit_code=pod.exit_code,
        )
    return _of_lost_pod(run, pod, name) if pod.exit_code is None else _of_exit(pod.exit_code, pod)


def _of_lost_pod(run: Run, pod: DriverPod, name: str) -> Diagnosis:
    if run.orphaned:
        return Diagnosis(
            category=Reason.POD_LOST,
            summary=f"The Job of {name} was deleted without its pod {pod.name}, which may still run and is replaced",
            special=f"delete pod {pod.name}; it cannot commit any more",
        )
    return Diagnosis(
        category=Reason.POD_LOST,
        summary=f"Pod {pod.name} is lost ({pod.termination_reason or pod.phase})",
        detail=detail(pod.issue.message) if pod.issue else "",
        special="check the node that the pod was on",
    )


def _is_suspicion(code: int, verdict: Verdict | None) -> bool:
    """Return whether a record may be the cause, and none was found to fail alone."""
    if code == ExitCode.POISON_RECORD:
        return verdict is None or not verdict.record
    return code == ExitCode.FAILED and verdict is not None and verdict.suspect


BY_VERDICT: Final[Mapping[tuple[int, Reason], tuple[Reason, str]]] = {
    (ExitCode.FAILED, Reason.OUT_OF_MEMORY): (Reason.OUT_OF_MEMORY, "A process of the run ran out of memory"),
    (ExitCode.FAILED, Reason.DEPENDENCY_DOWN): (
        Reason.DEPENDENCY_DOWN,
        "A service that the transform or a sink calls did not answer",
    ),
    (ExitCode.DEPENDENCY_DOWN, Reason.SPARK_UNREACHABLE): (
        Reason.SPARK_UNREACHABLE,
        "The Spark master did not answer, or it dropped the run",
    ),
    (ExitCode.DEPENDENCY_DOWN, Reason.JVM_FAILED): (Reason.JVM_FAILED, "The driver's JVM ended"),
    (ExitCode.NO_EXECUTORS, Reason.EXECUTOR_CRASH_LOOP): (
        Reason.EXECUTOR_CRASH_LOOP,
        "Executors end as fast as Spark launches them",
    ),
}
"""Ends of which the driver's own reason says more than the exit code."""


def _of_exit(code: int, pod: DriverPod) -> Diagnosis:
    if code == ExitCode.STOPPED and pod.deleting_since is not None:
        return Diagnosis(
            category=Reason.POD_LOST,
            summary=f"Pod {pod.name} was deleted, and the operator did not request it",
            special="find what deletes it if this repeats",
            exit_code=code,
        )
    category, summary = ENDS.get(code, (Reason.RUN_FAILED, f"The driver failed with exit code {code}"))
    verdict = pod.verdict
    if _is_suspicion(code, verdict):
        category, summary = Reason.BATCH_FAILED, "The batch failed, and one of its records may be the cause"
    if verdict is None:
        last = detail(pod.log[-1]) if pod.log else ""
        return Diagnosis(category=category, summary=summary, detail=last, exit_code=code)
    category, summary = BY_VERDICT.get((code, verdict.reason), (category, summary))
    return Diagnosis(
        category=_category(category, verdict.reason),
        summary=summary,
        detail=detail(f"{verdict.reason}: {verdict.message}"),
        special=verdict.remedy,
        exit_code=code,
        loss=verdict.loss if code == ExitCode.DATA_LOSS else "",
    )


def _category(by_code: Reason, reported: Reason) -> Reason:
    """Return the category of a run's end: of a loss it is the driver's own reason, which decides how to continue."""
    return reported if by_code is Reason.DATA_LOSS and reported in LOSSES else by_code
