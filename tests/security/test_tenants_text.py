"""What else a tenant's text reaches: messages, metrics, log lines, paths of the API server."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Final

import pytest
from hypothesis import given

from fencepost.contract import CassandraEndpoint
from fencepost.fence import FenceCredentialsRejected, FenceError, FenceSwapRefused, FenceUnavailable
from fencepost_operator.adapters.cassandra.login import Login
from fencepost_operator.adapters.fence_errors import CASSANDRA, translated
from fencepost_operator.api import ObjectKey, Status
from fencepost_operator.errors import PortError
from fencepost_operator.logs import JsonFormatter
from fencepost_operator.runtime.metrics.registry import MOST_PARTITIONS, PrometheusMetrics
from security.hostile import hostile_text

KEY: Final = ObjectKey("tenant", "departures")
ACCOUNT: Final = ("reader-of-flights", "s3cret/pass+word")
PLACE: Final = Login(
    endpoint=CassandraEndpoint(contact_points=("db",)), consistency="LOCAL_QUORUM", credentials=ACCOUNT
)


@pytest.mark.parametrize(
    "error",
    [
        FenceCredentialsRejected(f"Bad credentials: Provided username {ACCOUNT[0]} and/or password are incorrect"),
        FenceCredentialsRejected(f"User {ACCOUNT[0]} has no SELECT permission on <table a.fence>"),
        FenceUnavailable(f"refused for {ACCOUNT[0]}:{ACCOUNT[1]}"),
        FenceSwapRefused(f"refused to driver {ACCOUNT[0]}:{ACCOUNT[1]}"),
    ],
)
def test_no_message_holds_a_cassandra_account(error: FenceError) -> None:
    """History of the audit: the user's name, a value of the Secret, was in the condition's remedy."""
    with pytest.raises(PortError) as caught, translated(PLACE, "flights", CASSANDRA):
        raise error
    words = f"{caught.value} {caught.value.remedy} {PLACE} {PLACE!r}"
    assert all(secret not in words for secret in ACCOUNT)


def series(metrics: PrometheusMetrics) -> list[str]:
    return [line for line in metrics.exposition().decode().split("\n") if "committed_offset{" in line]


def test_a_hostile_fence_row_makes_a_bounded_number_of_series() -> None:
    metrics = PrometheusMetrics()
    status = Status()
    metrics.observed(KEY, status, {f"topic-{number}/0": 1 for number in range(3 * MOST_PARTITIONS)}, None)
    assert len(series(metrics)) == MOST_PARTITIONS
    metrics.observed(
        KEY, status, {"t/0": 1, "no partition": 1, "t/x": 1, 'a"} 1\nup{x="/0': 1, "/0": 1, "ü/0": 1}, None
    )
    assert len(series(metrics)) == 1
    metrics.forget(KEY)
    assert series(metrics) == []


@given(hostile_text)
def test_a_log_line_is_one_line_of_json(text: str) -> None:
    record = logging.LogRecord("fencepost", logging.WARNING, __file__, 1, "%s", (text,), None)
    record.remedy = text
    record.created = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    line = JsonFormatter().format(record)
    assert len(line.splitlines()) == 1
    assert text in json.loads(line).values()
