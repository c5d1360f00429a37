"""Reasons of pods that Kubernetes does not start, or that do not stay up."""

from __future__ import annotations

from typing import Final

from fencepost.contract.guidance.entry import NODES, POD, PODS, Category, Guidance, Severity, Step
from fencepost.contract.reasons import Reason

WAITS: Final = "waits, and continues when Kubernetes starts the pod; nothing is lost"

POD_STARTS: Final = {
    Reason.IMAGE_PULL_FAILED: Guidance(
        category=Category.POD,
        severity=Severity.CRITICAL,
        situation="A pod cannot pull its image",
        does=WAITS,
        remedy="correct job.image or cluster.image, or name job.imagePullSecrets",
        steps=(POD,),
    ),
    Reason.UNSCHEDULABLE: Guidance(
        category=Category.POD,
        severity=Severity.CRITICAL,
        situation="A pod does not fit on any node",
        does=WAITS,
        remedy="request less (cluster.worker, cluster.workers, job.resources), relax nodeSelector and affinity, or "
        "add nodes",
        steps=(POD, NODES),
    ),
    Reason.VOLUME_PENDING: Guidance(
        category=Category.POD,
        severity=Severity.CRITICAL,
        situation="The master waits for its volume",
        does=WAITS,
        remedy="see kubectl describe pvc; set cluster.master.storage.storageClassName to a class that can provide it, "
        "or leave it out",
        steps=(
            Step(
                "Why the claim has no volume",
                "kubectl describe pvc -n NAMESPACE -l streaming.fencepost.dev/pipeline=NAME",
            ),
            Step("The classes that there are", "kubectl get storageclass"),
        ),
    ),
    Reason.QUOTA_EXCEEDED: Guidance(
        category=Category.POD,
        severity=Severity.CRITICAL,
        situation="The ResourceQuota of the namespace leaves no room for a pod",
        does=WAITS,
        remedy="raise the ResourceQuota that the message names, or request less (cluster.worker, job.resources)",
        steps=(Step("The quota, and what is used", "kubectl describe resourcequota -n NAMESPACE"),),
    ),
    Reason.POD_REFUSED: Guidance(
        category=Category.POD,
        severity=Severity.CRITICAL,
        situation="The API server refuses a pod: a quota, or an admission policy",
        does=WAITS,
        remedy="change what the admission message names",
        steps=(Step("The refusals", "kubectl get events -n NAMESPACE --field-selector reason=FailedCreate"),),
    ),
    Reason.CONTAINER_CONFIG_ERROR: Guidance(
        category=Category.POD,
        severity=Severity.CRITICAL,
        situation="A Secret, a key or a volume of a container is missing, or the image is not a job image",
        does=WAITS,
        remedy="create the Secret, ConfigMap or key that the message names",
        steps=(POD,),
    ),
    Reason.CRASH_LOOP: Guidance(
        category=Category.POD,
        severity=Severity.CRITICAL,
        situation="A container of the Spark cluster keeps ending",
        does="waits; the kubelet starts it again, ever more rarely",
        remedy="read its log with kubectl logs --previous; common causes are too little memory and an image of "
        "another kind",
        steps=(PODS, Step("Why it ended", "kubectl logs -n NAMESPACE POD --previous --tail 50")),
    ),
    Reason.PROBE_FAILED: Guidance(
        category=Category.POD,
        severity=Severity.CRITICAL,
        situation="A container of the Spark cluster has run for a minute and does not pass its probe",
        does="waits; the kubelet restarts a container whose liveness probe fails",
        remedy="read its log with kubectl logs; an overloaded node, or too little CPU for it, is a common cause",
        steps=(PODS, Step("Its log", "kubectl logs -n NAMESPACE POD --tail 50"), NODES),
    ),
    Reason.POD_ISSUE: Guidance(
        category=Category.POD,
        severity=Severity.CRITICAL,
        situation="A pod cannot start for a reason that Fencepost does not know",
        does=WAITS,
        remedy="see kubectl describe pod",
        steps=(POD,),
    ),
}
