"""What the API server did not keep of a status: a CRD that is older than the operator prunes fields that it lacks, and
what it refuses is not written.

A decision that does not find what it wrote comes to the same again: it would write at each pass, and whatever counts
from a moment in such a field would never end.  So the operator goes on from what it wrote, for as long as the object
still has what became of that, and writes it again now and then, until the CRD is brought up to date.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar

from fencepost_operator.api import ObjectKey, Pipeline, Rewind, RewindStatus, Status
from fencepost_operator.api.codec import encode

AGAIN: Final = timedelta(minutes=5)
"""After which the same is written again: the CRD may be another one by then."""
MOST: Final = 10_000
"""Objects that are remembered, the newest: nobody says that one is gone."""

K = TypeVar("K", Pipeline, Rewind)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gap:
    """The status that was written of one object, and what was left of it."""

    uid: str
    wanted: Any
    kept: Any
    at: datetime


@dataclass(slots=True)
class PrunedStatuses(Generic[K]):
    """The statuses of one kind that were not kept. What is here is lost with the process, and may be."""

    _gaps: dict[ObjectKey, _Gap] = field(default_factory=dict)

    def note(self, written: K, wanted: Status | RewindStatus, now: datetime) -> tuple[str, ...]:
        """Note an object as a write left it; return the fields that it lacks, unless something was missing before."""
        before = self._gaps.pop(written.key, None)
        if written.status == wanted:
            return ()
        self._gaps[written.key] = _Gap(uid=written.uid, wanted=wanted, kept=written.status, at=now)
        if len(self._gaps) > MOST:
            del self._gaps[next(iter(self._gaps))]
        if before is not None and before.uid == written.uid:
            return ()
        return tuple(dict.fromkeys(_missing(encode(wanted), encode(written.status), "status")))

    def restored(self, found: K) -> K:
        """Return the object with the status that was written, if it still has what was left of that."""
        gap = self._gaps.get(found.key)
        if gap is None or (gap.uid, gap.kept) != (found.uid, found.status):
            return found
        return replace(found, status=gap.wanted)

    def as_kept(self, found: K) -> K:
        """Return the object with the status that the API server has."""
        gap = self._gaps.get(found.key)
        if gap is None or (gap.uid, gap.wanted) != (found.uid, found.status):
            return found
        return replace(found, status=gap.kept)

    def is_due(self, found: K, now: datetime) -> bool:
        """Return whether the status is to be written once more although it has not changed."""
        gap = self._gaps.get(found.key)
        return gap is not None and now - gap.at >= AGAIN

    def forget(self, key: ObjectKey) -> None:
        """Drop what is known of an object that is gone."""
        self._gaps.pop(key, None)


def _missing(wanted: Any, kept: Any, path: str) -> Iterator[str]:  # noqa: ANN401 - JSON
    """Yield the fields that are not there, or are read as their default for that; `[]` is an item of a list."""
    if isinstance(wanted, Mapping):
        there = kept if isinstance(kept, Mapping) else {}
        for name, part in wanted.items():
            if name not in there:
                yield f"{path}.{name}"
            else:
                yield from _missing(part, there[name], f"{path}.{name}")
    elif isinstance(wanted, list) and isinstance(kept, list) and len(wanted) == len(kept):
        for part, left in zip(wanted, kept, strict=True):
            yield from _missing(part, left, f"{path}[]")
    elif wanted != kept:
        yield path
