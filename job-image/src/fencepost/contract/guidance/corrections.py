"""Reasons that last until a user corrects what the message names."""

from __future__ import annotations

from typing import Final

from fencepost.contract.guidance.entry import (
    DESCRIBE_TRIAL,
    HISTORY,
    LOG,
    OFFSETS,
    RETRY,
    Category,
    Guidance,
    Severity,
    Step,
)
from fencepost.contract.reasons import Reason

REWINDS: Final = Step("The rewinds, with the reason of each", "kubectl get rw -n NAMESPACE -o wide")
TRIALS: Final = Step("The trials, with the reason of each", "kubectl get tr -n NAMESPACE -o wide")

PERSON: Final = {
    Reason.INVALID_SPEC: Guidance(
        category=Category.PERSON,
        severity=Severity.CRITICAL,
        situation="A field asks for what the operator cannot do; the message names each",
        does="keeps the last valid spec in effect, and restarts its run as needed; starts nothing without one",
        remedy="correct the spec",
        steps=(
            Step(
                "The specs that are kept, the newest last",
                "kubectl get controllerrevisions -n NAMESPACE -l streaming.fencepost.dev/pipeline=NAME "
                "--sort-by=.metadata.creationTimestamp",
            ),
            Step(
                "The one that is in effect",
                "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.status.run.revision}'",
            ),
        ),
    ),
    Reason.CONFIG_MAP_NOT_FOUND: Guidance(
        category=Category.PERSON,
        severity=Severity.CRITICAL,
        situation="A ConfigMap that the spec names does not exist",
        does="starts nothing; a run that has read it continues, and is not replaced",
        remedy="create what is missing, or correct its name in the spec",
        steps=(Step("What there is", "kubectl get configmaps -n NAMESPACE"),),
    ),
    Reason.SECRET_NOT_FOUND: Guidance(
        category=Category.PERSON,
        severity=Severity.CRITICAL,
        situation="A Secret that the spec names does not exist",
        does="starts nothing; a run that has read it continues, and is not replaced",
        remedy="create what is missing, or correct its name in the spec",
        steps=(Step("What there is", "kubectl get secrets -n NAMESPACE"),),
    ),
    Reason.TOPIC_NOT_FOUND: Guidance(
        category=Category.PERSON,
        severity=Severity.CRITICAL,
        situation="Kafka has no topic of that name",
        does="waits: it creates no topics; a run continues with the others",
        remedy="create it, or correct source.kafka.topics",
        steps=(Step("The topics of the spec, and their ends", "fencepost offsets NAMESPACE/NAME"),),
    ),
    Reason.FENCE_OWNED_ELSEWHERE: Guidance(
        category=Category.PERSON,
        severity=Severity.CRITICAL,
        situation="A pipeline of another Kubernetes cluster owns the fence row",
        does="starts nothing; an annotation that names that cluster and the epoch allows one takeover",
        remedy="make sure that the other pipeline is gone, then set the annotation in the message; or give this "
        "operator a scope of its own",
        steps=(
            Step("Who holds the row", "fencepost fence show NAMESPACE/NAME"),
            Step(
                "Take it over, with the value that the message has",
                "kubectl annotate spl -n NAMESPACE NAME --overwrite "
                "streaming.fencepost.dev/adopt-fence=CLUSTER_UID@EPOCH",
            ),
        ),
    ),
    Reason.FENCE_LOST: Guidance(
        category=Category.PERSON,
        severity=Severity.CRITICAL,
        situation="The fence row existed and is gone: Cassandra lost it, or it was deleted",
        does="starts nothing, because the progress is not known",
        remedy="restore it from a backup; or save status.committed.offsets, set deletionPolicy to Delete, delete the "
        "pipeline and create it again with them in source.kafka.startingOffsets",
        steps=(OFFSETS,),
        more="FencepostPipelineNotReady.md#create-the-pipeline-again-at-saved-offsets",
    ),
    Reason.FENCE_ROLLED_BACK: Guidance(
        category=Category.PERSON,
        severity=Severity.CRITICAL,
        situation="The fence row is at an older epoch than was seen: an older backup was restored",
        does="starts nothing, because the newer progress is not known",
        remedy="restore the newer row; or continue from the older one: with deletionPolicy Retain, delete the pipeline "
        "and apply it again",
        steps=(
            HISTORY,
            Step(
                "Save the newer offsets, which only Prometheus still has: status.committed.offsets are the older row's",
                "promtool query instant PROMETHEUS_URL "
                '\'max_over_time(fencepost_pipeline_committed_offset{namespace="NAMESPACE",name="NAME"}[7d])\'',
            ),
            Step(
                "Continue from the older row, and apply the manifest again; records since then are written again",
                'kubectl patch spl -n NAMESPACE NAME --type merge -p \'{"spec":{"deletionPolicy":"Retain"}}\' && '
                "kubectl delete spl -n NAMESPACE NAME",
            ),
        ),
        more="FencepostPipelineNotReady.md#fencerolledback",
    ),
    Reason.RESTART_BUDGET_EXHAUSTED: Guidance(
        category=Category.PERSON,
        severity=Severity.CRITICAL,
        situation="`restart.maxAttempts` runs failed in a row without progress, 20 by default",
        does="starts no further run until the spec, `restart.nonce` or the retry annotation changes",
        remedy="correct what the message names, then change the spec, or set restart.nonce or the annotation "
        "streaming.fencepost.dev/retry to a new value",
        steps=(
            Step(
                "How the last run failed",
                "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.status.failure}'",
            ),
            LOG,
            RETRY,
        ),
        more="FencepostRestartLoop.md#the-restart-budget",
    ),
    Reason.ROLLED_BACK: Guidance(
        category=Category.PERSON,
        severity=Severity.WARNING,
        situation="A new spec was the cause of a failure before it was stable, and `upgrade.rollback` is enabled",
        does="streams with the last stable spec and the newest offsets; the object keeps its spec, and the new one is "
        "not tried again",
        remedy="correct what the message names and apply the corrected spec; or, to try this one again, set the "
        "annotation streaming.fencepost.dev/retry to a new value",
        steps=(
            Step(
                "What failed, and what is in effect",
                "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.status.rolledBack}'",
            ),
            Step(
                "How its last run failed",
                "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.status.failure}'",
            ),
            RETRY,
        ),
        more="../operations.md#a-new-spec-that-fails",
    ),
    Reason.PURGE_FAILED: Guidance(
        category=Category.PERSON,
        severity=Severity.CRITICAL,
        situation="A PipelineRewind could not delete output, found rows that are newer than the fence, or no longer "
        "has the snapshot whose state it sets",
        does="keeps the pipeline stopped, with the fence as it was",
        remedy="do what the message says: correct what the Job's log names, and delete the Job; or go back to "
        "an earlier snapshot",
        steps=(
            REWINDS,
            Step("The log of the Job that the message names", "kubectl logs -n NAMESPACE job/JOB"),
            Step("Try again", "kubectl delete job -n NAMESPACE JOB"),
        ),
        more="../operations.md#deleteoutput",
    ),
    Reason.REWIND_REFUSED: Guidance(
        category=Category.PERSON,
        severity=Severity.WARNING,
        situation="The target of a PipelineRewind cannot be, or its pipeline was deleted",
        does="ends the rewind; the pipeline continues from its last commit",
        remedy="correct what the message names in a new PipelineRewind",
        steps=(REWINDS,),
        more="../operations.md#rewind",
    ),
    Reason.TRIAL_REFUSED: Guidance(
        category=Category.PERSON,
        severity=Severity.WARNING,
        situation="A PipelineTrial cannot be: no sink can be read back, the pipeline's history does not have its start,"
        " or the pipeline is stateful and no snapshot is named",
        does="ends the trial; the pipeline is not affected",
        remedy="correct what the message names in a new PipelineTrial",
        first=DESCRIBE_TRIAL,
        steps=(TRIALS,),
        more="../authors.md#try-new-code-first",
    ),
    Reason.TRIAL_FAILED: Guidance(
        category=Category.PERSON,
        severity=Severity.WARNING,
        situation="A PipelineTrial ended without a result: its Job took too long or was deleted, or the pipeline was"
        " rewound, changed or deleted meanwhile",
        does="ends the trial; the pipeline is not affected",
        remedy="correct what the message names, and create another PipelineTrial",
        first=DESCRIBE_TRIAL,
        steps=(TRIALS,),
        more="../authors.md#try-new-code-first",
    ),
    Reason.TRIAL_NOT_PASSED: Guidance(
        category=Category.PERSON,
        severity=Severity.WARNING,
        situation="With `upgrade.strategy: Trial`, the trial of new code found what `upgrade.trial.promoteWhen` does"
        " not allow, ended without a result, or has not been able to begin for `pages.notReadyFor`",
        does="streams with the code before and the newest offsets; the object keeps its spec, and the new code writes"
        " nothing",
        remedy="correct the code, or what keeps the trial from its begin, such as a quota; or, where the rows are to"
        " change, accept the code: set the annotation streaming.fencepost.dev/accept-code to the name of the trial, or"
        " raise `upgrade.trial.promoteWhen`; or delete the trial to try the code again",
        steps=(
            Step(
                "What was tried, and what is in effect",
                "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.status.upgradeTrial}'",
            ),
            TRIALS,
            Step("What keeps one from its begin", "kubectl describe tr -n NAMESPACE TRIAL"),
            Step("The rows that differ", "kubectl get tr -n NAMESPACE TRIAL -o jsonpath='{.status.samples}'"),
            Step(
                "Accept the code",
                "kubectl annotate spl -n NAMESPACE NAME streaming.fencepost.dev/accept-code=TRIAL --overwrite",
            ),
        ),
        more="../operations.md#new-code-that-is-tried-first",
    ),
    Reason.REWIND_LATE: Guidance(
        category=Category.PERSON,
        severity=Severity.CRITICAL,
        situation="A step of a PipelineRewind takes longer than five minutes, or its deletion of output ten times "
        "longer than the count of the rows; the pipeline is stopped meanwhile",
        does="continues with the step, and pages as `NotReady` when it lasts",
        remedy="look at the step that the message names, and at the log of its Job",
        steps=(
            REWINDS,
            Step("Its Jobs and pods", "kubectl get jobs,pods -n NAMESPACE -l streaming.fencepost.dev/pipeline=NAME"),
            Step(
                "The log of the deletion",
                "kubectl logs -n NAMESPACE --tail=-1"
                " -l app.kubernetes.io/name=fencepost-purge,app.kubernetes.io/instance=NAME",
            ),
        ),
        more="../operations.md#rewind",
    ),
    Reason.DEATH_UNPROVEN: Guidance(
        category=Category.PERSON,
        severity=Severity.CRITICAL,
        situation="The proof that a driver is dead is late, as where its node is lost, and what comes next waits: the "
        "next run where `restart.onUnprovenDeath` is `wait`, or a PipelineRewind that deletes output",
        does="starts nothing and deletes no output, until the death is proved or confirmed by a user",
        remedy="bring the node back; or make sure that its machine is off, and set the annotation in the message; or "
        "set restart.onUnprovenDeath to fence; or delete the PipelineRewind",
        steps=(
            Step("Whether the node is there", "kubectl get nodes -o wide"),
            Step(
                "If the message says that its Job is gone, as after a deletion with --cascade=orphan, end its pod",
                "kubectl delete pod -n NAMESPACE POD",
            ),
            Step(
                "Say that its machine is off, as the message has it",
                "kubectl annotate spl -n NAMESPACE NAME --overwrite "
                "streaming.fencepost.dev/confirm-dead=NAME-run-EPOCH",
            ),
        ),
        more="../operations.md#a-node-is-lost",
    ),
}
