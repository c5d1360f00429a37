"""What an exception of a batch means: a mistake of the author's, too little memory, or a failure of the cluster."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

from fencepost.contract import Reason
from fencepost.errors import BadSpec, BatchFailed, DriverError, OutOfMemory, RecordFailed, from_text

LOST_TASK: Final = re.compile(
    r"(?:An error occurred while calling [\w.]+\.\n: )?(?:[\w.$]+: )?"
    r"Job aborted due to stage failure: Task \d+ in stage [\d.]+ failed \d+ times?, most recent failure: "
    r"Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) \([^\s()]+ executor [^\s()]+\): "
)
"""How Spark begins the text of a task that failed; what follows begins with a class, or with ExecutorLostFailure."""
LOST_EXECUTOR: Final = re.compile(r"ExecutorLostFailure \(executor [^\s()]+ [^()\n]*\) Reason: ([^\n]*)")
WITHOUT_MEMORY: Final = re.compile(
    # A JVM with ExitOnOutOfMemoryError ends with 3, Spark's own handler with 52, and the kernel kills with SIGKILL.
    r"exited with code (?:3|52|137)\b|OOMKilled"
)
JAVA_OUT_OF_MEMORY: Final = re.compile(
    r"(?:An error occurred while calling [\w.]+\.\n: )?(?:java\.lang\.|[\w.$]+\.Spark)OutOfMemoryError\b"
)
PYTHON_WORKER_CRASHED: Final = re.compile(r"(?:[\w.$]+: )?Python worker exited unexpectedly")
"""Without a condition in brackets: after [USER_RAISED_EXCEPTION] comes what `raise_error` got, such as a value."""
CRASHED_BY_ITSELF: Final = "Fatal Python error"
"""What Python's faulthandler says of every signal but SIGKILL, which no handler survives."""
LATE_WORKER: Final = re.compile(r"(?:[\w.$]+: )?Python worker failed to connect back")
"""What Spark's driver throws where a Python process that it starts has not connected within 10 s."""
OF_DATA: Final = ("22", "39", "P0")
"""SQL's classes of data exceptions, of functions that fail, and of errors that a query raises itself."""
CALLBACK: Final = "FOREACH_BATCH_USER_FUNCTION_ERROR"
"""Has an SQLSTATE of functions that fail; a batch that fails is known here, so this one did not begin or return."""
OUTAGE: Final = re.compile(
    r"(?:(?:Connection\w*|BrokenPipe\w*|\w*Timeout\w*|\w*TimedOut|timeout|gaierror|herror|SSL\w*|URLError"
    r"|NoHostAvailable|Unavailable\w*|\w*Unreachable\w*|OSError(?=: \[Errno))(?::|$)"
    r"|HTTPError: (?:HTTP Error )?(?:429|5\d\d)\b)"
)
"""How an exception begins, its type first, where a service did not answer the author's function, or said it is busy."""
OF_CLIENTS: Final = frozenset({"cassandra", "confluent_kafka", "cimpl"})
"""Packages whose own exceptions are about a server, and not about a record."""
OF_FILES: Final = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
INCOMPATIBLE: Final = frozenset(
    {
        "STATE_STORE_COLUMN_FAMILY_SCHEMA_INCOMPATIBLE",
        "STATE_STORE_INVALID_CONFIG_AFTER_RESTART",
        "STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION",
        "STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE",
        "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
        "STATE_STORE_STATE_SCHEMA_FILES_THRESHOLD_EXCEEDED",
        "STATE_STORE_VALUE_SCHEMA_EVOLUTION_THRESHOLD_EXCEEDED",
        "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
        "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY",
        "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
        "STREAM_STREAM_JOIN_INCOMPATIBLE_STATE_STORE_CONFIGS",
    }
)
"""Spark's conditions for a query that does not fit the state in its checkpoint: error-conditions.json of Spark 4.3."""
ROOT_CAUSE: Final = re.compile(r"^Caused by: (.*)$", re.MULTILINE)
"""Java's line for what caused the exception above it; the last one of a stack is the root cause."""
FORCING: Final = "\nIf you want to force running the query"
"""How Spark begins to name a setting that Fencepost owns."""
LONGEST: Final = 1500
MOST_CAUSES: Final = 10
"""Java exceptions that are looked at, each caused by the next one."""


