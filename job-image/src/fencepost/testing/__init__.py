"""Test a transform with pytest alone: no Kafka, no Cassandra.

The package brings the fixtures of `fencepost.pytest_plugin`:

def test_departures(batch_test):
    departures = batch_test(transform)
    assert len(departures.rows([{"value": b'{"flight": 1}'}])["rows"]) == 1
    departures.assert_deterministic([{"value": b'{"flight": 1}'}, {"value": b'{"flight": 2}'}])
"""

from __future__ import annotations

from fencepost.testing.batches import BatchTest
from fencepost.testing.cuts import check_cuts
from fencepost.testing.inputs import context, frame, read_records, record_batch, record_context
from fencepost.testing.sessions import local_session

__all__ = [
    "BatchTest",
    "check_cuts",
    "context",
    "frame",
    "local_session",
    "read_records",
    "record_batch",
    "record_context",
]
