"""The fence row: what is known of a pipeline's progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from fencepost.contract.offsets import split_offset_key

UNCLAIMED: Final = None
NO_OWNER: Final = ""
"""The owner of a released row."""
EMPTY: Final = b"empty"
"""The checkpoint of a stateful pipeline that was set back to before its first commit. No bytes would be damage."""
LARGEST_CHECKPOINT: Final = 1024 * 1024
"""Bytes; two offset logs of a thousand partitions take some twenty thousand."""
KNOWN_GROWTHS: Final = 10
"""Growths of a topic that a row keeps: each costs as many bytes as the offsets do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceRow:
    """The only authority on a pipeline's progress.

    `clock` is the row's time in µs since 1970: the wall time of its last change, and always ahead of the change
    before.  A batch begun on this row writes its output at `clock + 1`.
    `offsets` and `planned` map 'topic/partition' to the next offset to read: committed, and the end of the batch
    that comes next (a successor repeats exactly that batch).  `begun` has, per partition, the furthest end of a batch
    that was planned and then cut, or left by a rewind, until that end is committed: output may exist up to there,
    beyond `planned`.
    `accepted_until` has, per partition, up to where a user has accepted whatever retention deletes before it is read;
    the next run continues under that acceptance, and a rewind ends it.
    `committed_at`, `duration_ms` and `records` are of the last batch.
    `output_token` is the write timestamp of the last committed batch that wrote to the sinks, 0 before the first one: a
    sink that keeps batches apart learns from it which of them are committed.  It stays for as long as the row.
    `leader_epochs` maps a partition to the leader epoch of the record before its offset, or to a later one under which
    that record was still there: with it a reader finds where a truncated log diverges.  `epoch_starts` has the first
    record that was read of that epoch, where it is the record's own.  `growth_barrier` maps the old partitions of a
    topic that grew to their ends at the time of discovery, and the new ones to 0: these are not in `offsets` before
    `offsets` has reached every end.  It stays until the topic grows again.  `growths` has the barriers of each topic's
    last KNOWN_GROWTHS growths, a map for each, those of fewer partitions first: a rewind goes back to one of them, and
    the driver passes the later ones in turn.
    `log_ends` are the ends of the log as the driver last saw them, for a reader that cannot ask Kafka itself.
    `dead_letters` counts the records that were set aside, and `last_dead_letter` is the newest of them,
    'topic/partition@offset'.
    `watermark`, in ms since 1970, and `late_rows`, a count of all runs, are a stateful query's, see
    `fencepost.batch.EventTime`: as they were known when the last batch was committed, which is without that batch.
    `state_bytes` is the size of the files of the state at `offsets`; None without state, and from a rewind to the next
    commit.
    `figures` is what the last commit says of its batch and its run, by the names of `fencepost.fence.figures`; none
    from a rewind to the next commit.
    `record_times` has the largest timestamp of the records that were read of a partition, in ms since 1970.
    `checkpoint` is a stateful pipeline's state at `offsets`, and `planned_log` Spark's log of the batch that `planned`
    ends: bytes that `fencepost.state` packs, and that the fence only keeps.  Both are None for a stateless pipeline;
    `checkpoint` is EMPTY where a rewind has set the pipeline back to empty state.
    """

    pipeline: str
    owner: str
    epoch: int = 0
    driver: str | None = UNCLAIMED
    version: int = 0
    clock: int = 0
    offsets: Mapping[str, int] = field(default_factory=dict)
    planned: Mapping[str, int] = field(default_factory=dict)
    begun: Mapping[str, int] = field(default_factory=dict)
    accepted_until: Mapping[str, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    leader_epochs: Mapping[str, int] = field(default_factory=dict)
    epoch_starts: Mapping[str, int] = field(default_factory=dict)
    growth_barrier: Mapping[str, int] = field(default_factory=dict)
    growths: tuple[Mapping[str, int], ...] = ()
    log_ends: Mapping[str, int] = field(default_factory=dict)
    code: str | None = None
    committed_at: datetime | None = None
    records: int | None = None
    duration_ms: int | None = None
    output_token: int = 0
    dead_letters: int = 0
    last_dead_letter: str | None = None
    watermark: int | None = None
    late_rows: int = 0
    record_times: Mapping[str, int] = field(default_factory=dict)
    state_bytes: int | None = None
    figures: Mapping[str, int] = field(default_factory=dict)
    checkpoint: bytes | None = None
    planned_log: bytes | None = None

    @property
    def is_between_batches(self) -> bool:
        """Whether no batch is planned; one of a stateful pipeline may have no records."""
        return self.planned == self.offsets and self.planned_log is None

    @property
    def written_until(self) -> dict[str, int]:
        """Up to where output may exist beyond what is committed; only of partitions where it may."""
        ends = {key: max(self.planned.get(key, 0), self.begun.get(key, 0)) for key in {*self.planned, *self.begun}}
        return {key: end for key, end in sorted(ends.items()) if end > self.offsets.get(key, 0)}

    def left_open(self, offsets: Mapping[str, int]) -> dict[str, int]:
        """Return `written_until` of the partitions that `offsets` leave where they are."""
        return {key: end for key, end in self.written_until.items() if offsets.get(key) == self.offsets.get(key)}

    def begun_after(self, offsets: Mapping[str, int], planned: Mapping[str, int]) -> dict[str, int]:
        """Return `begun` of the change after this row: a plan that is cut stays in it until its end is committed."""
        cut = {key: end for key, end in self.planned.items() if planned.get(key, 0) < end}
        ends = {key: max(cut.get(key, 0), self.begun.get(key, 0)) for key in {*cut, *self.begun}}
        return {key: end for key, end in ends.items() if end > offsets.get(key, 0)}

    def accepted_after(self, offsets: Mapping[str, int]) -> dict[str, int]:
        """Return `accepted_until` of the change after this row."""
        return {key: end for key, end in self.accepted_until.items() if end > offsets.get(key, 0)}

    def growths_after(self, barrier: Mapping[str, int]) -> tuple[Mapping[str, int], ...]:
        """Return `growths` of the change after this row. A growth is known by its partitions."""
        kept: list[Mapping[str, int]] = []
        known, now = _by_topic(*self.growths), _by_topic(barrier)
        for topic in sorted(known.keys() | now.keys()):
            growths = [*known.get(topic, ()), *now.get(topic, ())]
            kept += sorted({frozenset(ends): ends for ends in reversed(growths)}.values(), key=len)[-KNOWN_GROWTHS:]
        return tuple(kept)

    @property
    def is_released(self) -> bool:
        """Whether the pipeline was deleted: the row keeps its epoch, version and clock, and nothing else."""
        return self.owner == NO_OWNER

    def is_held_as(self, other: FenceRow) -> bool:
        """Return whether both rows are the same change: all that a change sets but times of day agree."""
        return self._change_identity() == other._change_identity()

    def _change_identity(self) -> tuple[object, ...]:
        return (
            self.epoch, self.version, self.driver, self.owner, self.clock, self.offsets, self.planned,
            self.checkpoint, self.planned_log,
        )  # fmt: skip

    @property
    def write_timestamp(self) -> int:
        """The `USING TIMESTAMP` of output written by the batch that starts from this row, in µs."""
        return self.clock + 1


def _by_topic(*barriers: Mapping[str, int]) -> dict[str, list[dict[str, int]]]:
    """Return what barriers have of each topic, in their order."""
    found: dict[str, list[dict[str, int]]] = {}
    for barrier in barriers:
        of_topic: dict[str, dict[str, int]] = {}
        for key, end in barrier.items():
            of_topic.setdefault(split_offset_key(key)[0], {})[key] = end
        for topic, ends in of_topic.items():
            found.setdefault(topic, []).append(ends)
    return found
