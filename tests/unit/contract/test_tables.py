"""The names that no sink may use are those of the tables that the fence makes."""

from fencepost.contract.tables import OWN_TABLES
from fencepost.fence.cassandra.schema import TABLES


def test_every_table_that_the_fence_makes_is_its_own() -> None:
    assert {table.name for table in TABLES} == OWN_TABLES
