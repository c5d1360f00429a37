"""Reasons for which a run ended, as the operator concludes from its pod, its verdict and its node."""

from __future__ import annotations

from typing import Final

from fencepost.contract.guidance.entry import (
    LOG,
    NODES,
    PODS,
    RETRY,
    SUSPEND,
    Category,
    Guidance,
    Severity,
    Step,
)
from fencepost.contract.reasons import Reason

AGAIN: Final = "starts the next run with backoff; it repeats the batch"
UNCOUNTED: Final = "starts the next run with backoff; this does not count towards `restart.maxAttempts`"
STALLS: Final = "stops and pages: another run would only repeat it"
LOSES: Final = "stops and pages with the exact range, and continues only after a recorded acceptance"
LOST: Final = "FencepostPipelineNotReady.md#lost-records-continue-without-them"
LOSS: Final = Step("The loss, with its first ranges", "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.status.loss}'")
ACCEPT: Final = Step(
    "Continue without what is lost, once its owner agrees; the condition has the id",
    'kubectl annotate spl -n NAMESPACE NAME --overwrite streaming.fencepost.dev/accept-loss="ID by=$USER"',
)
EXTEND: Final = Step(
    "Keep what is left, of this and of every other partition: retention continues while the pipeline stands still",
    "fencepost retention extend NAMESPACE/NAME --to 14d",
)
SKIP: Final = Step(
    "Skip what retention deletes before it is read, once its owner agrees; the condition has the id",
    "kubectl annotate spl -n NAMESPACE NAME --overwrite "
    'streaming.fencepost.dev/accept-loss="ID by=$USER continue=earliest"',
)
CHOOSE: Final = Step(
    "Continue without what is lost, once its owner agrees; the condition has the id",
    "kubectl annotate spl -n NAMESPACE NAME --overwrite "
    'streaming.fencepost.dev/accept-loss="ID by=$USER continue=earliest"',
)
ABANDON: Final = Step(
    "Continue without the topic, once its owner agrees; the condition has the id",
    "kubectl annotate spl -n NAMESPACE NAME --overwrite "
    'streaming.fencepost.dev/accept-loss="ID by=$USER continue=abandon"',
)
WORKERS: Final = Step(
    "Do the workers run, and do their cores and memory fit",
    "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.spec.cluster}'",
)
EXECUTORS_OUTPUT: Final = "sh -c 'tail -n 20 $SPARK_WORKER_DIR/*/*/stderr'"
"""Shows, in a worker's container, what its executors said last."""
EVENTS: Final = Step("What happened in the namespace", "kubectl get events -n NAMESPACE --sort-by .lastTimestamp")