def of_transform(error: Exception, *, is_warm_up: bool) -> DriverError:
    """Return why the author's function raised `error`.

    What it raises on the empty batch it raises in each new run, so that is BadSpec; except when Spark or a service that
    the function calls is the cause.
    """
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - Spark's imports overlap the JVM's start

    if isinstance(error, DriverError):
        return error
    if isinstance(error, AnalysisException):
        return BadSpec(f"transform: {short(error)}", reason=Reason.TRANSFORM_INVALID)
    if (known := _known(error, is_warm_up=is_warm_up)) is not None:
        return known
    message = f"the transform raised {type(error).__name__}: {short(error)}"
    if (down := outage(error, message)) is not None:
        return down
    if is_warm_up and not _is_infrastructure(error):
        return _fails_on_empty_batch(message)
    return _kind(error)(message, reason=Reason.TRANSFORM_FAILED)


def of_job(error: Exception, *, is_warm_up: bool) -> DriverError:
    """Return why the job of a batch failed."""
    if (known := _known(error, is_warm_up=is_warm_up)) is not None:
        return known
    if (down := outage(error, short(error))) is not None:
        return down
    if is_warm_up and not _is_infrastructure(error):
        return _fails_on_empty_batch(short(error))
    return _kind(error)(short(error))


def of_worker(error: Exception) -> DriverError:
    """Return why a function of the author's, the reader or a sink raised `error` in a Python worker: by its type."""
    found = of_transform(error, is_warm_up=False)
    if found is error:
        return found
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return type(found)(f"{found.message}{place}", reason=found.reason, remedy=found.remedy)


def of_query(error: Exception) -> DriverError:
    """Return why Spark ended a query where neither the plans nor a batch failed.

    Spark's exception is about the query, so what caused it decides.
    """
    known = _known(error, is_warm_up=False)
    return known or (RecordFailed if _is_of_data(error) else BatchFailed)(short(error))


def is_late_worker(error: Exception) -> bool:
    """Return whether a Python process that the driver starts was too slow to connect: nothing has run there."""
    return any(LATE_WORKER.match(str(thrown.toString())) for thrown in _thrown(error))


def _known(error: Exception, *, is_warm_up: bool) -> DriverError | None:
    """Return the DriverError that a Python worker raised, or what Spark says of a process that ended, or of a state."""
    crossed = from_text(str(error))
    if crossed is not None:
        return _fails_on_empty_batch(crossed.message) if is_warm_up and type(crossed) is RecordFailed else crossed
    if isinstance(error, MemoryError):
        from pyspark import TaskContext  # noqa: PLC0415 - Spark's imports overlap the JVM's start

        process = "the driver's Python process" if TaskContext.get() is None else "a Python worker"
        return OutOfMemory(f"{process} ran out of memory: {short(error)}")
    if not _is_of_spark(error):
        return None
    texts = chain((str(error),), (str(thrown.toString()) for thrown in _thrown(error)))
    message = short(error)  # once: Py4J asks the JVM for the whole stack each time
    return next(filter(None, (_of_process(text, message) for text in texts)), None) or of_state(error)


_CRASHED_REMEDY: Final = (
    "See the frames after 'Fatal Python error': a native library that the transform calls may be the cause."
)


def _of_process(text: str, message: str) -> DriverError | None:
    """Return which process ended, or had too little memory, by the text of one of Spark's exceptions.

    A Python worker that ends without a word was killed with SIGKILL: that is what the kernel does for memory.  Texts
    of Spark are read from their start alone: what follows may quote a record.
    """
    found = LOST_TASK.match(text)
    task = text[found.end() :] if found else None
    if task is not None and PYTHON_WORKER_CRASHED.match(task) and CRASHED_BY_ITSELF in task:
        return BatchFailed(f"a Python worker crashed: {message}", remedy=_CRASHED_REMEDY)
    process = _without_memory(text, task)
    return OutOfMemory(f"{process} ran out of memory: {message}") if process else None


def _without_memory(text: str, task: str | None) -> str:
    """Return which process had too little memory, '' when none had."""
    if task is None:
        if PYTHON_WORKER_CRASHED.match(text):
            return "a Python worker"
        return "the driver's JVM" if JAVA_OUT_OF_MEMORY.match(text) else ""
    lost = LOST_EXECUTOR.match(task)
    if (lost and WITHOUT_MEMORY.search(lost[1])) or JAVA_OUT_OF_MEMORY.match(task):
        return "an executor's JVM"
    return "a Python worker" if PYTHON_WORKER_CRASHED.match(task) else ""


