"""The values of a fence row as a database returns them: any client with the account may have written others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any, Final

from fencepost.fence.errors import FenceRowInvalid
from fencepost.fence.figures import Figure
from fencepost.fence.row import LARGEST_CHECKPOINT, FenceRow
from fencepost.fence.sealed_epochs import CHECKSUM, unsealed

COLUMNS: Final = tuple(each.name for each in fields(FenceRow))
"""A column of the table for each field of the row."""
_LARGEST: Final = 2**63 - 1
_COUNTERS: Final = ("epoch", "version", "clock")
_FIGURES: Final = ("records", "duration_ms", "watermark", "state_bytes")
_COUNTS: Final = ("dead_letters", "late_rows", "output_token")
_OFFSETS: Final = (
    "offsets",
    "planned",
    "begun",
    "accepted_until",
    "leader_epochs",
    "epoch_starts",
    "growth_barrier",
    "log_ends",
    "record_times",
)
"""Maps of 'topic/partition' to a number."""
_KNOWN_FIGURES: Final = frozenset(Figure)
PARTITION: Final = re.compile(r"[A-Za-z0-9._-]{1,249}/(0|[1-9][0-9]{0,9})")
_IN_GROWTH: Final = re.compile(rf"(?P<partition>{PARTITION.pattern})@(?P<size>[1-9][0-9]{{0,9}})")
_RECORD: Final = re.compile(PARTITION.pattern + r"@(0|[1-9][0-9]{0,18})")
_SHOWN: Final = 60
"""Characters of a wrong value that a message shows."""


def fence_row(found: Any) -> FenceRow:  # noqa: ANN401 - a driver's named tuple
    """Return the row; a column that the table lacks has its default. Raises FenceRowInvalid, naming the column."""
    values = {name: getattr(found, name) for name in COLUMNS if hasattr(found, name)}
    for name in ("pipeline", "owner"):
        _check(name, values[name], isinstance(values[name], str), "a text")
    for name in ("driver", "code"):
        _check(name, values[name], values[name] is None or isinstance(values[name], str), "a text or null")
    for name in _COUNTERS:
        _check(name, values[name], _is_number(values[name]), "a number from 0")
    for name in values.keys() & {*_FIGURES}:
        _check(name, values[name], values[name] is None or _is_number(values[name]), "a number from 0, or null")
    for name in values.keys() & {*_COUNTS}:  # Cassandra has null for what was never set
        values[name] = 0 if values[name] is None else values[name]
        _check(name, values[name], _is_number(values[name]), "a number from 0, or null")
    _check_last_dead_letter(values.get("last_dead_letter"))
    for name in values.keys() & {"checkpoint", "planned_log"}:
        _check(name, values[name], is_checkpoint(values[name]), f"null, or at most {LARGEST_CHECKPOINT} bytes,")
    for name in values.keys() & {*_OFFSETS, "topic_ids"}:
        values[name] = _map(name, values[name])
    if "growths" in values:
        values["growths"] = _growths(values["growths"])
    if "figures" in values:
        values["figures"] = _figures(values["figures"])
    values["committed_at"] = _moment(values["committed_at"])
    row = FenceRow(**values)
    return replace(row, leader_epochs=unsealed(row.leader_epochs, row.offsets, row.topic_ids))


def is_checkpoint(value: object) -> bool:
    """Return whether a fence row or a snapshot may have this checkpoint."""
    return value is None or (isinstance(value, bytes) and len(value) <= LARGEST_CHECKPOINT)


def _check_last_dead_letter(last: object) -> None:
    is_right = last is None or (isinstance(last, str) and bool(_RECORD.fullmatch(last)))
    _check("last_dead_letter", last, is_right, "'topic/partition@offset' or null")


def _map(name: str, value: Any) -> dict[str, Any]:  # noqa: ANN401 - anything
    """Return a map's entries; Cassandra has null for an empty one."""
    entries = dict(value.items()) if isinstance(value, Mapping) else {}
    _check(name, value, value is None or isinstance(value, Mapping), "a map")
    for key, inside in entries.items():
        if name == "topic_ids":
            _check(name, key, isinstance(key, str), "a map of topics")
            _check(name, inside, isinstance(inside, str), "a map to texts")
        else:
            is_key = isinstance(key, str) and bool(PARTITION.fullmatch(key))
            is_seal = name == "leader_epochs" and key == CHECKSUM
            _check(name, key, is_key or is_seal, "a map of 'topic/partition'")
            _check(name, inside, _is_number(inside), "a map to numbers from 0")
    return entries


def flat(growths: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return `FenceRow.growths` as one map: the end of a partition under 'topic/partition@partitions of the growth'.

    A list of maps would let a hostile server announce millions of empty ones in a small answer.
    """
    return {f"{key}@{len(growth)}": end for growth in growths for key, end in growth.items()}


def _growths(value: Any) -> tuple[Mapping[str, int], ...]:  # noqa: ANN401 - anything
    """Return the maps that `flat` was given, by topic, those of fewer partitions first."""
    _check("growths", value, value is None or isinstance(value, Mapping), "a map")
    found: dict[tuple[str, int], dict[str, int]] = {}
    for key, end in (value or {}).items():
        match = _IN_GROWTH.fullmatch(key) if isinstance(key, str) else None
        _check("growths", key, match is not None, "a map of 'topic/partition@partitions'")
        _check("growths", end, _is_number(end), "a map to numbers from 0")
        if match is not None:
            topic, size = key.partition("/")[0], int(match["size"])
            found.setdefault((topic, size), {})[match["partition"]] = end
    for (_, size), growth in found.items():
        _check("growths", value, len(growth) == size, "each growth with all its partitions")
    return tuple(found[each] for each in sorted(found))


def _figures(value: Any) -> dict[str, int]:  # noqa: ANN401 - anything
    """Return the figures that this release knows: another one may write others."""
    _check("figures", value, value is None or isinstance(value, Mapping), "a map")
    found = {name: figure for name, figure in value.items() if name in _KNOWN_FIGURES} if value else {}
    for figure in found.values():
        _check("figures", figure, _is_number(figure), "a map to numbers from 0")
    return found


def _moment(value: Any) -> datetime | None:  # noqa: ANN401 - anything
    _check("committed_at", value, value is None or isinstance(value, datetime), "a timestamp or null")
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else None


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST


def _check(column: str, value: object, is_right: bool, wanted: str) -> None:
    if not is_right:
        # A list may be nested as deeply as its server likes.
        shown = repr(value)[:_SHOWN] if isinstance(value, (str, bytes, int, float)) else f"a {type(value).__name__}"
        shown = "null" if value is None else shown
        raise FenceRowInvalid(f"column {column} of the fence row holds {shown} where {wanted} belongs")
