"""Why a driver ends: one tree, each error with its exit code, a reason for machines and a remedy for people.

DriverError
├── BadSpec          51  the spec or the author's code cannot work as it is
├── DataLoss         52  Kafka no longer has what the fence row points at
├── PoisonRecord     53  a record that no retry can write
├── DependencyDown   54  Kafka, Cassandra or the Spark master did not answer in time, or refused the credentials
├── NoExecutors      55  no executor in time
├── ObjectChanged     1  an object that the operator made for the run was changed by another hand
└── BatchFailed       1  anything else that went wrong in a batch
    ├── OutOfMemory   1  a JVM or a Python process had too little memory for the batch
    └── RecordFailed  1  the transform or Spark raised for what is in the records

An error of a Python worker reaches the driver as text inside an exception of Spark: `as_worker_error` encodes it, and
`from_text` decodes it.  Such a text also quotes what is in records, so it is sealed: an HMAC with a key that the driver
draws for each run and gives to the run's workers alone.  The key is in no text, so no record can hold a seal that fits.
The seal covers the attempt as well, which is one job: a pipeline that reads its own logs meets seals of earlier jobs of
its run, as of a task that failed once and passed then.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from fencepost.contract import ExitCode, Loss, Reason

_MARK: Final = "fencepost-error:"
_MARKED: Final = re.compile(re.escape(_MARK) + r"([0-9a-f]{64}):(?=\{)")
KEY_VARIABLE: Final = "FENCEPOST_ERROR_SECRET"
"""Gives Python workers the run's key. Spark hides variables with such a name in its pages and event log."""
KEY: Final = os.environ.get(KEY_VARIABLE) or secrets.token_hex(32)
"""Of this run: a worker has its driver's."""
ATTEMPT: Final = "fencepost.attempt"
"""The local property of Spark's that holds the attempt to which a task belongs."""
_attempts: Final = [""]
"""The one attempt that the driver is at."""


class DriverError(Exception):
    """Ends the run. `reason` is for machines, `remedy` says what to do."""

    code: ClassVar[ExitCode] = ExitCode.FAILED
    default_reason: ClassVar[Reason] = Reason.FAILED
    default_remedy: ClassVar[str] = "The operator starts a new run; see the driver's log if it recurs."

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

    `loss` has all of them.  A reader knows its own ranges alone, and none when Kafka does not return them.
    """

    code = ExitCode.DATA_LOSS
    default_reason = Reason.DATA_LOSS
    default_remedy = "Restore the topic, or see docs/runbooks/DataLoss.md to continue without the lost records."

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
    default_remedy = "Make the transform drop or fix such records."

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


class ObjectChanged(DriverError):
    """An object that the operator made for the run was changed before the pod read it: the spec is not the cause."""

    default_remedy = (
        "The operator restores the object and starts a new run. If this repeats, find out who changes the objects with"
        " the pipeline's label: the API server's audit log names them."
    )


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


@contextmanager
def replaced(by: Callable[[Exception], BaseException]) -> Iterator[None]:
    """Raise what `by` returns for an exception of the block, caused by it; the exception itself where it is that."""
    try:
        yield
    except Exception as error:
        found = by(error)
        if found is error:
            raise
        raise found from error


def suspects_record(error: BaseException) -> bool:
    """Return whether one record may be why a batch failed: no dependency, memory or lost process is."""
    return isinstance(error, PoisonRecord | RecordFailed)


_KINDS: Final[dict[str, type[DriverError]]] = {
    kind.__name__: kind
    for kind in (
        DriverError,
        BadSpec,
        DataLoss,
        PoisonRecord,
        DependencyDown,
        NoExecutors,
        BatchFailed,
        OutOfMemory,
        RecordFailed,
    )
}


def begin_attempt() -> str:
    """Begin another attempt in the driver, and return its name: what was sealed before does not count from here on."""
    _attempts[:] = [secrets.token_hex(8)]
    return _attempts[-1]


def _attempt() -> str:
    """Return the attempt of this task, or of the driver."""
    pyspark = sys.modules.get("pyspark")  # which a driver imports while its JVM starts
    task = None if pyspark is None else pyspark.TaskContext.get()
    return _attempts[-1] if task is None else task.getLocalProperty(ATTEMPT) or ""


class WorkerError(Exception):
    """A DriverError on its way from a Python worker to the driver."""


def as_worker_error(error: DriverError) -> WorkerError:
    """Return the exception to raise in a Python worker so that the driver sees `error`, or one of its base classes."""
    fields: dict[str, object] = {
        "kind": next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _KINDS),
        "message": error.message,
        "reason": error.reason,
        "remedy": error.remedy,
    }
    if isinstance(error, DataLoss) and error.loss is not None:
        fields["ranges"] = error.loss.ranges
    text = json.dumps(fields)
    return WorkerError(f"{_MARK}{_seal(text)}:{text}")


def from_text(text: str) -> DriverError | None:
    """Return the DriverError of this attempt that crossed inside a Spark exception's text, or None when none did."""
    for found in _MARKED.finditer(text):
        try:
            _, end = _DECODER.raw_decode(text, found.end())
        except ValueError:
            continue
        content = text[found.end() : end]
        if hmac.compare_digest(found.group(1), _seal(content)):
            return _decoded(json.loads(content))
    return None


_DECODER: Final = json.JSONDecoder()


def _seal(text: str) -> str:
    return hmac.digest(KEY.encode(), f"{_attempt()}:{text}".encode(), hashlib.sha256).hex()


def _decoded(fields: dict[str, Any]) -> DriverError | None:
    try:
        kind = _KINDS[fields["kind"]]
        reason = Reason(fields["reason"])
        if kind is DataLoss and "ranges" in fields:
            ranges = {str(key): (int(start), int(until)) for key, (start, until) in fields["ranges"].items()}
            loss = Loss(reason=reason, ranges=ranges)
            return DataLoss(fields["message"], reason=reason, remedy=fields["remedy"], loss=loss)
        return kind(fields["message"], reason=reason, remedy=fields["remedy"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
