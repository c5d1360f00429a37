"""Which exceptions of a Python worker tell that a service did not answer, and which are about a record."""

from __future__ import annotations

import pytest

from fencepost.spark.failures import OUTAGE

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
        ("ValueError: no JSON", False),
        ("EOFError", False),  # what a truncated Avro record raises
        ("OSError: cannot identify image file", False),
        ("KeyError: 'ConnectionError'", False),
        ("ValueError: the record says ConnectionError: none", False),
    ],
)
def test_an_outage_is_told_by_the_exceptions_name(last: str, is_outage: bool) -> None:
    assert (OUTAGE.search(f"{TRACEBACK}{last}\n\n\tat org.apache.spark") is not None) is is_outage
