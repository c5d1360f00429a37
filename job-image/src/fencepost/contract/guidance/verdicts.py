"""Reasons that a driver gives in its verdict; the operator repeats them in front of the message of the failure."""

from __future__ import annotations

from typing import Final

from fencepost.contract.guidance.entry import (
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

STALLS: Final = "stops and pages: the run ends with `BadSpec`"
WAITS: Final = "starts the next run with backoff: the run ends with `DependencyDown`"
AGAIN: Final = "starts the next run with backoff; it repeats the batch"
SINKS: Final = Step("The sinks of the spec", "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.spec.sinks}'")
JOB: Final = Step("What the spec says of the job", "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.spec.job}'")
FORMATS: Final = Step(
    "The registry and the schemas that the spec names",
    "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.spec.source.kafka}'",
)
CODE: Final = "../authors.md"
STATE: Final = "../authors.md#stateful-pipelines"
PINNED_STATES: Final = Step(
    "The entries", "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.spec.source.pinnedStates}'"
)
SNAPSHOTS: Final = Step("Snapshots to go back to", "fencepost snapshots list NAMESPACE/NAME")

VERDICT: Final = {
    Reason.STOPPED: Guidance(
        category=Category.VERDICT,
        severity=Severity.NONE,
        situation="The driver was asked to stop (0)",
        does="takes the step for which it stopped the driver",
    ),
    Reason.STOP_TIMED_OUT: Guidance(
        category=Category.VERDICT,
        severity=Severity.NONE,
        situation="The batch in progress did not end within the grace period; it is not committed (1)",
        does="repeats the batch in the next run",
        remedy="nothing is lost; a longer terminationGracePeriodSeconds or smaller batches let it finish",
        steps=(LOG,),
    ),
    Reason.FAILED: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="An exception that Fencepost does not know (1)",
        does=AGAIN,
        remedy="read the driver's log with kubectl logs",
        steps=(LOG,),
    ),
    Reason.TRANSFORM_FAILED: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="The transform, or Spark for what is in the records, raised (1), or raises for an empty batch (51)",
        does="looks for the record after `onPoison.failures` failures; stops and pages if an empty batch fails",
        remedy="correct the transform; it also receives an empty batch",
        steps=(LOG,),
        more="../authors.md#a-bad-record",
    ),
    Reason.RECORD_UNDECODABLE: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="The key or the value of a record is not what the schema says that it names, or that schema does not "
        "fit the one to read with (1); the message has the record's topic, partition and offset",
        does="looks for the record after `onPoison.failures` failures",
        remedy="correct the producer; set the record aside with `onPoison.action: deadLetter`, or leave it out with "
        "`fencepost dead-letters skip`",
        steps=(LOG, FORMATS),
        more="../authors.md#schemas-of-a-registry",
    ),
    Reason.SCHEMA_INVALID: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="The schema of `source.kafka.key` or `value` is of another format, or has no columns: a union, a "
        "recursion, no such message (51)",
        does=STALLS,
        remedy="correct format, subject, version or message",
        steps=(LOG, FORMATS),
        more="../authors.md#schemas-of-a-registry",
    ),
    Reason.SCHEMA_NOT_FOUND: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="The schema registry has no schema with the id that a record names, or not the version of the "
        "subject (54)",
        does=WAITS,
        remedy="register the schema, or correct the address of the registry; if one record names an id that never "
        "existed, leave it out with `fencepost dead-letters skip`",
        steps=(LOG, FORMATS),
        more="../authors.md#schemas-of-a-registry",
    ),
    Reason.REGISTRY_UNREACHABLE: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="The schema registry did not answer the driver or its executors, or not as a registry does (54)",
        does=WAITS,
        remedy="restore the registry; if others reach it, correct source.kafka.schemaRegistry",
        steps=(LOG, FORMATS),
        more="../authors.md#schemas-of-a-registry",
    ),
    Reason.REGISTRY_CREDENTIALS_REJECTED: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="The schema registry refuses the account or its right to read (54)",
        does=WAITS,
        remedy="correct the Secret of source.kafka.schemaRegistry.credentialsFrom, or grant the account the right to "
        "read subjects and schemas",
        steps=(LOG, FORMATS),
        more="../authors.md#schemas-of-a-registry",
    ),
    Reason.TRANSFORM_INVALID: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="The transform returns something else than a DataFrame for each declared sink, or Spark refuses the "
        "columns",
        does=STALLS,
        remedy="correct what the transform returns, or the sinks of the spec",
        steps=(LOG, SINKS),
        more=CODE,
    ),
    Reason.PINNED_STATE_UNREADABLE: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="An entry of `source.pinnedStates` names a snapshot that does not exist or has no such state, or the "
        "state is too large (51); the message says which",
        does=STALLS,
        remedy="name a snapshot that exists, and its operator and store",
        steps=(LOG, PINNED_STATES),
        more="../authors.md#the-state-of-another-pipeline",
    ),
    Reason.STATE_INCOMPATIBLE: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="The code of a stateful pipeline has other operators, keys or values than its stored state (51); the "
        "message says what changed",
        does=f"{STALLS}; nothing is planned, and offsets and state stay as they are",
        remedy="go back to code that fits the state, or rewind to a snapshot that the new code can read, or with"
        " spec.emptyState",
        steps=(LOG, SNAPSHOTS),
        more=STATE,
    ),
    Reason.STATE_TOO_LARGE: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="The checkpoint of a stateful pipeline has more files, or longer logs, than Fencepost keeps (51)",
        does=f"{STALLS}; offsets and state stay as they are",
        remedy="keep less state: shorter windows, watermarks and timeouts; for a log, read fewer partitions",
        steps=(LOG, STORED_STATE, STATE_FIELDS),
        more=STATE,
    ),
    Reason.STATE_UNAVAILABLE: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="A file of a stateful pipeline's state is missing or damaged in Cassandra (1)",
        does=AGAIN,
        remedy="repair the tables checkpoint_files and checkpoint_chunks of the checkpoint's keyspace; if the file "
        "stays missing, rewind to a snapshot",
        steps=(LOG, SNAPSHOTS),
        more=STATE,
    ),
    Reason.SCRATCH_NOT_EXECUTABLE: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="A worker of a stateful pipeline has a scratch volume that is mounted with noexec, so RocksDB cannot "
        "be loaded (1); the message names the worker",
        does=AGAIN,
        remedy="mount the kubelet's root directory of its node without noexec, or keep the workers away from the node",
        steps=(PODS, LOG),
        more=STATE,
    ),
    Reason.SINK_FAILED: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="A sink raised, or ended before it had read all rows (1)",
        does=AGAIN,
        remedy="read the error in the driver's log; correct the plugin or what it writes to",
        steps=(LOG, SINKS),
        more="../sinks.md",
    ),
    Reason.SINK_UNREACHABLE: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="The Kafka or Cassandra that a sink writes to did not answer the driver or its executors (54)",
        does=WAITS,
        remedy="restore what the message names; the batch is repeated, and nothing is lost",
        steps=(LOG, SINKS),
        more="../sinks.md",
    ),
    Reason.SINK_NOT_FOUND: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="The table, topic or plugin of a sink does not exist (51)",
        does=STALLS,
        remedy="create it, or correct its name in spec.sinks",
        steps=(SINKS,),
        more="../sinks.md",
    ),
    Reason.SINK_MISMATCH: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="The columns of the transform do not fit the sink's table or topic (51)",
        does=STALLS,
        remedy="make the columns that the transform returns and those of the table agree",
        steps=(LOG, SINKS),
        more="../sinks.md",
    ),
    Reason.SINK_INVALID: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="A sink cannot do what the spec asks of it (51)",
        does=STALLS,
        remedy="correct the field of spec.sinks that the message names",
        steps=(SINKS,),
        more="../sinks.md",
    ),
    Reason.ENTRYPOINT_INVALID: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="`job.entrypoint` is not of the form `module:function` (51)",
        does=STALLS,
        remedy="correct job.entrypoint",
        steps=(JOB,),
        more=CODE,
    ),
    Reason.ENTRYPOINT_NOT_FOUND: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="The module or the function of `job.entrypoint` does not exist in the image or the ConfigMap (51)",
        does=STALLS,
        remedy="correct job.entrypoint, or put the module into the image or the ConfigMap",
        steps=(JOB,),
        more=CODE,
    ),
    Reason.ENTRYPOINT_FAILED: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="The module of `job.entrypoint` raises when it is imported (51)",
        does=STALLS,
        remedy="correct the code; the message has the error of the import",
        steps=(LOG,),
        more=CODE,
    ),
    Reason.SPARK_CONF_INVALID: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="Spark or Java refuses a setting (51)",
        does=STALLS,
        remedy="correct cluster.sparkConf",
        steps=(Step("The settings", "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.spec.cluster.sparkConf}'"),),
        more="../reference.md",
    ),
    Reason.KAFKA_PROPERTIES_INVALID: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="A property of Kafka is not allowed (51)",
        does=STALLS,
        remedy="correct source.kafka.properties, or the Secret of propertiesFrom",
        steps=(
            Step("The properties", "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.spec.source.kafka.properties}'"),
        ),
        more="../reference.md",
    ),
    Reason.STARTING_OFFSET_OUT_OF_RANGE: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="`startingOffsets` names an offset that the log does not have (51); nothing was read",
        does=STALLS,
        remedy="correct source.kafka.startingOffsets",
        steps=(Step("Where each partition begins and ends", "fencepost offsets NAMESPACE/NAME"),),
    ),
    Reason.CONTRACT_MISMATCH: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="The operator and the job image are of releases that do not understand each other (51)",
        does=STALLS,
        remedy="use an operator and a job image of one release",
        steps=(
            JOB,
            Step(
                "The operator's image",
                "kubectl get deployment -n fencepost-system fencepost "
                "-o jsonpath='{.spec.template.spec.containers[0].image}'",
            ),
        ),
    ),
    Reason.FENCE_SCHEMA_MISSING: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="The keyspace, schema or a table of the fence does not exist (54)",
        does=WAITS,
        remedy="set createSchema of the checkpoint to true, or create them (docs/fence-schema.cql, in PostgreSQL .sql)",
        more="../operations.md#cassandra",
    ),
    Reason.FENCE_SCHEMA_INVALID: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="A table of the fence has other columns than this release needs (54)",
        does=WAITS,
        remedy="correct the table as docs/fence-schema.cql has it, in PostgreSQL docs/fence-schema.sql; that file also "
        "adds what is missing",
        more="../operations.md#cassandra",
    ),
    Reason.CLOCK_SKEW: Guidance(
        category=Category.VERDICT,
        severity=Severity.CRITICAL,
        situation="The clock of the driver's node is minutes apart from Cassandra's, the row's is ahead, or those of "
        "two nodes of a stateful pipeline are an hour apart (54)",
        does=WAITS,
        remedy="correct the time of the node that the message names; for the row, follow the message",
        steps=(PODS,),
    ),
}
