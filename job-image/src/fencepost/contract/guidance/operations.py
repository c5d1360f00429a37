"""Reasons of the operator's own actions, and of the operator itself."""

from __future__ import annotations

from typing import Final

from fencepost.contract.guidance.entry import OPERATOR_LOG, Category, Guidance, Severity, Step
from fencepost.contract.reasons import Reason

APPLY_CRDS: Final = (
    "helm template CHART --show-only templates/crds.yaml | kubectl apply --server-side --force-conflicts -f -"
)
"""Brings the CRDs up to date where the release does not (`crds.enabled`); CHART is the operator's chart."""
TRIES: Final = "tries again, ever more rarely, and says how often it has"
OPERATOR_PODS: Final = Step("Do its replicas run", "kubectl get pods -n fencepost-system")
PREVIOUS: Final = Step(
    "How the container before ended", "kubectl logs -n fencepost-system deploy/fencepost --previous --tail 50"
)
LEASE: Final = Step("Who holds the Lease, and since when", "kubectl get lease -n fencepost-system -o yaml")
RESTART: Final = Step(
    "Restart it, which is always safe", "kubectl rollout restart -n fencepost-system deploy/fencepost"
)
JOBS: Final = Step("The Jobs of the pipeline", "kubectl get jobs -n NAMESPACE -l streaming.fencepost.dev/pipeline=NAME")
RELEASES: Final = Step(
    "The pipeline's Helm releases, which are in the operator's namespace",
    "helm list -n fencepost-system --all "
    "-l streaming.fencepost.dev/namespace=NAMESPACE,streaming.fencepost.dev/pipeline=NAME",
)

ACTION: Final = {
    Reason.INSTALL_FAILED: Guidance(
        category=Category.ACTION,
        severity=Severity.CRITICAL,
        situation="Helm could not install or change the Spark cluster",
        does=TRIES,
        remedy="correct what Helm's text in the message names; uninstall a release that is not the operator's, or "
        "rename the pipeline",
        steps=(RELEASES,),
    ),
    Reason.UNINSTALL_FAILED: Guidance(
        category=Category.ACTION,
        severity=Severity.WARNING,
        situation="Helm could not uninstall the Spark cluster, or objects of an old one could not be deleted",
        does=TRIES,
        remedy="correct what the message names: a finalizer, a webhook, or the operator's RBAC",
        steps=(RELEASES,),
    ),
    Reason.START_FAILED: Guidance(
        category=Category.ACTION,
        severity=Severity.CRITICAL,
        situation="The Job of a run or of a purge could not be created",
        does=TRIES,
        remedy="correct what the API server's text in the message names: a quota, admission, or the operator's RBAC",
        steps=(JOBS,),
    ),
    Reason.STOP_FAILED: Guidance(
        category=Category.ACTION,
        severity=Severity.WARNING,
        situation="The Job of a run could not be deleted",
        does=TRIES,
        remedy="correct what the API server's text in the message names: admission, or the operator's RBAC",
        steps=(JOBS,),
    ),
    Reason.UPDATE_FAILED: Guidance(
        category=Category.ACTION,
        severity=Severity.WARNING,
        situation="The finalizer could not be set or removed, or a revision of the spec not be stored",
        does=TRIES,
        remedy="correct what the API server's text in the message names: admission, or the operator's RBAC",
        steps=(OPERATOR_LOG,),
    ),
    Reason.NO_EFFECT: Guidance(
        category=Category.ACTION,
        severity=Severity.WARNING,
        situation="An action succeeds again and again, and changes nothing",
        does=TRIES,
        remedy="look for what reverts or caps it, such as an admission webhook, a quota or another controller",
        steps=(
            Step(
                "The webhooks of the cluster",
                "kubectl get mutatingwebhookconfigurations,validatingwebhookconfigurations",
            ),
        ),
    ),
}

