"""The size of a stateful pipeline's state, and whether it comes near the room that every worker has for it."""

from __future__ import annotations

from typing import Final

from fencepost.contract.guidance import remedy_of
from fencepost.fence import FenceRow
from fencepost_operator.api import Reason, Spec, Status, StoredStateStatus
from fencepost_operator.api.quantities import bytes_text, mebibytes
from fencepost_operator.decision.wording import with_remedy

STATE_NEAR_LIMIT: Final = "StateNearLimit"
NEAR_PERCENT: Final = 80
"""Of `state.maxBytes`: a state that doubles in a week leaves two days to raise it."""


def stored_state(before: StoredStateStatus | None, spec: object, row: FenceRow | None) -> StoredStateStatus | None:
    """Return the size after the last commit, None without state; while the row is not known, nothing changes."""
    if row is None:
        return before
    if row.state_bytes is None:
        return None
    if not isinstance(spec, Spec):
        return StoredStateStatus(bytes=row.state_bytes, max_bytes=before.max_bytes if before is not None else None)
    return StoredStateStatus(bytes=row.state_bytes, max_bytes=spec.stateful.max_bytes if spec.stateful else None)


def state_near_limit(status: Status) -> str:
    """Return how much of its room the state has taken, '' while that is little."""
    found = status.stored_state
    if found is None or not found.max_bytes:
        return ""
    percent = 100 * found.bytes // found.max_bytes
    if percent < NEAR_PERCENT:
        return ""
    return with_remedy(
        f"The state has {mebibytes(found.bytes)}, {percent} % of the {bytes_text(found.max_bytes)} that every worker "
        "has room for",
        remedy_of(Reason.STATE_NEAR_LIMIT),
    )
