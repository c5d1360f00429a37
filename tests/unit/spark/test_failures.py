"""Which exceptions of a Python worker tell that a service did not answer, and which are about a record."""

from __future__ import annotations

import pytest
from pyspark.errors import PythonException

from fencepost.spark.failures import outage

TRACEBACK = (
    'An exception was thrown from the Python worker:\nTraceback (most recent call last):\n  File "job.py", line 3\n'
)


@pytest.mark.parametrize(
    ("last", "is_outage"),
    [
        ("ConnectionRefusedError: [Errno 111] Connection refused", True),
        ("requests.exceptions.ConnectionError: HTTPSConnectionPool(host='x')", True),
        ("requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='x')", True),
        ("TimeoutError: timed out", True),
        ("socket.gaierror: [Errno -2] Name or service not known", True),
        ("urllib.error.URLError: <urlopen error [Errno 111] Connection refused>", True),
        ("ssl.SSLError: handshake failure", True),
        ("OSError: [Errno 113] No route to host", True),
        ("cassandra.cluster.NoHostAvailable: ('Unable to connect', {})", True),
        ("requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: http://x", True),
        ("urllib.error.HTTPError: HTTP Error 429: Too Many Requests", True),
        ("requests.exceptions.HTTPError: 400 Client Error: Bad Request for url: http://x/500", False),
        ("urllib.error.HTTPError: HTTP Error 404: Not Found", False),
        ("ValueError: no JSON", False),
        ("EOFError", False),  # what a truncated Avro record raises
        ("OSError: cannot identify image file", False),
        ("KeyError: 'ConnectionError'", False),
        ("ValueError: the record says ConnectionError: none", False),
    ],
)
@pytest.mark.parametrize("end", ["", "\n SQLSTATE: 38000"])
def test_an_outage_is_told_by_the_exceptions_name(last: str, is_outage: bool, end: str) -> None:
    error = PythonException(f"{TRACEBACK}{last}\n{end}\n\tat org.apache.spark")
    assert (outage(error, "m") is not None) is is_outage


@pytest.mark.parametrize(
    "traceback",
    [
        "ConnectionError: no cache\n\nDuring handling of the above exception, another error occurred:\n\nKeyError: 1",
        "ValueError: the record says\nTimeoutError: none\nand more",
    ],
    ids=["the cause", "a line of the message"],
)
def test_a_mistake_with_the_name_of_an_outage_above_its_last_line_is_a_mistake(traceback: str) -> None:
    assert outage(PythonException(f"{TRACEBACK}{traceback}\n\n\tat org.apache.spark"), "m") is None


@pytest.mark.parametrize(
    ("error", "is_outage"),
    [
        (ConnectionRefusedError(111, "Connection refused"), True),
        (TimeoutError(), True),
        (ValueError("no such record\nTimeoutError: none"), False),
        (KeyError("ConnectionError"), False),
    ],
)
def test_an_error_of_the_drivers_half_is_told_by_its_own_name(error: Exception, is_outage: bool) -> None:
    assert (outage(error, "m") is not None) is is_outage
