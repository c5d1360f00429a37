"""Tables in the fence's keyspace that are Fencepost's own; no sink may write to them."""

from __future__ import annotations

from typing import Final

OWN_TABLES: Final = frozenset(
    {
        "accepted_losses",
        "checkpoint_chunks",
        "checkpoint_files",
        "dead_letter_chunks",
        "dead_letters",
        "fence",
        "fence_changes",
        "fence_losses",
        "fence_progress",
        "left_out_records",
        "snapshots",
    }
)
