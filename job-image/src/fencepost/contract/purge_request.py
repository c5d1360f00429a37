"""What the operator asks of `fencepost purge`, and what that reports. Standard library only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final, Self

from fencepost.contract.config import ContractError

PURGE_FILE: Final = "purge.json"
"""Beside the run's configuration, in the same mounted ConfigMap."""
_LARGEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeRequest:
    """Which output is meant: `ranges` maps 'topic/partition' to the offsets [start, until) of its records.

    `timestamp` is the write timestamp of the deletion, in µs: every row with one up to it goes.  None only counts.
    """

    ranges: Mapping[str, tuple[int, int]]
    timestamp: int | None = None

    def to_json(self) -> str:
        """Return the JSON of PURGE_FILE."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote. Raises ContractError."""
        try:
            raw = json.loads(text)
            ranges = {key: (int(start), int(until)) for key, (start, until) in raw["ranges"].items()}
            return cls(ranges=ranges, timestamp=raw["timestamp"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ContractError(f"{PURGE_FILE} cannot be read: {error!r}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeReport:
    """What was found: `rows` before anything was deleted, `left` afterwards, and how many `seconds` it took."""

    rows: int
    left: int
    seconds: float

    def to_json(self) -> str:
        """Return the JSON for the termination log."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self | None:
        """Return the report in a termination log, None without one: the pod can write anything there."""
        try:
            raw = json.loads(text)
            found = cls(rows=raw["rows"], left=raw["left"], seconds=raw["seconds"])
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        counts = all(type(count) is int and 0 <= count <= _LARGEST for count in (found.rows, found.left))
        is_time = type(found.seconds) in {int, float} and 0 <= found.seconds <= _LARGEST
        return found if counts and is_time else None
