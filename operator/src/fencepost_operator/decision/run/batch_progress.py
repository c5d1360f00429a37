"""Whether the progress that a driver reports inside its batch can be read."""

from __future__ import annotations

from typing import Final

from fencepost.fence import BatchProgress
from fencepost_operator.decision.wording import detail
from fencepost_operator.observation import Fact, NotAsked, Unknown

UNREADABLE_FACTOR: Final = 2
"""Times the stall timeout that a run has while its progress may not be read: its batch may well progress unseen."""
REMEDY: Final = (
    "grant the account SELECT on fence_progress, or create the table with createSchema: true of the checkpoint"
)


def is_transient(progress: Fact[BatchProgress | None] | NotAsked) -> bool:
    """Return whether progress may be reported that cannot be seen now; what is refused stays so until it is granted."""
    return isinstance(progress, Unknown) and progress.is_transient


def refusal(progress: Fact[BatchProgress | None] | NotAsked) -> str:
    """Return why progress may not be read, '' when it may or when Cassandra does not answer."""
    if isinstance(progress, Unknown) and not is_transient(progress):
        return f"table fence_progress cannot be read: {detail(progress.message)}"
    return ""
