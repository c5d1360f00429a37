"""A record that users let a pipeline leave out.

A record is named by the topic's id, its partition, its offset and its leader epoch.  In one log the epochs never fall,
and a leader that has cut the log's end appends under a later epoch: so no other record ever has this name, also where
the log was truncated below the offset, or the topic recreated.
A run reads the rows once it has claimed its epoch, and leaves these records out of what it reads: also of a batch that
an earlier run planned, and after a rewind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fencepost.contract import offset_key

MOST: Final = 10_000
"""Records that one pipeline leaves out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A record, and who leaves it out since when. `leader_epoch` is NO_EPOCH of a record that has none."""

    topic: str
    partition: int
    offset: int
    topic_id: str
    leader_epoch: int
    by: str
    at: datetime | None


def by_partition(records: Iterable[LeftOut], topic_ids: Mapping[str, str]) -> Mapping[str, frozenset[tuple[int, int]]]:
    """Return offsets and leader epochs by 'topic/partition', of topics with these ids."""
    found: dict[str, set[tuple[int, int]]] = {}
    for one in records:
        if topic_ids.get(one.topic) == one.topic_id:
            found.setdefault(offset_key(one.topic, one.partition), set()).add((one.offset, one.leader_epoch))
    return {key: frozenset(offsets) for key, offsets in found.items()}