def _is_of_spark(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] in {"pyspark", "py4j"}


def outage(error: Exception, message: str) -> BatchFailed | None:
    """Return BatchFailed, reason DependencyDown, when a service that the author's function calls is the cause."""
    if _is_of_spark(error) or OUTAGE.match(f"{type(error).__name__}: {error}") is None:
        return None
    return BatchFailed(
        message,
        reason=Reason.DEPENDENCY_DOWN,
        remedy="Restore the service that the transform calls; the batch is repeated, and nothing is lost.",
    )


def _fails_on_empty_batch(message: str) -> BadSpec:
    return BadSpec(
        f"on the empty batch of the warm-up: {message}",
        reason=Reason.TRANSFORM_FAILED,
        remedy="Correct the transform: it also receives an empty batch, with context.offsets empty.",
    )


def _is_infrastructure(error: Exception) -> bool:
    """Return whether an error may pass without a change of the author's code."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - Spark's imports overlap the JVM's start
    from pyspark.errors import PySparkException, UnknownException  # noqa: PLC0415

    match error:
        case Py4JError() | UnknownException():
            return not _is_of_data(error)
        case PySparkException():
            return False
        case OSError():
            return not isinstance(error, OF_FILES)
        case _:
            return type(error).__module__.partition(".")[0] in OF_CLIENTS


def _is_of_data(error: Exception) -> bool:
    """Return whether Spark gives the error, or what caused it, an SQLSTATE that is about data."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - Spark's imports overlap the JVM's start

    for thrown in _thrown(error):
        try:
            if (thrown.getSqlState() or "").startswith(OF_DATA) and thrown.getCondition() != CALLBACK:
                return True
        except Py4JError:  # not one of Spark's own
            pass
    return False


def of_state(error: Exception) -> BadSpec | None:
    """Return that the author's code does not fit the stored state, None where Spark does not say so."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - Spark's imports overlap the JVM's start

    for thrown in _thrown(error):
        try:
            condition = thrown.getCondition() or ""
        except Py4JError:  # not one of Spark's own
            continue
        if condition in INCOMPATIBLE:
            message = str(thrown.getMessage()).partition(FORCING)[0]
            return BadSpec(
                f"the code does not fit the stored state{_of_operator(thrown)}: {message[:LONGEST]}",
                reason=Reason.STATE_INCOMPATIBLE,
                remedy="Go back to code that fits, or rewind: to a snapshot that this code can read, or with"
                " spec.emptyState.",
            )
    return None


def _of_operator(thrown: Any) -> str:  # noqa: ANN401 - an object of Java
    """Return whose state an exception is about, by the innermost operator that threw it; '' where none did."""
    for frame in thrown.getStackTrace():
        name = str(frame.getClassName()).rpartition(".")[2].partition("$")[0]
        if name.endswith("Exec"):
            return f" of operator {name.removesuffix('Exec')}"
    return ""


def _thrown(error: Exception) -> Iterator[Any]:
    """Yield the Java exception of an error, and what caused it."""
    thrown = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(MOST_CAUSES):
        if thrown is None:
            return
        yield thrown
        thrown = thrown.getCause()


def _kind(error: Exception) -> type[BatchFailed]:
    """Return RecordFailed when what is in a record may be the cause, and not the cluster or a service."""
    return BatchFailed if _is_infrastructure(error) else RecordFailed


def short(error: BaseException) -> str:
    """Return an error's text and its root cause, without the pages of Java stack that follow Spark's own text."""
    text = _without_stack(error)
    causes = ROOT_CAUSE.findall(with_stack(error))
    if causes and causes[-1] not in text:
        text = f"{text}; caused by {causes[-1]}"
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 3]} … {text[-2 * LONGEST // 3 :]}"


def with_stack(error: BaseException) -> str:
    """Return the Java stack of an error of Spark's, with those of its causes; the error's text without one."""
    return str(getattr(error, "_stackTrace", None) or error)


def _without_stack(error: BaseException) -> str:
    return str(error).partition("\n\nJVM stacktrace:")[0].partition("\n\tat ")[0].strip()
