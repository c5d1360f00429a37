"""Reasons of steady states, of the steps between them, and of a PipelineRewind."""

from __future__ import annotations

from typing import Final

from fencepost.contract.guidance.entry import (
    AUTOSCALE,
    DESCRIBE_TRIAL,
    FAILURE,
    HISTORY,
    LOG,
    OPERATOR_LOG,
    PODS,
    Category,
    Guidance,
    Severity,
    Step,
)
from fencepost.contract.reasons import Reason

REWINDS: Final = Step("The rewinds, and in which step each is", "kubectl get rw -n NAMESPACE")
TRIALS: Final = Step("The trials, and what each has found", "kubectl get tr -n NAMESPACE -o wide")

STEADY: Final = {
    Reason.STREAMING: Guidance(
        category=Category.STEADY,
        severity=Severity.NONE,
        situation="A driver holds the fence and commits, or has nothing to read",
        does="plans, reads, writes and commits one batch after another; an idle topic is healthy",
    ),
    Reason.CATCHING_UP: Guidance(
        category=Category.STEADY,
        severity=Severity.NONE,
        situation="As `Streaming`, with a backlog of more than two of the largest batches or of a minute",
        does="reads batches as large as duration, bytes and records allow",
    ),
    Reason.STANDBY_WARM: Guidance(
        category=Category.STEADY,
        severity=Severity.NONE,
        situation="The standby of a pipeline with `restart.standby: Warm` waits for the run that works to fail",
        does="keeps it warm, and lets it take over as soon as the fence is taken from that run",
        steps=(PODS,),
        more="../operations.md#a-warm-standby",
    ),
    Reason.SUSPENDED: Guidance(
        category=Category.STEADY,
        severity=Severity.NONE,
        situation="`spec.suspend` is true: there is neither a driver nor a cluster; Ready is True",
        does="keeps the fence row and warns when Kafka is about to delete records that are not committed",
        remedy="set spec.suspend to false to continue from the last commit",
        steps=(
            Step(
                "Continue",
                'kubectl patch spl -n NAMESPACE NAME --type merge -p \'{"spec":{"suspend":false}}\'',
            ),
        ),
    ),
    Reason.FAILOVER_STANDBY: Guidance(
        category=Category.STEADY,
        severity=Severity.NONE,
        situation="With `spec.failover`, another Kubernetes cluster owns the fence row and runs the pipeline; Ready is "
        "True",
        does="keeps neither a driver nor a cluster here; takes the fence over when neither the other operator nor its "
        "driver gives a sign of life for `failover.takeOverAfter`",
        remedy="to move the pipeline here, run `fencepost failover` in the other cluster",
        steps=(
            Step("Who holds the row, and when it was committed to", "fencepost fence show NAMESPACE/NAME"),
            Step(
                "Move it: in the cluster that runs it, with the uid of the one that waits",
                "fencepost failover NAMESPACE/NAME --to CLUSTER_UID",
            ),
        ),
        more="../operations.md#a-second-kubernetes-cluster",
    ),
    Reason.PAUSED: Guidance(
        category=Category.STEADY,
        severity=Severity.NONE,
        situation="The annotation `streaming.fencepost.dev/paused` is set",
        does="nothing: a running driver continues, but is not replaced; only RetentionRisk is kept up to date",
        remedy="remove the annotation streaming.fencepost.dev/paused",
        steps=(
            Step("Continue", "kubectl annotate spl -n NAMESPACE NAME streaming.fencepost.dev/paused-"),
            PODS,
        ),
        more="FencepostPipelinePaused.md",
    ),
}

