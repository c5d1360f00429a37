"""A read of the state sees each write before it, whatever consistency the sinks have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from cassandra import ConsistencyLevel as Level

from fencepost.state.cassandra import prepared


@pytest.mark.parametrize(
    ("given", "used"),
    [
        (Level.ONE, Level.LOCAL_QUORUM),
        (Level.LOCAL_ONE, Level.LOCAL_QUORUM),
        (Level.LOCAL_QUORUM, Level.LOCAL_QUORUM),
        (Level.QUORUM, Level.QUORUM),
        (Level.EACH_QUORUM, Level.QUORUM),
        (Level.ALL, Level.ALL),
    ],
    ids=Level.value_to_name.get,
)
def test_a_file_of_the_state_is_read_from_a_replica_that_has_it(given: int, used: int) -> None:
    session: Any = SimpleNamespace(
        prepare=lambda _: SimpleNamespace(consistency_level=None),
        get_execution_profile=lambda _: SimpleNamespace(consistency_level=given),
    )
    assert prepared(session, "SELECT content FROM chunks").consistency_level == used
