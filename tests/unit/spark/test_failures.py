"""Which exceptions mean that a service did not answer, and which are about a record."""

from __future__ import annotations

import socket

import pytest
from py4j.protocol import Py4JError

from fencepost.contract import ExitCode, Reason
from fencepost.spark.failures import of_state, outage


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
        (socket.gaierror(-2, "Name or service not known"), True),
        (OSError(113, "No route to host"), True),
        (OSError("cannot identify image file"), False),
        (EOFError(), False),  # what a truncated Avro record raises
    ],
)
def test_a_service_that_is_busy_or_away_is_an_outage(error: Exception, is_outage: bool) -> None:
    assert (outage(error, "m") is not None) is is_outage


class Thrown:
    """A Java exception; one of Spark's own has a condition."""

    def __init__(self, condition: str | None, cause: Thrown | None = None, message: str = "") -> None:
        self.condition, self.cause, self.message = condition, cause, message

    def getCondition(self) -> str:  # noqa: N802 - Java's
        if self.condition is None:
            raise Py4JError("Method getCondition([]) does not exist")
        return self.condition

    def getMessage(self) -> str:  # noqa: N802 - Java's
        return self.message

    def getCause(self) -> Thrown | None:  # noqa: N802 - Java's
        return self.cause


class QueryFailed(Exception):
    """As PySpark's, with the Java exception in `_origin`."""

    def __init__(self, text: str, origin: Thrown) -> None:
        super().__init__(text)
        self._origin = origin


CHANGED = Thrown("STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE", message="Existing key_schema=a and new key_schema=b")


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
        assert "Existing key_schema=a and new key_schema=b" in found.message
