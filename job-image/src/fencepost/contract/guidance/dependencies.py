"""Reasons that name another service, and the risks that its settings bring."""

from __future__ import annotations

from typing import Final

from fencepost.contract.guidance.entry import (
    AUTOSCALE,
    LOG,
    PODS,
    STATE_FIELDS,
    STORED_STATE,
    Category,
    Guidance,
    Severity,
    Step,
)
from fencepost.contract.reasons import Reason

CHECKPOINT: Final = Step(
    "Which Cassandra and which Secret the spec names",
    "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.spec.checkpoint.cassandra}'",
)
IN_POSTGRESQL: Final = Step(
    "Which PostgreSQL and which Secret the spec names",
    "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.spec.checkpoint.postgresql}'",
)
SOURCE: Final = Step(
    "Which Kafka and which settings the spec names",
    "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.spec.source.kafka}'",
)
OFFSETS: Final = Step("What each partition of the source answers", "fencepost offsets NAMESPACE/NAME")
AT_RISK: Final = Step(
    "The partition, the moment and the figures",
    "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.status.dataRisk}'",
)

DEPENDENCY: Final = {
    Reason.OPERATOR_BUSY: Guidance(
        category=Category.DEPENDENCY,
        severity=Severity.CRITICAL,
        situation="A fact or a change waits for its turn within the operator for more than a minute",
        does="tries again; turns go round among namespaces; runs continue, and Ready turns False after "
        "`pages.notReadyFor`",
        remedy="see which namespace asks for so much, and give the operator more CPU, or its pipelines an installation "
        "of their own",
        steps=(
            Step("The operator's pods", "kubectl get pods -n fencepost-system -o wide"),
            Step("Pipelines by namespace", "kubectl get spl -A --no-headers | awk '{print $1}' | sort | uniq -c"),
        ),
    ),
    Reason.KUBERNETES_UNREACHABLE: Guidance(
        category=Category.DEPENDENCY,
        severity=Severity.CRITICAL,
        situation="The API server does not answer the operator",
        does="starts and replaces nothing; runs continue",
        remedy="check the API server's health and the operator's network",
        steps=(Step("Its health", "kubectl get --raw /readyz?verbose"),),
    ),
    Reason.KUBERNETES_FORBIDDEN: Guidance(
        category=Category.DEPENDENCY,
        severity=Severity.CRITICAL,
        situation="The API server refuses the operator a permission, or its token",
        does="starts and replaces nothing; runs continue; tries again",
        remedy="grant the operator's ServiceAccount the verb on the resource that the message names: install the "
        "chart's RBAC again",
        steps=(
            Step(
                "What the operator may do",
                "kubectl auth can-i --list -n NAMESPACE --as system:serviceaccount:fencepost-system:fencepost",
            ),
        ),
    ),
    Reason.KUBERNETES_REJECTED: Guidance(
        category=Category.DEPENDENCY,
        severity=Severity.CRITICAL,
        situation="The API server answers that it cannot give the operator what it asks for",
        does="starts and replaces nothing; runs continue; tries again",
        remedy="correct what the message names: a CustomResourceDefinition that is missing, or an object that cannot "
        "be read",
        steps=(Step("The CustomResourceDefinitions", "kubectl get crds -o name | grep fencepost"),),
    ),
    Reason.CASSANDRA_UNREACHABLE: Guidance(
        category=Category.DEPENDENCY,
        severity=Severity.CRITICAL,
        situation="Cassandra does not answer",
        does="starts and replaces nothing; a run waits, ends with exit code 54, and the next one starts at the last "
        "commit; a run that Cassandra answers continues, and Ready turns False after `pages.notReadyFor`",
        remedy="restore Cassandra, nothing else",
        steps=(CHECKPOINT,),
    ),
    Reason.CASSANDRA_CREDENTIALS_REJECTED: Guidance(
        category=Category.DEPENDENCY,
        severity=Severity.CRITICAL,
        situation="Cassandra refuses the account or a right",
        does="tries again with the Secret's newest content; starts nothing before",
        remedy="correct the Secret of checkpoint.cassandra.credentialsFrom, or grant the right that the message names",
        steps=(CHECKPOINT,),
        more="../operations.md#cassandra",
    ),
    Reason.CASSANDRA_REJECTED: Guidance(
        category=Category.DEPENDENCY,
        severity=Severity.CRITICAL,
        situation="The keyspace or its tables do not exist or have another shape, the Secret lacks a key, TLS or the "
        "datacenter does not fit, or the store refuses a conditional update whose condition holds",
        does="tries again; starts nothing before",
        remedy="create the keyspace and its tables (docs/fence-schema.cql) or set createSchema to true; correct the "
        "Secret or the field that the message names",
        steps=(CHECKPOINT,),
        more="../operations.md#cassandra",
    ),
    Reason.POSTGRESQL_UNREACHABLE: Guidance(
        category=Category.DEPENDENCY,
        severity=Severity.CRITICAL,
        situation="The PostgreSQL of the fence does not answer, or none of its servers takes writes",
        does="starts and replaces nothing; a run waits, ends with exit code 54, and the next one starts at the last "
        "commit; a run that PostgreSQL answers continues, and Ready turns False after `pages.notReadyFor`",
        remedy="restore the server that takes writes, nothing else",
        steps=(IN_POSTGRESQL,),
    ),
    Reason.POSTGRESQL_CREDENTIALS_REJECTED: Guidance(
        category=Category.DEPENDENCY,
        severity=Severity.CRITICAL,
        situation="The PostgreSQL of the fence refuses the account or a right",
        does="tries again with the Secret's newest content; starts nothing before",
        remedy="correct the Secret of checkpoint.postgresql.credentialsFrom, or grant the right that the message names",
        steps=(IN_POSTGRESQL,),
        more="../operations.md#postgresql",
    ),
    Reason.POSTGRESQL_REJECTED: Guidance(
        category=Category.DEPENDENCY,
        severity=Severity.CRITICAL,
        situation="The database, the schema or its tables do not exist or have another shape, the Secret lacks a key, "
        "or TLS does not fit",
        does="tries again; starts nothing before",
        remedy="create the schema and its tables (docs/fence-schema.sql) or set createSchema to true; correct the "
        "Secret or the field that the message names",
        steps=(IN_POSTGRESQL,),
        more="../operations.md#postgresql",
    ),
    Reason.PROGRESS_UNREADABLE: Guidance(
        category=Category.DEPENDENCY,
        severity=Severity.NONE,
        situation="The operator may not read `fence_progress`",
        does="continues; a driver that hangs inside a batch is replaced only after twice the stall timeout",
        remedy="grant the account SELECT on fence_progress, or correct its columns (docs/fence-schema.cql, in "
        "PostgreSQL .sql)",
        steps=(CHECKPOINT,),
    ),
    Reason.SNAPSHOTS_UNREADABLE: Guidance(
        category=Category.DEPENDENCY,
        severity=Severity.NONE,
        situation="The operator may not read `snapshots`",
        does="continues; it takes no further snapshot and deletes none",
        remedy="let the account read and change snapshots, or correct its columns (docs/fence-schema.cql, in "
        "PostgreSQL .sql)",
        steps=(CHECKPOINT,),
    ),
    Reason.KAFKA_UNREACHABLE: Guidance(
        category=Category.DEPENDENCY,
        severity=Severity.CRITICAL,
        situation="Kafka does not answer",
        does="starts nothing; a run waits, ends with exit code 54, and the next one starts at the last commit; a run "
        "that Kafka answers continues, and Ready turns False after `pages.notReadyFor`",
        remedy="restore Kafka, nothing else; if others reach it, check source.kafka.bootstrapServers",
        steps=(SOURCE, OFFSETS),
    ),
    Reason.KAFKA_CREDENTIALS_REJECTED: Guidance(
        category=Category.DEPENDENCY,
        severity=Severity.CRITICAL,
        situation="Kafka refuses the account or a right",
        does="tries again with the Secret's newest content; starts nothing before",
        remedy="correct the Secret of source.kafka.propertiesFrom, or grant the right that the message names",
        steps=(SOURCE,),
        more="../operations.md#kafka",
    ),
    Reason.KAFKA_REJECTED: Guidance(
        category=Category.DEPENDENCY,
        severity=Severity.CRITICAL,
        situation="A Kafka setting is not allowed or has a wrong value",
        does="starts nothing until it is corrected",
        remedy="correct source.kafka.properties, or the Secret of propertiesFrom",
        steps=(SOURCE,),
        more="../operations.md#kafka",
    ),
}

