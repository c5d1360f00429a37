"""The departures example whose commits stay in the driver's memory: what Fencepost would do without a fence.

Code of an author, in a ConfigMap, and no part of the product: the driver imports it before its first batch, and from
then on the changes of the fence row that come after the claim are not sent to Cassandra.  After a crash such a pipeline
would begin at the beginning.
"""

from __future__ import annotations

from typing import Any

from departures import transform  # type: ignore[import-not-found]  # from the ConfigMap
from departures_arrow import transform as record_batches  # type: ignore[import-not-found]

from fencepost.fence import FenceRow
from fencepost.fence.cassandra.table import CassandraFenceTable

__all__ = ["record_batches", "transform"]

_swap = CassandraFenceTable.swap


def swap(table: CassandraFenceTable, before: FenceRow, after: FenceRow) -> bool:
    """Claim in Cassandra; of everything else say that it is done."""
    return True if before.driver is not None else _swap(table, before, after)


def report_progress(*_: Any, **__: Any) -> None:
    """Report nothing."""


CassandraFenceTable.swap = swap  # type: ignore[assignment, method-assign]
CassandraFenceTable.report_progress = report_progress  # type: ignore[method-assign]
