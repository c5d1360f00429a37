"""What an exception of a batch means: a mistake of the author's, too little memory, or a failure of the cluster."""

from __future__ import annotations

import re
from typing import Final

from fencepost.contract import Reason
from fencepost.errors import BadSpec, BatchFailed, DriverError, OutOfMemory, RecordFailed, from_text

PYTHON_OUT_OF_MEMORY: Final = re.compile(r"ArrowMemoryError|\bMemoryError\b")
EXECUTOR_OUT_OF_MEMORY: Final = re.compile(
    # A JVM with ExitOnOutOfMemoryError ends with 3, Spark's own handler with 52, and the kernel kills with SIGKILL.
    r"exited with code (?:3|52|137)\b|OOMKilled|UNABLE_TO_ACQUIRE_MEMORY"
)
JAVA_OUT_OF_MEMORY: Final = "OutOfMemoryError"
OF_TASK: Final = re.compile(r"Lost task |Job aborted due to stage failure")
PYTHON_WORKER_CRASHED: Final = "Python worker exited unexpectedly"
CRASHED_BY_ITSELF: Final = "Fatal Python error"
"""What Python's faulthandler says of every signal but SIGKILL, which nobody survives to tell of."""
OF_DATA: Final = re.compile(r"SQLSTATE: (?:22|39|P0)")
"""SQL's classes of data exceptions, of functions that fail, and of errors that a query raises itself."""
OWN_CODE: Final = re.compile(r'File "[^"]*/fencepost/(?:sinks|kafka)/')
"""A frame of the reader's or the sink's: they run in Python workers of their own, so the author's code is not there."""
OUTAGE: Final = re.compile(
    r"(?:\w+\.)*(?:(?:Connection\w*|BrokenPipe\w*|\w*Timeout\w*|timeout|gaierror|herror|SSL\w*|URLError"
    r"|NoHostAvailable|Unavailable\w*|\w*Unreachable\w*|OSError(?=: \[Errno))(?::|$)"
    r"|HTTPError: (?:HTTP Error )?(?:429|5\d\d)\b)"
)
"""How a traceback's last line begins where a service did not answer the author's function, or answered it is busy."""
SQLSTATE: Final = re.compile(r"\s*SQLSTATE: \w+\s*$")
"""What Spark may add to a traceback."""
OF_FILES: Final = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
LONGEST: Final = 1500


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
    if (known := _known(error)) is not None:
        return known
    message = f"the transform raised {type(error).__name__}: {short(error)}"
    if (down := outage(error, message)) is not None:
        return down
    if is_warm_up and not _is_infrastructure(error):
        return _fails_on_empty_batch(message)
    return _kind(error)(message, reason=Reason.TRANSFORM_FAILED)


def of_job(error: Exception, *, is_warm_up: bool) -> DriverError:
    """Return why the job of a batch failed."""
    if (known := _known(error)) is not None:
        return known
    if (down := outage(error, short(error))) is not None:
        return down
    if is_warm_up and not _is_infrastructure(error):
        return _fails_on_empty_batch(short(error))
    return _kind(error)(short(error))


def _known(error: Exception) -> DriverError | None:
    """Return the DriverError that a Python worker raised, or OutOfMemory."""
    text = str(error)
    crossed = from_text(text)
    if crossed is not None:
        return crossed
    if PYTHON_WORKER_CRASHED in text and CRASHED_BY_ITSELF in text:
        return BatchFailed(f"a Python worker crashed: {short(error)}", remedy=_CRASHED_REMEDY)
    process = _without_memory(error, text)
    return OutOfMemory(f"{process} ran out of memory: {short(error)}") if process else None


_CRASHED_REMEDY: Final = (
    "See the frames after 'Fatal Python error': a native library that the transform calls may be the cause."
)


def _without_memory(error: Exception, text: str) -> str:
    """Return which process had too little memory, '' when none had.

    A Python worker that ends without a word was killed with SIGKILL: that is what the kernel does for memory.
    """
    if isinstance(error, MemoryError):
        from pyspark import TaskContext  # noqa: PLC0415 - Spark's imports overlap the JVM's start

        return "the driver's Python process" if TaskContext.get() is None else "a Python worker"
    if EXECUTOR_OUT_OF_MEMORY.search(text) or (JAVA_OUT_OF_MEMORY in text and OF_TASK.search(text)):
        return "an executor's JVM"
    if PYTHON_OUT_OF_MEMORY.search(text) or PYTHON_WORKER_CRASHED in text:
        return "a Python worker"
    return "the driver's JVM" if JAVA_OUT_OF_MEMORY in text else ""


def outage(error: Exception, message: str) -> BatchFailed | None:
    """Return BatchFailed, reason DependencyDown, when a service that the author's function calls is the cause."""
    if OUTAGE.match(_last_line(error)) is None or OF_DATA.search(short(error)):
        return None
    return BatchFailed(
        message,
        reason=Reason.DEPENDENCY_DOWN,
        remedy="Restore the service that the transform calls; the batch is repeated, and nothing is lost.",
    )


def _last_line(error: Exception) -> str:
    """Return the line that names the exception itself: not one that it was raised from, nor a line of its message."""
    if type(error).__module__.partition(".")[0] not in {"pyspark", "py4j"}:
        return f"{type(error).__name__}: {error}"
    lines = SQLSTATE.sub("", _without_stack(error)).splitlines()
    return lines[-1].strip() if lines else ""


def _fails_on_empty_batch(message: str) -> BadSpec:
    return BadSpec(
        f"on the empty batch of the warm-up: {message}",
        reason=Reason.TRANSFORM_FAILED,
        remedy="Correct the transform: it also receives an empty batch, with context.offsets empty.",
    )


def _is_infrastructure(error: Exception) -> bool:
    """Return whether an error may pass without a change of the author's code."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - Spark's imports overlap the JVM's start
    from pyspark.errors import PySparkException, PythonException, UnknownException  # noqa: PLC0415

    match error:
        case Py4JError() | UnknownException():
            return True
        case PythonException():
            return OWN_CODE.search(str(error)) is not None
        case PySparkException():
            return False
        case OSError():
            return not isinstance(error, OF_FILES)
        case _:
            return False


def _kind(error: Exception) -> type[BatchFailed]:
    """Return RecordFailed when what is in a record may be the cause, and not the cluster or a service."""
    if OF_DATA.search(short(error)):
        return RecordFailed
    return BatchFailed if _is_infrastructure(error) else RecordFailed


def short(error: BaseException) -> str:
    """Return an error's text without the pages of Java stack that follow Spark's own."""
    text = _without_stack(error)
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 3]} … {text[-2 * LONGEST // 3 :]}"


def _without_stack(error: BaseException) -> str:
    return str(error).partition("\n\nJVM stacktrace:")[0].partition("\n\tat ")[0].strip()