EVENT_TIME: Final = Step(
    "The watermark, and how many rows were dropped",
    "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.status.eventTime}'",
)

RISK: Final = {
    Reason.FALLING_BEHIND: Guidance(
        category=Category.RISK,
        severity=Severity.WARNING,
        situation="For five minutes records arrive faster than full batches are committed",
        does="continues at full speed",
        remedy="add workers with kubectl scale, or see what limits the batches; check that the topics' retention "
        "outlasts the lag",
        steps=(
            LOG,
            Step("Add workers; the driver keeps running", "kubectl scale spl -n NAMESPACE NAME --replicas 4"),
        ),
        more="FencepostPipelineLagGrowing.md",
    ),
    Reason.SCALING_LIMITED: Guidance(
        category=Category.RISK,
        severity=Severity.WARNING,
        situation="For five minutes the records of a pipeline with `cluster.autoscale` have waited for longer than "
        "`targetTimeLag`, with as many workers as it allows, there are tasks for, or get ready",
        does="continues with that many",
        remedy="raise cluster.autoscale.maxWorkers, or see what limits the batches",
        steps=(AUTOSCALE, LOG),
        more="FencepostScalingLimited.md",
    ),
    Reason.STANDBY_FAILED: Guidance(
        category=Category.RISK,
        severity=Severity.NONE,
        situation="The standby of a pipeline with `restart.standby: Warm` ended, has no room, or does not get warm",
        does="deletes it and starts another one, after two minutes or more; the run that works continues, and one that "
        "fails is restarted as without a standby",
        remedy="give the namespace room for two runs, or remove restart.standby",
        steps=(
            PODS,
            Step(
                "How it failed, and when the next one starts",
                "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.status.standby}'",
            ),
            Step("What the quota has left", "kubectl describe resourcequota -n NAMESPACE"),
        ),
        more="../operations.md#a-warm-standby",
    ),
    Reason.FAILOVER_BLOCKED: Guidance(
        category=Category.RISK,
        severity=Severity.NONE,
        situation="`fencepost failover` asks for a move to another Kubernetes cluster, and that one gives no sign of "
        "life, or could not run the pipeline",
        does="continues here, and moves the pipeline as soon as that cluster can run it; the request ends with its "
        "epoch",
        remedy="make sure of the uid, and in that cluster that the operator runs and that the pipeline has the phase "
        "Standby",
        steps=(
            Step(
                "The uid of a cluster, with its own kubeconfig",
                "kubectl get namespace kube-system -o jsonpath='{.metadata.uid}'",
            ),
            Step("The pipeline, in the cluster that is to run it", "kubectl get spl -n NAMESPACE NAME -o wide"),
            Step(
                "Withdraw the request",
                "kubectl annotate spl -n NAMESPACE NAME streaming.fencepost.dev/fail-over-",
            ),
        ),
        more="../operations.md#a-second-kubernetes-cluster",
    ),
    Reason.WATERMARK_STUCK: Guidance(
        category=Category.RISK,
        severity=Severity.WARNING,
        situation="For 15 minutes the commits of a stateful pipeline have not moved its watermark, or have left it "
        "ahead of the records of half of the partitions that are read",
        does="continues; windows that wait for the watermark stay open, or records that are older than it are dropped",
        remedy="send records to a partition or topic that is quiet; correct the clock of a producer that is ahead, and "
        "filter out event times in the future before withWatermark",
        steps=(EVENT_TIME,),
        more="FencepostWatermarkStuck.md",
    ),
    Reason.LATE_ROWS_DROPPED: Guidance(
        category=Category.RISK,
        severity=Severity.WARNING,
        situation="In the last 30 minutes operators of a stateful pipeline dropped rows as older than the watermark",
        does="continues without them; `status.eventTime.lateRows` counts them",
        remedy="raise the delay of withWatermark, or write late records to a sink of their own",
        steps=(EVENT_TIME,),
        more="FencepostLateRowsDropped.md",
    ),
    Reason.STATE_NEAR_LIMIT: Guidance(
        category=Category.RISK,
        severity=Severity.WARNING,
        situation="The state of a stateful pipeline has 80 % of `state.maxBytes`, for which every worker has room",
        does="continues; a state that outgrows the room evicts workers, and the runs that lose them fail",
        remedy="raise spec.state.maxBytes, which starts a new Spark cluster, or keep less state: shorter windows, "
        "watermarks and timeouts",
        steps=(STORED_STATE, STATE_FIELDS),
        more="FencepostStateNearLimit.md",
    ),
    Reason.UNOBSERVED: Guidance(
        category=Category.RISK,
        severity=Severity.CRITICAL,
        situation="The operator has not seen for `pages.notReadyFor` whether a run that holds the fence works",
        does="fences and replaces nothing; the run continues, and if it hangs it is not replaced",
        remedy="restore what the operator cannot read (Kafka, Cassandra or the Jobs), and check the driver's log for "
        "commits",
        steps=(LOG,),
        more="FencepostPipelineUnobserved.md",
    ),
    Reason.PARTITIONS_OFFLINE: Guidance(
        category=Category.RISK,
        severity=Severity.CRITICAL,
        situation="For three minutes no leader has answered for a partition of a topic",
        does="continues with the other partitions; the lag of that partition is unknown and not counted",
        remedy="restart the brokers that hold a replica of the partition, and check their logs for why none leads it",
        steps=(
            Step(
                "Which partitions, and since when",
                "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.status.offlinePartitions}'",
            ),
            OFFSETS,
        ),
        more="FencepostPartitionsOffline.md",
    ),
    Reason.TRANSACTION_STALLED: Guidance(
        category=Category.RISK,
        severity=Severity.WARNING,
        situation="A producer's transaction stays open and hides the records behind it",
        does="continues with the other partitions; the lag does not count what is hidden",
        remedy="find the producer with kafka-transactions.sh describe-producers, and end or abort its transaction",
        steps=(
            Step(
                "Which partitions, and since when",
                "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.status.openTransactions}'",
            ),
        ),
        more="FencepostTransactionStalled.md",
    ),
    Reason.DATA_EXPIRES_SOON: Guidance(
        category=Category.RISK,
        severity=Severity.CRITICAL,
        situation="Kafka is about to delete records that are not committed",
        does="keeps the pipeline as it is; it changes no topic",
        remedy="extend the topic's retention, then let the pipeline read",
        steps=(
            AT_RISK,
            Step("Keep the records longer", "fencepost retention extend NAMESPACE/NAME --to 14d"),
        ),
        more="FencepostRetentionRisk.md",
    ),
    Reason.DATA_EXPIRED: Guidance(
        category=Category.RISK,
        severity=Severity.CRITICAL,
        situation="Kafka deleted records that were not committed",
        does="stops where it finds them gone, with `OffsetOutOfRange`",
        remedy="extend the retention at once, or more records go; then deal with the loss",
        steps=(
            AT_RISK,
            Step("Keep the rest longer", "fencepost retention extend NAMESPACE/NAME --to 14d"),
        ),
        more="FencepostPipelineNotReady.md#lost-records-continue-without-them",
    ),
    Reason.RETENTION_TOO_SHORT: Guidance(
        category=Category.RISK,
        severity=Severity.WARNING,
        situation="A topic keeps its records for less than 72 hours",
        does="continues to stream, and pages after an hour",
        remedy="extend the retention: a pipeline that fails on Friday evening may be looked at on Monday",
        steps=(Step("How long each topic keeps them", "fencepost retention show NAMESPACE/NAME"),),
        more="FencepostRetentionRisk.md",
    ),
    Reason.DURABILITY_AT_RISK: Guidance(
        category=Category.RISK,
        severity=Severity.WARNING,
        situation="A setting of Cassandra or Kafka lets an acknowledged write be lost",
        does="continues; it reads the settings at a start, at a change of the spec, and daily",
        remedy="correct the settings that the message names",
        steps=(
            Step(
                "Each setting, with what to do",
                "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.status.durability}'",
            ),
        ),
        more="FencepostDurabilityAtRisk.md",
    ),
    Reason.DURABLE: Guidance(
        category=Category.RISK,
        severity=Severity.NONE,
        situation="No setting that can be read puts acknowledged writes at risk any more",
        does="ends the condition `DurabilityAtRisk`",
    ),
    Reason.DEAD_LETTER_WRITTEN: Guidance(
        category=Category.RISK,
        severity=Severity.WARNING,
        situation="Records that fail alone were set aside, as `onPoison.action: deadLetter` asks",
        does="continues without them; they are in the table `dead_letters`",
        remedy="read them with `fencepost dead-letters list`, and correct the transform or the producer",
        steps=(
            Step("The records, with their errors", "fencepost dead-letters list NAMESPACE/NAME"),
            Step(
                "Send them to the topic again, after the correction",
                "fencepost dead-letters retry NAMESPACE/NAME --all --dry-run",
            ),
        ),
        more="FencepostDeadLettersWritten.md",
    ),
    Reason.MIXED_OUTPUT: Guidance(
        category=Category.RISK,
        severity=Severity.WARNING,
        situation="New code took over a batch that older code began and could not finish: both may have written it",
        does="continues; `status.mixedOutput` keeps the last five ranges",
        remedy="where the two write other rows for the same record, purge the range with the PipelineRewind that the "
        "message names. A rewind purges the sinks that the spec names: where the old code wrote to another table, set "
        "`suspend: true` and add that table to `sinks`, create the rewind, and undo both once it has completed",
        steps=(
            Step("The ranges, and why", "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.status.mixedOutput}'"),
            PODS,
        ),
        more="../operations.md#rewind",
    ),
}
