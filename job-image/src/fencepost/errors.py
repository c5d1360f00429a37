"""Why a driver ends: one tree, each error with its exit code, a reason for machines and a remedy for people.

DriverError
├── BadSpec          51  the spec or the author's code cannot work as it is
├── DataLoss         52  Kafka no longer has what the fence row points at
├── PoisonRecord     53  a record that no retry can write
├── DependencyDown   54  Kafka, Cassandra or the Spark master did not answer in time, or refused the credentials
├── NoExecutors      55  no executor in time
└── BatchFailed       1  anything else that went wrong in a batch
    ├── OutOfMemory   1  a JVM or a Python process had too little memory for the batch
    └── RecordFailed  1  the transform or Spark raised for what is in the records

An error of a Python worker reaches the driver as text inside an exception of Spark: `as_worker_error` encodes it, and
`from_text` decodes it.
"""

from __future__ import annotations

import json
import re
from typing import ClassVar, Final

from fencepost.contract import ExitCode, Loss, Reason

_MARK: Final = "fencepost-error:"
_MARKED: Final = re.compile(re.escape(_MARK) + r"(\{.*\})")
_RAISED: Final = re.compile(r"^fencepost\.errors\.(\w+): (.*)$", re.MULTILINE)
"""The last line of a traceback: an author's function of Python workers raised one of these errors itself."""


class DriverError(Exception):
    """Ends the run. `reason` is for machines, `remedy` says what to do."""

    code: ClassVar[ExitCode] = ExitCode.FAILED
    default_reason: ClassVar[Reason] = Reason.FAILED
    default_remedy: ClassVar[str] = "The operator starts a new run; see the driver's log if it goes on."

    def __init__(self, message: str, *, reason: Reason | None = None, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.default_reason
        self.remedy = remedy or self.default_remedy


class BadSpec(DriverError):
    """The spec or the author's code cannot work as it is: a restart would not help."""

    code = ExitCode.BAD_SPEC
    default_reason = Reason.BAD_SPEC
    default_remedy = "Correct the StreamingPipeline or the code, and apply it again."


class DataLoss(DriverError):
    """Kafka no longer has what the fence row points at; the message says which offsets.

    `loss` has all of them.  A reader knows its own ranges alone, and none when Kafka does not tell them.
    """

    code = ExitCode.DATA_LOSS
    default_reason = Reason.DATA_LOSS
    default_remedy = (
        "Restore the topic; else docs/runbooks/FencepostPipelineNotReady.md has the way on without what is lost."
    )

    def __init__(
        self, message: str, *, reason: Reason | None = None, remedy: str | None = None, loss: Loss | None = None
    ) -> None:
        super().__init__(message, reason=reason, remedy=remedy)
        self.loss = loss


class PoisonRecord(DriverError):
    """A record that cannot be written however often it is tried.

    `record` is its 'topic/partition' and offset once it was tried alone; None while it is a suspicion.
    """

    code = ExitCode.POISON_RECORD
    default_reason = Reason.POISON_RECORD
    default_remedy = "Make the transform drop or mend such records."

    def __init__(
        self,
        message: str,
        *,
        reason: Reason | None = None,
        remedy: str | None = None,
        record: tuple[str, int] | None = None,
    ) -> None:
        super().__init__(message, reason=reason, remedy=remedy)
        self.record = record


class DependencyDown(DriverError):
    """A dependency did not answer for longer than the driver waits, or refused it."""

    code = ExitCode.DEPENDENCY_DOWN
    default_reason = Reason.DEPENDENCY_DOWN
    default_remedy = "Nothing is lost: the run is repeated once the dependency is back."


class NoExecutors(DriverError):
    """The Spark cluster gave no executor in time."""

    code = ExitCode.NO_EXECUTORS
    default_reason = Reason.NO_EXECUTORS
    default_remedy = "See whether the workers are scheduled, and whether their cores and memory fit."


class BatchFailed(DriverError):
    """A batch failed for a reason that has no code of its own."""

    default_reason = Reason.BATCH_FAILED


class OutOfMemory(BatchFailed):
    """The driver, an executor or a Python worker had too little memory for the batch."""

    default_reason = Reason.OUT_OF_MEMORY
    default_remedy = (
        "Raise spec.cluster.worker.memory (spec.job.memory if it was the driver's JVM), or lower"
        " spec.source.kafka.maxRecordsPerBatch."
    )


class RecordFailed(BatchFailed):
    """The transform or Spark raised for what is in the records: one of them may be why."""

    default_reason = Reason.TRANSFORM_FAILED


def suspects_record(error: BaseException) -> bool:
    """Return whether one record may be why a batch failed: no dependency, memory or lost process is."""
    return isinstance(error, PoisonRecord | RecordFailed)


_KINDS: Final[dict[str, type[DriverError]]] = {
    kind.__name__: kind
    for kind in (BadSpec, DataLoss, PoisonRecord, DependencyDown, NoExecutors, BatchFailed, OutOfMemory, RecordFailed)
}


class WorkerError(Exception):
    """A DriverError on its way from a Python worker to the driver."""


def as_worker_error(error: DriverError) -> WorkerError:
    """Return the exception to raise in a Python worker so that the driver sees `error`."""
    fields: dict[str, object] = {
        "kind": type(error).__name__,
        "message": error.message,
        "reason": error.reason,
        "remedy": error.remedy,
    }
    if isinstance(error, DataLoss) and error.loss is not None:
        fields["ranges"] = error.loss.ranges
    return WorkerError(_MARK + json.dumps(fields))


def from_text(text: str) -> DriverError | None:
    """Return the DriverError that crossed inside a Spark exception's text, or None when none did."""
    found = _MARKED.search(text)
    if found is None:
        raised = _RAISED.search(text)
        kind = _KINDS.get(raised.group(1)) if raised else None
        return kind(raised.group(2)) if raised and kind else None
    try:
        fields = json.loads(found.group(1))
        kind = _KINDS[fields["kind"]]
        reason = Reason(fields["reason"])
        if kind is DataLoss and "ranges" in fields:
            ranges = {str(key): (int(start), int(until)) for key, (start, until) in fields["ranges"].items()}
            loss = Loss(reason=reason, ranges=ranges)
            return DataLoss(fields["message"], reason=reason, remedy=fields["remedy"], loss=loss)
        return kind(fields["message"], reason=reason, remedy=fields["remedy"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
