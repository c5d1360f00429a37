"""The records that users let a pipeline leave out, as a run reads them once it has claimed its epoch."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from fencepost.driver.fence_store import FenceStore
from fencepost.fence import FenceRow

log = logging.getLogger(__name__)


def left_out(row: FenceRow, store: FenceStore) -> Mapping[str, frozenset[tuple[int, int]]]:
    """Return their offsets and leader epochs by 'topic/partition'; log those that are still to be read.

    Raises FenceError.
    """
    found = store.left_out(row.topic_ids)
    ahead = {key: sorted(at for at, _ in pairs if at >= row.offsets.get(key, 0)) for key, pairs in found.items()}
    if ahead := {key: offsets for key, offsets in ahead.items() if offsets}:
        log.warning("leaving out records, as users asked", extra={"fields": {"records": ahead}})
    return found
