"""What the fence row keeps of a stateful pipeline, besides its offsets: enough to rebuild the checkpoint directory.

Spark resumes with its metadata, the offset logs of the last planned batch and of the one before, and the commit log of
the last committed batch.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from fencepost.fence.row import EMPTY, LARGEST_CHECKPOINT
from fencepost.state.errors import CheckpointDamaged, LogTooLong
from fencepost.state.tree import StoredFile, unpacked

_LARGEST: Final = 64 * LARGEST_CHECKPOINT
"""Bytes of a value before it is compressed: logs of many partitions repeat the same names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The planned batch (`FenceRow.planned_log`), and the query's metadata: a first batch has no other place for it."""

    batch: int
    metadata: str
    offset_log: str

    def pack(self) -> bytes:
        """Return it as bytes. Raises LogTooLong where a fence row cannot keep that many."""
        return _packed({"batch": self.batch, "metadata": self.metadata, "offsets": self.offset_log})


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The last committed batch (`FenceRow.checkpoint`), with the offset logs up to it, and its packed tree."""

    batch: int
    metadata: str
    offset_logs: Mapping[int, str]
    commit_log: str
    tree: StoredFile

    def pack(self) -> bytes:
        """Return it as bytes. Raises LogTooLong where a fence row cannot keep that many."""
        return _packed(
            {
                "batch": self.batch,
                "metadata": self.metadata,
                "offsets": {str(batch): log for batch, log in sorted(self.offset_logs.items())},
                "commit": self.commit_log,
                "tree": [self.tree.id.hex, self.tree.length],
            }
        )


def committed(before: Committed | None, planned: Planned, *, commit_log: str, tree: StoredFile) -> Committed:
    """Return what a row has once the planned batch is committed."""
    logs = {} if before is None else {before.batch: before.offset_logs[before.batch]}
    return Committed(
        batch=planned.batch,
        metadata=planned.metadata,
        offset_logs={**logs, planned.batch: planned.offset_log},
        commit_log=commit_log,
        tree=tree,
    )


def unpack_planned(packed: bytes | None) -> Planned | None:
    """Return what a row's `planned_log` holds. Raises CheckpointDamaged."""
    if packed is None:
        return None
    content = unpacked(packed, _LARGEST)
    try:
        return Planned(
            batch=int(content["batch"]),
            metadata=_text(content["metadata"]),
            offset_log=_text(content["offsets"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointDamaged(f"the fence row's planned_log is unreadable ({error!r})") from error


def unpack_committed(packed: bytes | None) -> Committed | None:
    """Return what the `checkpoint` of a row or of a snapshot holds, None of empty state. Raises CheckpointDamaged."""
    if packed is None or packed == EMPTY:
        return None
    content = unpacked(packed, _LARGEST)
    try:
        id, length = content["tree"]  # noqa: A001 - the field's name
        found = Committed(
            batch=int(content["batch"]),
            metadata=_text(content["metadata"]),
            offset_logs={int(batch): _text(log) for batch, log in content["offsets"].items()},
            commit_log=_text(content["commit"]),
            tree=StoredFile(UUID(hex=id), int(length)),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointDamaged(f"a checkpoint is unreadable ({error!r})") from error
    if found.batch not in found.offset_logs:
        raise CheckpointDamaged(f"a checkpoint lacks the offsets of its batch {found.batch}")
    return found


def _packed(content: Mapping[str, object]) -> bytes:
    text = json.dumps(content, separators=(",", ":")).encode()
    packed = zlib.compress(text)
    if len(packed) > LARGEST_CHECKPOINT or len(text) > _LARGEST:
        raise LogTooLong(
            f"the logs of a batch take {len(packed)} bytes, compressed from {len(text)}; a fence row keeps"
            f" {LARGEST_CHECKPOINT}"
        )
    return packed


def _text(value: Any) -> str:  # noqa: ANN401 - of JSON
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value
