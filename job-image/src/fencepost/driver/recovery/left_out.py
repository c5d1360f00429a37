"""The records that users let a pipeline leave out, as a run reads them once it has claimed its epoch."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from cassandra.cluster import Session

from fencepost.contract import DriverConfig
from fencepost.fence import FenceRow
from fencepost.fence.cassandra.left_out import LeftOutRecords
from fencepost.fence.patience import Patience

log = logging.getLogger(__name__)


def left_out(row: FenceRow, config: DriverConfig, session: Session) -> Mapping[str, frozenset[tuple[int, int]]]:
    """Return their offsets and leader epochs by 'topic/partition'; log those that are still to be read.

    Raises FenceError.
    """
    records = LeftOutRecords(session, config.fence_keyspace, config.pipeline)
    found = Patience(config.patience).ask(lambda: records.of_topics(row.topic_ids))
    ahead = {key: sorted(at for at, _ in pairs if at >= row.offsets.get(key, 0)) for key, pairs in found.items()}
    if ahead := {key: offsets for key, offsets in ahead.items() if offsets}:
        log.warning("leaving out records, as users asked", extra={"fields": {"records": ahead}})
    return found
