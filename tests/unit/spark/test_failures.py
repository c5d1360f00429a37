"""Which exceptions mean that a service did not answer, and which are about a record."""

from __future__ import annotations

import socket

import pytest

from fencepost.spark.failures import outage


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
