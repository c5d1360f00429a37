"""What the operator asks of `fencepost purge`, and what that reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Self

import msgspec

from fencepost.contract.codec import ContractError, decode, encode

PURGE_FILE: Final = "purge.json"
"""Beside the run's configuration, in the same mounted ConfigMap."""
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeRequest:
    """Which output is meant: `ranges` maps 'topic/partition' to the offsets [start, until) of its records.

    `timestamp` is the write timestamp of the deletion, in µs: every row with one up to it goes.  None only counts.
    `committed` is the write timestamp of the last committed batch, 0 without one.
    """

    ranges: Mapping[str, tuple[int, int]]
    timestamp: int | None = None
    committed: int = 0

    def to_json(self) -> str:
        """Return the JSON of PURGE_FILE."""
        return encode(self)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote. Raises ContractError."""
        return decode(cls, text, PURGE_FILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeReport:
    """What was found: `rows` before anything was deleted, `left` afterwards, and how many `seconds` it took."""

    rows: _Count
    left: _Count
    seconds: Annotated[float, msgspec.Meta(ge=0, le=2**63 - 1)]

    def to_json(self) -> str:
        """Return the JSON for the termination log."""
        return encode(self)

    @classmethod
    def from_json(cls, text: str) -> Self | None:
        """Return the report in a termination log, None without one: the pod can write anything there."""
        try:
            return decode(cls, text, "the report")
        except ContractError:
            return None
