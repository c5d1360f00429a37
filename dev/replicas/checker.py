"""Holds what clients saw against what the fence promises; knows nothing of how the fence is built.

Every change of the row moves its version by one, so the versions that were seen give the row's whole history, and each
promise is a statement about that list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from fencepost.fence import FenceRow
from replicas.seen_requests import Answer, Call, Record, Write


def violations(record: Record, final: FenceRow | None) -> list[str]:
    """Return each promise that does not hold, as a sentence; `final` is the row that a read returned at the end."""
    found = list(_ambiguous(record.calls))
    if found:
        return found
    chain = history(record.calls)
    requests = _requests(record.calls)
    return [
        *_gaps(chain, final),
        *_unasked(chain, requests),
        *_refused(chain, requests),
        *_lost(chain, record.promised),
        *_committers(chain),
        *_moves(chain),
        *_real_time(record.calls),
    ]


def wrong_output(record: Record, final: FenceRow, stored: Mapping[int, str]) -> list[str]:
    """Return the committed offsets whose stored value is not the one that the committed attempt wrote.

    `stored` maps an offset to the value that the output table holds.
    """
    chain = history(record.calls)
    committed = _committed_values(chain, record.writes)
    return [
        f"offset {offset}: the table holds {stored.get(offset)!r}, the commit stands for {value!r}"
        for offset, value in sorted(committed.items())
        if offset < final.offsets.get(PARTITION, 0) and stored.get(offset) != value
    ]


PARTITION = "topic/0"
"""The one partition that the clients read."""


def history(calls: Sequence[Call]) -> list[FenceRow]:
    """Return the rows that were seen or acknowledged, one for each version, in order."""
    return [rows[0] for _, rows in sorted(_by_version(calls).items())]


def _by_version(calls: Sequence[Call]) -> dict[int, list[FenceRow]]:
    """Return the different rows of each version that were read or acknowledged."""
    found: dict[int, list[FenceRow]] = {}
    for row in _evidence(calls):
        rows = found.setdefault(row.version, [])
        if not any(row.is_held_as(other) for other in rows):
            rows.append(row)
    return found


def _evidence(calls: Sequence[Call]) -> Iterator[FenceRow]:
    for call in calls:
        if call.answer in {Answer.SEEN, Answer.APPLIED} and call.after is not None:
            yield call.after
        if call.answer is Answer.APPLIED and call.before is not None:
            yield call.before


def _ambiguous(calls: Sequence[Call]) -> Iterator[str]:
    for version, rows in sorted(_by_version(calls).items()):
        if len(rows) > 1:
            yield f"version {version} was {len(rows)} different rows: {'; '.join(map(_short, rows))}"


def _gaps(chain: Sequence[FenceRow], final: FenceRow | None) -> Iterator[str]:
    versions = [row.version for row in chain]
    if versions and versions[0] != 0:
        yield f"the history begins at version {versions[0]}"
    yield from (
        f"no row of the versions between {one} and {other}" for one, other in pairwise(versions) if other > one + 1
    )
    if chain and (final is None or not final.is_held_as(chain[-1])):
        yield f"the row at the end is {_short(final)}, and {_short(chain[-1])} was seen before"


def _requests(calls: Sequence[Call]) -> dict[int, list[Call]]:
    """Return the changes that were asked for, by the version that they make."""
    found: dict[int, list[Call]] = {}
    for call in calls:
        if call.answer is not Answer.SEEN and call.after is not None:
            found.setdefault(call.after.version, []).append(call)
    return found


def _unasked(chain: Sequence[FenceRow], requests: Mapping[int, Sequence[Call]]) -> Iterator[str]:
    before: FenceRow | None = None
    for row in chain:
        if not any(_is(call.after, row) and _is(call.before, before) for call in requests.get(row.version, [])):
            yield f"the change from {_short(before)} to {_short(row)} was requested by no client"
        before = row


def _refused(chain: Sequence[FenceRow], requests: Mapping[int, Sequence[Call]]) -> Iterator[str]:
    """Yield changes that are in the history although every request for them was refused."""
    for row in chain:
        answers = {call.answer for call in requests.get(row.version, []) if _is(call.after, row)}
        if answers == {Answer.REFUSED}:
            yield f"{_short(row)} was refused to each client that asked for it, and is in the history"


def _lost(chain: Sequence[FenceRow], promised: Sequence[FenceRow]) -> Iterator[str]:
    there = {row.version: row for row in chain}
    for row in promised:
        if not _is(there.get(row.version), row):
            yield f"the acknowledged {_short(row)} is lost: version {row.version} is {_short(there.get(row.version))}"


def _committers(chain: Sequence[FenceRow]) -> Iterator[str]:
    drivers: dict[int, set[str]] = {}
    for row in chain:
        if row.driver is not None:
            drivers.setdefault(row.epoch, set()).add(row.driver)
    for epoch, names in sorted(drivers.items()):
        if len(names) > 1:
            yield f"epoch {epoch} was held by {len(names)} drivers: {', '.join(sorted(names))}"


def _moves(chain: Sequence[FenceRow]) -> Iterator[str]:
    for before, after in pairwise(chain):
        if after.epoch < before.epoch:
            yield f"the epoch moved back: {_short(before)}, then {_short(after)}"
        if after.clock < before.clock:
            yield f"the clock moved back: {_short(before)}, then {_short(after)}"
        moved_back = any(after.offsets.get(key, at) < at for key, at in before.offsets.items())
        if moved_back and after.driver is not None:
            yield f"a driver moved the offsets back: {_short(before)}, then {_short(after)}"


def _real_time(calls: Sequence[Call]) -> Iterator[str]:
    """Yield answers that are older than one that was complete before their request began."""
    known = sorted(
        (call for call in calls if call.answer in {Answer.SEEN, Answer.APPLIED} and call.after is not None),
        key=lambda call: call.ended,
    )
    newest: Call | None = None
    complete = iter(known)
    upcoming = next(complete, None)
    for call in sorted(known, key=lambda call: call.began):
        while upcoming is not None and upcoming.ended < call.began:
            if newest is None or _version(upcoming) > _version(newest):
                newest = upcoming
            upcoming = next(complete, None)
        if newest is not None and _version(call) < _version(newest):
            yield (
                f"{call.client} got {_short(call.after)} at {call.began:.3f}, after {newest.client} had got"
                f" {_short(newest.after)} at {newest.ended:.3f}"
            )


def _committed_values(chain: Sequence[FenceRow], writes: Sequence[Write]) -> dict[int, str]:
    """Return, for each offset, the value that the last batch which committed it wrote."""
    by_begin: dict[int, list[Write]] = {}
    for write in writes:
        by_begin.setdefault(write.row.version, []).append(write)
    found: dict[int, str] = {}
    for before, after in pairwise(chain):
        start, until = before.offsets.get(PARTITION, 0), after.offsets.get(PARTITION, 0)
        found |= {
            write.offset: write.value
            for write in by_begin.get(before.version, [])
            if write.row.is_held_as(before) and start <= write.offset < until
        }
    return found


def _version(call: Call) -> int:
    return call.after.version if call.after is not None else -1


def _is(row: FenceRow | None, other: FenceRow | None) -> bool:
    return row is other if row is None or other is None else row.is_held_as(other)


def _short(row: FenceRow | None) -> str:
    if row is None:
        return "no row"
    return f"(epoch {row.epoch}, version {row.version}, driver {row.driver}, offsets {dict(row.offsets)})"
