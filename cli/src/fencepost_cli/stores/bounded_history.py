"""How much of a fence's history is read: its server may be whatever a pipeline's author names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fencepost.fence.history import Change
from fencepost_cli.errors import CliError

MOST_ENTRIES: Final = 10_000_000
"""Offsets in the changes of one hour: a gigabyte of this process."""


def bounded(changes: Iterable[Change]) -> list[Change]:
    """Return the changes. Raises CliError for more than an honest hour has."""
    found, entries = [], 0
    for change in changes:
        entries += 1 + len(change.offsets or ()) + len(change.planned or ())
        if entries > MOST_ENTRIES:
            raise CliError(
                f"the history of one hour has more than {MOST_ENTRIES:,} offsets, and no more are read",
                remedy="see a later part of it with --since, and who writes to the table fence_changes",
            )
        found.append(change)
    return found
