"""Whether the state of a snapshot is still there: the list of its files, and every chunk of each of them.

What a snapshot reaches is never collected, but a keyspace may be restored from an older backup, or truncated.  Without
the check a rewind would find that only after it has stopped the pipeline and deleted output.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Final

from fencepost.state.chunks import CHUNK, LARGEST_FILE, ChunkStore
from fencepost.state.errors import CheckpointDamaged
from fencepost.state.fence_committer import tree_of
from fencepost.state.progress import unpack_committed

SLICE: Final = 2_000
"""Files of one call: some seconds."""
SHOWN: Final = 3
"""Paths that a message names."""
LARGEST_LIST: Final = 32 * 1024 * 1024
"""Bytes of a list of files, unpacked: as many files as a checkpoint may have (`fencepost.state.directory`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCheck:
    """How far a check has come: the first `checked` of `files` files, and what is missing among those of this call."""

    files: int = 0
    checked: int = 0
    missing: str = ""
    """What is missing, as a message has it; empty where nothing is."""

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to check."""
        return bool(self.missing) or self.checked >= self.files


def check_files(checkpoint: bytes | None, chunks: ChunkStore, *, start: int = 0) -> StateCheck:
    """Check SLICE files of a checkpoint, in the order of their paths, from the one with the number `start` on.

    Raises FenceError.
    """
    try:
        done = unpack_committed(checkpoint)
        if done is None:
            return StateCheck()
        found = sorted(tree_of(done, chunks, most=LARGEST_LIST).files.items())
    except CheckpointDamaged as error:
        return StateCheck(missing=f"the list of its files: {error}")
    due = dict(islice(found, start, start + SLICE))
    parts = {file.id: -(-file.length // CHUNK) for file in due.values() if 0 <= file.length <= LARGEST_FILE}
    lost = chunks.incomplete(parts)
    paths = [path for path, file in due.items() if file.id in lost or file.id not in parts]
    return StateCheck(files=len(found), checked=min(start + len(due), len(found)), missing=_named(paths))


def _named(paths: list[str]) -> str:
    if not paths:
        return ""
    more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
    return f"chunks of {', '.join(paths[:SHOWN])}{more}"
