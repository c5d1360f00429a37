"""The nodes of a cluster are counted in Cassandra and in databases that lack its newer tables."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from cassandra import InvalidRequest

from fencepost.fence.cassandra.schema import await_agreement, nodes

ROWS = {
    "system.local": [SimpleNamespace(data_center="one", schema_version="v")],
    "system.peers_v2": [SimpleNamespace(data_center="one", schema_version="v")] * 2,
    "system.peers": [
        SimpleNamespace(data_center="two", schema_version="v"),
        SimpleNamespace(data_center=None, schema_version=None),
    ],
}


class Node:
    """Answers what is read of its tables; ScyllaDB, DSE and Cassandra 3 have no system.peers_v2."""

    def __init__(self, *, has_newer_table: bool) -> None:
        self.has_newer_table = has_newer_table

    def execute(self, statement: str) -> Any:
        table = statement.split(" FROM ")[1]
        if table == "system.peers_v2" and not self.has_newer_table:
            raise InvalidRequest("unconfigured table peers_v2")
        return SimpleNamespace(current_rows=ROWS[table])


@pytest.mark.parametrize(("has_newer_table", "found"), [(True, {"one": 3}), (False, {"one": 1, "two": 1})])
def test_each_node_counts_once(has_newer_table: bool, found: dict[str, int]) -> None:
    node = Node(has_newer_table=has_newer_table)
    assert nodes(node) == found
    await_agreement(node)