PROGRESS: Final = {
    Reason.PENDING: Guidance(
        category=Category.PROGRESS,
        severity=Severity.NONE,
        situation="The pipeline was just created",
        does="adds its finalizer before it creates anything",
    ),
    Reason.PROVISIONING: Guidance(
        category=Category.PROGRESS,
        severity=Severity.NONE,
        situation="The fence row or the Spark cluster is created or repaired, or the master does not run yet",
        does="creates the row, installs the cluster with Helm, and waits until the master's container runs; a master "
        "that was ready before must be ready again",
        steps=(PODS,),
    ),
    Reason.CLUSTER_READY: Guidance(
        category=Category.PROGRESS,
        severity=Severity.NONE,
        situation="The container of the Spark master runs",
        does="starts the driver",
    ),
    Reason.CLUSTER_CHANGED: Guidance(
        category=Category.PROGRESS,
        severity=Severity.NONE,
        situation="Objects of the Spark cluster were deleted or changed; the message names them",
        does="applies them again as they were, with the same secret; a driver that runs continues",
        remedy="find out who changed them, in the API server's audit log, or by their managedFields",
        steps=(
            PODS,
            Step(
                "The objects, and who last changed their fields",
                "kubectl get services,configmaps,statefulsets,poddisruptionbudgets -n NAMESPACE "
                "-l streaming.fencepost.dev/pipeline=NAME -o yaml --show-managed-fields",
            ),
        ),
    ),
    Reason.FENCED: Guidance(
        category=Category.PROGRESS,
        severity=Severity.NONE,
        situation="A new epoch begins",
        does="takes the fence over, so that no older driver can commit; then the next run starts",
        steps=(HISTORY,),
    ),
    Reason.RUN_STARTED: Guidance(
        category=Category.PROGRESS,
        severity=Severity.NONE,
        situation="A run is recorded under its epoch",
        does="creates the driver's Job; a batch that ran out of memory or made no progress is cut, and the message "
        "says to how many records",
    ),
    Reason.STARTING: Guidance(
        category=Category.PROGRESS,
        severity=Severity.NONE,
        situation="The driver's pod starts, or its first batch is in progress",
        does="waits; a driver that does not claim its epoch within `restart.startTimeout` is replaced",
        steps=(PODS, LOG),
    ),
    Reason.RUN_CLAIMED: Guidance(
        category=Category.PROGRESS,
        severity=Severity.NONE,
        situation="The driver claimed its epoch",
        does="it alone can commit from now on",
    ),
    Reason.BACKING_OFF: Guidance(
        category=Category.PROGRESS,
        severity=Severity.CRITICAL,
        situation="Runs failed in a row without progress, and the next one waits",
        does="starts the next run n² - n seconds after the n-th failure, at most `restart.maxBackoff`; a commit "
        "resets this",
        remedy="correct what the message names; to try at once, set the annotation streaming.fencepost.dev/retry to "
        "a new value",
        steps=(
            LOG,
            Step(
                "Try at once",
                'kubectl annotate spl -n NAMESPACE NAME streaming.fencepost.dev/retry="$(date +%s)" --overwrite',
            ),
        ),
        more="FencepostRestartLoop.md",
    ),
    Reason.UPGRADING: Guidance(
        category=Category.PROGRESS,
        severity=Severity.NONE,
        situation="The job, the Spark settings, or a ConfigMap or Secret that the spec names changed",
        does="lets the run finish its batch and starts one of the new spec; a batch that the old code began is "
        "finished by the old code first",
        steps=(LOG,),
    ),
    Reason.RESTART_QUEUED: Guidance(
        category=Category.PROGRESS,
        severity=Severity.NONE,
        situation="A healthy run is to be replaced, and as many pipelines as `maxConcurrentRestarts` allows are being "
        "restarted",
        does="lets the run stream on until it is its turn",
        remedy="wait; or raise maxConcurrentRestarts of the operator's chart",
        steps=(Step("Who waits", "kubectl get events -A --field-selector reason=RestartQueued"),),
        more="../operations.md#many-restarts-at-once",
    ),
    Reason.SCALED: Guidance(
        category=Category.PROGRESS,
        severity=Severity.NONE,
        situation="`cluster.workers` changed",
        does="changes the number of workers; the driver keeps running, except from and to 0",
        steps=(PODS,),
    ),
    Reason.AUTOSCALED: Guidance(
        category=Category.PROGRESS,
        severity=Severity.NONE,
        situation="The load of a pipeline with `cluster.autoscale` needs another number of workers",
        does="changes the number of workers; the driver keeps running, and the pipeline stays ready",
        steps=(AUTOSCALE, PODS),
        more="../operations.md#workers-by-load",
    ),
    Reason.STANDBY_STARTING: Guidance(
        category=Category.PROGRESS,
        severity=Severity.NONE,
        situation="A pipeline with `restart.standby: Warm` has no warm standby yet",
        does="starts one beside the run that works, which continues; where that fails first, it is restarted as usual",
        steps=(PODS,),
        more="../operations.md#a-warm-standby",
    ),
    Reason.STANDBY_TOOK_OVER: Guidance(
        category=Category.PROGRESS,
        severity=Severity.NONE,
        situation="The run that worked has failed, and the standby has its epoch",
        does="deletes what is left of the run before, then starts another standby",
        steps=(FAILURE, LOG),
        more="../operations.md#a-warm-standby",
    ),
    Reason.STOPPING: Guidance(
        category=Category.PROGRESS,
        severity=Severity.NONE,
        situation="A run was asked to stop, or a cluster is uninstalled",
        does="waits for the driver to finish and commit its batch; one that does not end in its grace period is fenced",
        steps=(PODS, LOG),
    ),
    Reason.RESUMED: Guidance(
        category=Category.PROGRESS,
        severity=Severity.NONE,
        situation="A suspended or paused pipeline continues, or one was created again over its fence row",
        does="continues from the last commit",
        steps=(HISTORY,),
    ),
    Reason.SUPERSEDED: Guidance(
        category=Category.PROGRESS,
        severity=Severity.NONE,
        situation="The fence moved on without this run",
        does="stops the run, which can commit nothing any more, and starts one under the new epoch",
        remedy="nothing; if it repeats, look for a second operator with the same scope",
        steps=(HISTORY, OPERATOR_LOG),
    ),
    Reason.DELETING: Guidance(
        category=Category.PROGRESS,
        severity=Severity.NONE,
        situation="The pipeline is deleted",
        does="stops the run, uninstalls the cluster, and with `deletionPolicy: Delete` deletes the offsets",
        steps=(PODS,),
    ),
    Reason.RELEASED: Guidance(
        category=Category.PROGRESS,
        severity=Severity.NONE,
        situation="Everything of a deleted pipeline is cleaned up",
        does="removes its finalizer; with `deletionPolicy: Retain` the fence row stays",
    ),
    Reason.LOSS_ACCEPTED: Guidance(
        category=Category.PROGRESS,
        severity=Severity.NONE,
        situation="A user accepted a loss of records",
        does="records who accepted which ranges in `accepted_losses` and `status.acceptedLosses`, then starts a run",
        steps=(Step("What was accepted", "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.status.acceptedLosses}'"),),
    ),
    Reason.REWINDING: Guidance(
        category=Category.PROGRESS,
        severity=Severity.NONE,
        situation="A PipelineRewind keeps the pipeline from running",
        does="takes its steps: stop, fence, delete output if asked, set the offsets; then it starts a run",
        remedy="wait; to cancel it, delete the PipelineRewind",
        steps=(REWINDS,),
        more="../operations.md#rewind",
    ),
    Reason.REWOUND: Guidance(
        category=Category.PROGRESS,
        severity=Severity.NONE,
        situation="A PipelineRewind arrived",
        does="starts a run at the offsets that were set",
        steps=(REWINDS, HISTORY),
    ),
    Reason.TRYING: Guidance(
        category=Category.PROGRESS,
        severity=Severity.NONE,
        situation="A PipelineTrial waits, or runs new code beside the pipeline",
        does="processes committed records with the new code, writes nothing, and compares its rows with the table's",
        remedy="wait; to end it, delete the PipelineTrial",
        first=DESCRIBE_TRIAL,
        steps=(
            TRIALS,
            Step(
                "The log of its pod",
                "kubectl logs -n NAMESPACE --tail=50"
                " -l app.kubernetes.io/name=fencepost-trial,app.kubernetes.io/instance=NAME",
            ),
        ),
        more="../authors.md#try-new-code-first",
    ),
    Reason.TRIED: Guidance(
        category=Category.PROGRESS,
        severity=Severity.NONE,
        situation="A PipelineTrial has compared the rows of the new code; its status has the counts and samples",
        does="promotes the code where `promoteWhen` holds, once",
        remedy="nothing if the trial is Ready; otherwise its code was not promoted: correct the code, or create "
        "another PipelineTrial with larger bounds",
        first=DESCRIBE_TRIAL,
        steps=(
            TRIALS,
            Step("The rows that differ", "kubectl get tr -n NAMESPACE TRIAL -o jsonpath='{.status.samples}'"),
        ),
        more="../authors.md#try-new-code-first",
    ),
}
