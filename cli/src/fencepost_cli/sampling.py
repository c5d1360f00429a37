"""Which offsets a sample has: the last committed ones of each partition, or those around one record."""

from __future__ import annotations

from fencepost.batch import Range, Watermarks
from fencepost.contract import offset_key, split_offset_key
from fencepost.driver.planning.plan import shares
from fencepost.fence import FenceRow
from fencepost_cli.errors import CliError


def newest(row: FenceRow | None, log: Watermarks, offsets: int) -> list[Range]:
    """Return the ranges that end at the committed offsets and have `offsets` together, of each partition the same.

    What a short partition leaves goes to the others. Of a topic that the fence row does not know, or knows by another
    id, the ranges end where the log ends.
    """
    ends = {key: _end(key, row, log) for key in log.ends}
    held = {key: end - log.begins[key] for key, end in ends.items() if end > log.begins[key]}
    granted = shares(held, min(offsets, sum(held.values())))
    found = [Range(*split_offset_key(key), ends[key] - share, ends[key]) for key, share in granted.items() if share]
    return sorted(found)


def around(place: tuple[str, int, int], log: Watermarks, offsets: int) -> list[Range]:
    """Return one range with the record at a place in its middle, as far as the log has it. Raises CliError."""
    topic, partition, offset = place
    key = offset_key(topic, partition)
    if key not in log.begins:
        raise CliError(
            f"--around {key}@{offset}: the pipeline reads no partition {key}",
            remedy=f"choose one of {', '.join(sorted(log.begins, key=split_offset_key)[:10])}",
        )
    begin, end = log.begins[key], log.ends[key]
    if not begin <= offset < end:
        raise CliError(
            f"--around {key}@{offset}: Kafka has the offsets [{begin}, {end}) of {key}",
            remedy="choose an offset that it has",
        )
    start = max(begin, min(offset - offsets // 2, end - offsets))
    return [Range(topic, partition, start, min(end, start + offsets))]


def _end(key: str, row: FenceRow | None, log: Watermarks) -> int:
    topic, _ = split_offset_key(key)
    if row is None or row.topic_ids.get(topic) != log.topic_ids.get(topic):
        return log.ends[key]
    return min(row.offsets.get(key, 0), log.ends[key])