OPERATOR: Final = {
    Reason.BAD_SETTINGS: Guidance(
        category=Category.OPERATOR,
        severity=Severity.CRITICAL,
        situation="The operator's settings are not valid",
        does="ends; the kubelet starts it again",
        remedy="correct the values of the chart",
        steps=(Step("The values", "helm get values -n fencepost-system fencepost"),),
        more="FencepostOperatorDown.md",
    ),
    Reason.NOT_SERVED: Guidance(
        category=Category.OPERATOR,
        severity=Severity.WARNING,
        situation="The API server does not serve StreamingPipelines, refuses to list them, or its "
        "CustomResourceDefinitions are older than the operator",
        does="waits, and is not ready; a replica of the release before continues to act",
        remedy="install the CustomResourceDefinitions of the operator's chart; check the operator's RBAC",
        steps=(
            Step("Do they exist", "kubectl get crd streamingpipelines.streaming.fencepost.dev"),
            Step("What is missing", "kubectl logs -n fencepost-system deploy/fencepost | sed -n /NotServed/p"),
            Step("Bring the CRDs up to date; the operator starts within seconds", APPLY_CRDS),
        ),
        more="FencepostOperatorDown.md",
    ),
    Reason.LIST_FAILED: Guidance(
        category=Category.OPERATOR,
        severity=Severity.NONE,
        situation="The pipelines could not be listed",
        does="tries again; it reconciles those that it knows",
        remedy="check the API server's health and the operator's RBAC",
        steps=(Step("Its health", "kubectl get --raw /readyz?verbose"),),
        more="FencepostOperatorLoopStuck.md",
    ),
    Reason.PASS_FAILED: Guidance(
        category=Category.OPERATOR,
        severity=Severity.CRITICAL,
        situation="A pass over a pipeline failed: it could not be read or its status not be written",
        does="tries again with backoff; the run continues",
        remedy="correct what the log names: the API server, a webhook, or the operator's RBAC",
        steps=(RESTART,),
        more="FencepostOperatorLoopStuck.md",
    ),
    Reason.STANDBY: Guidance(
        category=Category.OPERATOR,
        severity=Severity.NONE,
        situation="Other replicas hold the Leases, or this one hands over a shard",
        does="waits, and takes over within seconds when another one ends",
        steps=(LEASE,),
    ),
    Reason.LEADING: Guidance(
        category=Category.OPERATOR,
        severity=Severity.NONE,
        situation="This replica took the Lease of a shard",
        does="reconciles the shard's pipelines; with one shard, all of them",
        steps=(LEASE,),
    ),
    Reason.LEASE_NOT_RENEWED: Guidance(
        category=Category.OPERATOR,
        severity=Severity.NONE,
        situation="The Lease could not be taken, renewed or released",
        does="tries again; without the Lease it writes nothing",
        remedy="check the API server, and the operator's Role for leases in its namespace",
        steps=(
            LEASE,
            Step(
                "May it write the Lease",
                "kubectl auth can-i update lease/fencepost -n fencepost-system "
                "--as system:serviceaccount:fencepost-system:fencepost",
            ),
        ),
        more="FencepostOperatorDown.md",
    ),
    Reason.LEASE_LOST: Guidance(
        category=Category.OPERATOR,
        severity=Severity.NONE,
        situation="This replica was frozen or cut off, or the Lease was deleted, and another one may have taken over",
        does="ends at once (exit code 3) and writes nothing more; the kubelet starts it again",
        remedy="nothing, if it happened once; otherwise look at the node's CPU and the API server's latency",
        steps=(LEASE, PREVIOUS),
        more="FencepostOperatorDown.md",
    ),
    Reason.CRASHED: Guidance(
        category=Category.OPERATOR,
        severity=Severity.CRITICAL,
        situation="The operator met an error that it does not know",
        does="ends; the kubelet starts it again, and it needs nothing that it kept in memory",
        remedy="report the traceback in its log",
        steps=(OPERATOR_PODS, PREVIOUS),
        more="FencepostOperatorDown.md",
    ),
}
