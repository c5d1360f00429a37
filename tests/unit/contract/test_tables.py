"""The names that no sink may use are those of the tables that the fence makes."""

import re

from fencepost.contract.tables import OWN_TABLES
from fencepost.fence.cassandra import table_statements


def test_every_table_that_the_fence_makes_is_its_own() -> None:
    made = {re.findall(r"NOT EXISTS k\.(\w+)", statement)[0] for statement in table_statements("k")}
    assert made == OWN_TABLES
