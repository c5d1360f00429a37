"""Which exceptions mean that a service did not answer, and which are about a record."""

from __future__ import annotations

import socket

import pytest
from cassandra import OperationTimedOut
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from fencepost.contract import ExitCode, Reason
from fencepost.errors import BadSpec, BatchFailed, OutOfMemory, RecordFailed, as_worker_error
from fencepost.spark.failures import of_job, of_query, of_state, of_transform, outage


@pytest.mark.parametrize(
    ("error", "is_outage"),
    [
        (ConnectionRefusedError(111, "Connection refused"), True),
        (TimeoutError(), True),
        (ValueError("no such record\nTimeoutError: none"), False),
        (KeyError("ConnectionError"), False),
    ],
)
def test_an_error_of_the_drivers_half_is_classified_by_its_own_name(error: Exception, is_outage: bool) -> None:
    assert (outage(error, "m") is not None) is is_outage


class HTTPError(Exception):
    """As that of requests and urllib."""


@pytest.mark.parametrize(
    ("error", "is_outage"),
    [
        (HTTPError("503 Server Error: Service Unavailable for url: http://x"), True),
        (HTTPError("HTTP Error 429: Too Many Requests"), True),
        (HTTPError("400 Client Error: Bad Request for url: http://x/500"), False),
        (OperationTimedOut({"c": "Client request timeout"}, "c"), True),
        (socket.gaierror(-2, "Name or service not known"), True),
        (OSError(113, "No route to host"), True),
        (OSError("cannot identify image file"), False),
        (EOFError(), False),  # what a truncated Avro record raises
    ],
)
def test_a_service_that_is_busy_or_away_is_an_outage(error: Exception, is_outage: bool) -> None:
    assert (outage(error, "m") is not None) is is_outage


class Frame:
    """One of a Java stack."""

    def __init__(self, name: str) -> None:
        self.name = name

    def getClassName(self) -> str:  # noqa: N802 - Java's
        return self.name


class Thrown:
    """A Java exception; one of Spark's own has a condition, and may have an SQLSTATE."""

    def __init__(
        self, condition: str | None, cause: Thrown | None = None, message: str = "", *, state: str = "", kind: str = ""
    ) -> None:
        self.condition, self.cause, self.message, self.state, self.kind = condition, cause, message, state, kind

    def getCondition(self) -> str:  # noqa: N802 - Java's
        if self.condition is None:
            raise Py4JError("Method getCondition([]) does not exist")
        return self.condition

    def getSqlState(self) -> str:  # noqa: N802 - Java's
        if self.condition is None:
            raise Py4JError("Method getSqlState([]) does not exist")
        return self.state

    def getMessage(self) -> str:  # noqa: N802 - Java's
        return self.message

    def toString(self) -> str:  # noqa: N802 - Java's
        return f"{self.kind or 'org.apache.spark.SparkException'}: {self.message}"

    def getCause(self) -> Thrown | None:  # noqa: N802 - Java's
        return self.cause

    def getStackTrace(self) -> list[Frame]:  # noqa: N802 - Java's
        operators = "org.apache.spark.sql.execution.streaming.operators.stateful"
        return [Frame("org.apache.spark.sql.errors.X$"), Frame(f"{operators}.StateStoreSaveExec"), Frame("y.OtherExec")]


class QueryFailed(PySparkException):
    """As PySpark's, with the Java exception in `_origin`."""

    __module__ = "pyspark.errors"

    def __init__(self, text: str, origin: Thrown) -> None:
        super().__init__(text)
        self._origin = origin


CHANGED = Thrown(
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
    message="Existing key_schema=a and new key_schema=b.\nIf you want to force running the query without …",
)


@pytest.mark.parametrize(
    ("origin", "is_incompatible"),
    [
        (CHANGED, True),
        (Thrown("STREAM_FAILED", Thrown(None, CHANGED)), True),
        (Thrown("STREAM_FAILED", Thrown("CANNOT_LOAD_STATE_STORE.UNCATEGORIZED")), False),
        (Thrown("STREAM_FAILED", message="STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE"), False),
    ],
)
def test_code_that_does_not_fit_its_state_is_known_by_sparks_condition(origin: Thrown, is_incompatible: bool) -> None:
    """A text may quote what is in records."""
    found = of_state(QueryFailed("[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE]", origin))
    assert (found is not None) is is_incompatible
    if found is not None:
        assert (found.code, found.reason) == (ExitCode.BAD_SPEC, Reason.STATE_INCOMPATIBLE)
        wanted = "the stored state of operator StateStoreSave: Existing key_schema=a and new key_schema=b."
        assert found.message.endswith(wanted)


LOST = "Job aborted due to stage failure: Task 0 in stage 1.0 failed 2 times, most recent failure: Lost task 0.1"
LOST += " in stage 1.0 (TID 3) (10.0.0.1 executor 1): "
KILLED = "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: Command exited with code "


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (Thrown(None, kind="java.io.IOException", message="Filesystem closed"), BatchFailed),
        (Thrown("CANNOT_LOAD_STATE_STORE.UNCATEGORIZED", state="58030"), BatchFailed),
        (Thrown("CAST_INVALID_INPUT", state="22018"), RecordFailed),
        (Thrown("FOREACH_BATCH_USER_FUNCTION_ERROR", Thrown(None), state="39000"), BatchFailed),
        (Thrown(None, CHANGED), BadSpec),
        (Thrown("", message=LOST + "java.lang.OutOfMemoryError: Java heap space"), OutOfMemory),
        (Thrown(None, Thrown("", message=LOST + KILLED + "137")), OutOfMemory),
        (Thrown("", message=LOST + KILLED + "1"), BatchFailed),
        (Thrown(None, kind="java.lang.OutOfMemoryError", message="Java heap space"), OutOfMemory),
        (Thrown(None, kind="x.Y", message=f"not of Spark: {LOST}java.lang.OutOfMemoryError: ?"), BatchFailed),
    ],
)
def test_what_ended_a_query_is_what_caused_it(cause: Thrown, kind: type[BatchFailed | BadSpec]) -> None:
    """A query's own exception says nothing: Spark has one for all causes."""
    error = QueryFailed("[STREAM_FAILED] Query [id = q] terminated", Thrown("STREAM_FAILED", cause, state="XXKST"))
    assert type(of_query(error)) is kind


def test_a_state_that_a_job_refuses_is_no_suspicion_of_a_record() -> None:
    for found in (
        of_job(QueryFailed("Job aborted", Thrown(None, CHANGED)), is_warm_up=False),
        of_transform(QueryFailed("Job aborted", Thrown(None, CHANGED)), is_warm_up=False),
    ):
        assert found.reason is Reason.STATE_INCOMPATIBLE


def test_what_a_python_worker_raised_ends_the_query_as_itself() -> None:
    text = f"[STREAM_FAILED] Query terminated: {as_worker_error(BadSpec('no such column'))}"
    assert isinstance(of_query(QueryFailed(text, Thrown("STREAM_FAILED"))), BadSpec)


def test_a_message_ends_with_the_root_cause_and_has_no_frame_of_java() -> None:
    stack = "\n\tat org.example.Store.commit(Store.java:7)"
    causes = f"\nCaused by: java.io.IOException: not written{stack}\nCaused by: java.net.SocketException: reset{stack}"
    error = Py4JError(f"org.example.StoreException: cannot commit{stack}{causes}")
    message = "org.example.StoreException: cannot commit; caused by java.net.SocketException: reset"
    assert of_job(error, is_warm_up=False).message == message