END: Final = {
    Reason.RUN_FAILED: Guidance(
        category=Category.END,
        severity=Severity.CRITICAL,
        situation="The driver failed with an exit code that has no meaning of its own (1)",
        does=AGAIN,
        remedy="read the driver's log with kubectl logs",
        steps=(LOG, SUSPEND),
        more="FencepostRestartLoop.md",
    ),
    Reason.BATCH_FAILED: Guidance(
        category=Category.END,
        severity=Severity.CRITICAL,
        situation="The transform raised, a key is null, or a value does not fit its column (1, 53): one record may be "
        "the cause",
        does="repeats the batch; after `onPoison.failures` of them a run looks for the record that fails",
        remedy="wait until the record is found; if that run fails as well, every record fails: correct the transform",
        steps=(LOG,),
        more="../authors.md#a-bad-record",
    ),
    Reason.POISON_RECORD: Guidance(
        category=Category.END,
        severity=Severity.CRITICAL,
        situation="One record fails each time it is tried alone, while others pass (53)",
        does="stops and pages with topic, partition and offset; with `onPoison.action: deadLetter` sets it aside",
        remedy="fix the transform for the record that the message names, or set spec.onPoison.action to deadLetter, or"
        " leave the record out with `fencepost dead-letters skip`",
        steps=(
            LOG,
            Step(
                "Set such records aside",
                'kubectl patch spl -n NAMESPACE NAME --type merge -p \'{"spec":{"onPoison":{"action":"deadLetter"}}}\'',
            ),
            Step("Or leave this record out", "fencepost dead-letters skip NAMESPACE/NAME TOPIC/PARTITION@OFFSET --yes"),
            RETRY,
        ),
        more="../authors.md#a-bad-record",
    ),
    Reason.BAD_SPEC: Guidance(
        category=Category.END,
        severity=Severity.CRITICAL,
        situation="The spec or the author's code cannot work as it is (51); the message says which",
        does=STALLS,
        remedy="fix the spec, the ConfigMap or the image; a change starts a new run",
        steps=(LOG, RETRY),
    ),
    Reason.DATA_LOSS: Guidance(
        category=Category.END,
        severity=Severity.CRITICAL,
        situation="The driver ended with exit code 52 and left no verdict",
        does=LOSES,
        remedy="restore the topic, or see docs/runbooks/DataLoss.md to continue without the lost records",
        steps=(LOG, Step("Let the next run find the loss again", RETRY.command)),
        more=LOST,
    ),
    Reason.OFFSET_OUT_OF_RANGE: Guidance(
        category=Category.END,
        severity=Severity.CRITICAL,
        situation="Retention deleted records before they were read (52)",
        does=LOSES,
        remedy="keep what is left with `fencepost retention extend`, then accept the loss with the annotation in the "
        "message",
        steps=(EXTEND, LOSS, SKIP),
        more=LOST,
    ),
    Reason.LOG_TRUNCATED: Guidance(
        category=Category.END,
        severity=Severity.CRITICAL,
        situation="Kafka lost records that were read (52): an unclean election, or a broker without its disk",
        does=LOSES,
        remedy="restore the records if you can, or accept the loss with the annotation in the message",
        steps=(LOSS, ACCEPT),
        more=LOST,
    ),
    Reason.TOPIC_RECREATED: Guidance(
        category=Category.END,
        severity=Severity.CRITICAL,
        situation="Another topic has the name of the one that was read (52): its topic id differs",
        does=LOSES,
        remedy="accept the loss with the annotation in the message, and say where to continue",
        steps=(LOSS, CHOOSE),
        more=LOST,
    ),
    Reason.TOPIC_DELETED: Guidance(
        category=Category.END,
        severity=Severity.CRITICAL,
        situation="A topic with committed offsets is gone (52)",
        does=LOSES,
        remedy="restore the topic; or accept the loss with the annotation in the message, and remove the topic from "
        "the spec",
        steps=(LOSS, ABANDON),
        more=LOST,
    ),
    Reason.DEPENDENCY_DOWN: Guidance(
        category=Category.END,
        severity=Severity.CRITICAL,
        situation="Kafka or Cassandra (54), or a service that the transform or a sink calls (1), did not answer or "
        "refused the account",
        does=UNCOUNTED,
        remedy="check Kafka and Cassandra",
        steps=(LOG,),
    ),
    Reason.DRIVER_CUT_OFF: Guidance(
        category=Category.END,
        severity=Severity.CRITICAL,
        situation="The source's Kafka or the checkpoint's Cassandra did not answer the driver or its executors (54), "
        "while both answered the operator for as long as the run lasted",
        does="starts the next run with backoff; this counts towards `restart.maxAttempts`",
        remedy="look at what only the pods pass: NetworkPolicies, the driver's node, the listeners that the brokers "
        "advertise, the leader of the partition that the message names",
        steps=(
            Step("The driver's node", "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.status.run.nodeName}'"),
            Step("NetworkPolicies that select the pods", "kubectl get networkpolicies -n NAMESPACE"),
            Step("What each partition of the source answers", "fencepost offsets NAMESPACE/NAME"),
            RETRY,
        ),
    ),
    Reason.SPARK_UNREACHABLE: Guidance(
        category=Category.END,
        severity=Severity.CRITICAL,
        situation="The Spark master did not answer, or it dropped the run (54)",
        does=UNCOUNTED,
        remedy="see whether the master's pod and its volume live",
        steps=(PODS,),
    ),
    Reason.JVM_FAILED: Guidance(
        category=Category.END,
        severity=Severity.CRITICAL,
        situation="The driver's JVM ended, or did not start (54)",
        does=AGAIN,
        remedy="read the last lines in status.failure.log; correct spark.driver settings in cluster.sparkConf",
        steps=(LOG,),
    ),
    Reason.NO_EXECUTORS: Guidance(
        category=Category.END,
        severity=Severity.CRITICAL,
        situation="No executor came in time (55)",
        does=UNCOUNTED,
        remedy="check that the workers are ready and have enough memory and cores",
        steps=(PODS, WORKERS),
    ),
    Reason.EXECUTOR_CRASH_LOOP: Guidance(
        category=Category.END,
        severity=Severity.CRITICAL,
        situation="Executors end as fast as Spark launches them, which it does without end: ten for each worker "
        "within two minutes (55)",
        does=AGAIN,
        remedy="correct spark.executor settings in cluster.sparkConf, or raise cluster.worker.memory",
        steps=(
            PODS,
            Step(
                "What the executors said",
                f"kubectl exec -n NAMESPACE POD -- {EXECUTORS_OUTPUT}",
            ),
        ),
    ),
    Reason.OUT_OF_MEMORY: Guidance(
        category=Category.END,
        severity=Severity.CRITICAL,
        situation="A process of the run ran out of memory; the message names it: the driver's container or JVM, an "
        "executor, or a Python worker",
        does="repeats the batch at half its size; Stalled when a batch of one record does so twice",
        remedy="raise job.resources for the driver or cluster.worker.memory for the others (without workers all are in "
        "the driver's pod), or lower source.kafka.maxRecordsPerBatch",
        steps=(PODS, WORKERS),
        more="FencepostPipelineNotReady.md#outofmemory",
    ),
    Reason.KILLED: Guidance(
        category=Category.END,
        severity=Severity.CRITICAL,
        situation="Something killed the driver (137, 143), and Kubernetes does not say what; a container runtime can "
        "miss that the kernel killed it for memory",
        does=AGAIN,
        remedy="read the driver's log with kubectl logs; raise job.resources if its memory was close to the limit",
        steps=(LOG, EVENTS),
    ),
    Reason.DRAINED: Guidance(
        category=Category.END,
        severity=Severity.NONE,
        situation="The node of the driver or of the Spark master was drained, reclaimed or shut down",
        does="finishes the batch within the grace period and starts the next run on another node at once; on a new "
        "Spark cluster where the master is gone",
        remedy="nothing: the next run starts on another node",
        steps=(NODES,),
    ),
    Reason.EVICTED: Guidance(
        category=Category.END,
        severity=Severity.NONE,
        situation="The kubelet ended the driver: its node, or its own scratch volume, ran short",
        does=UNCOUNTED,
        remedy="see kubectl describe node; request what the driver needs with job.resources, or raise "
        "job.scratchSize, so that it is not the first to go",
        steps=(NODES,),
    ),
    Reason.PREEMPTED: Guidance(
        category=Category.END,
        severity=Severity.NONE,
        situation="A pod of a higher priority took the driver's place",
        does=UNCOUNTED,
        remedy="set cluster.priorityClassName to a higher class if this repeats",
        steps=(Step("The classes that there are", "kubectl get priorityclasses"),),
    ),
    Reason.POD_LOST: Guidance(
        category=Category.END,
        severity=Severity.NONE,
        situation="The Job or the pod was deleted, or the node of the driver or of the whole cluster is gone",
        does="fences the driver, and starts the next run on a new cluster where its death is not proven",
        remedy="if this repeats, find what deletes it, or look at its node",
        steps=(EVENTS, NODES),
    ),
    Reason.FENCED_OUT: Guidance(
        category=Category.END,
        severity=Severity.NONE,
        situation="Another run or pod held the fence (50); this one could not commit any more",
        does=UNCOUNTED,
        remedy="nothing; if it repeats, look for a second operator with the same scope",
        steps=(Step("Who took the fence over", "fencepost fence history NAMESPACE/NAME --limit 20"),),
    ),
    Reason.RUN_ENDED: Guidance(
        category=Category.END,
        severity=Severity.NONE,
        situation="The driver ended with exit code 0, though neither the operator nor a deletion asked it to",
        does=AGAIN,
        remedy="find what ends it: the job's own code must neither exit nor send signals",
        steps=(LOG, EVENTS),
    ),
    Reason.UNRESPONSIVE: Guidance(
        category=Category.END,
        severity=Severity.CRITICAL,
        situation="A driver had records to read and made no progress for `restart.stallTimeout`",
        does="fences and replaces it; the next run may take half the batch and twice the time",
        remedy="read the driver's log with kubectl logs; raise restart.stallTimeout if one step of a batch takes that "
        "long, and restart.startTimeout if the executors' imports do",
        steps=(Step("The log of the next run, as it comes", "kubectl logs -n NAMESPACE job/NAME-run-EPOCH -f"), NODES),
    ),
    Reason.HEARTBEAT_LOST: Guidance(
        category=Category.END,
        severity=Severity.CRITICAL,
        situation="A driver had records to read, and for 10 seconds, or 5 beside a warm standby, it neither changed "
        "the fence row nor gave a heartbeat: it is frozen, or its node or network is lost",
        does="fences and replaces it, or a few of them at a time where many are silent at once; if the driver lives, "
        "it can commit no more, and nothing is lost",
        remedy="look at its node; a driver that is short of CPU time needs larger job.resources.requests, and a slow "
        "Cassandra or PostgreSQL delays heartbeats",
        steps=(Step("The log of the next run, as it comes", "kubectl logs -n NAMESPACE job/NAME-run-EPOCH -f"), NODES),
    ),
    Reason.NEVER_CLAIMED: Guidance(
        category=Category.END,
        severity=Severity.CRITICAL,
        situation="A driver ran for `restart.startTimeout` without claiming its epoch",
        does="fences and replaces it; each next run gets twice the time",
        remedy="read the driver's log with kubectl logs; raise restart.startTimeout if the imports take that long",
        steps=(Step("The log of the next run, as it comes", "kubectl logs -n NAMESPACE job/NAME-run-EPOCH -f"), NODES),
    ),
}
