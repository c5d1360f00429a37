"""Records that Kafka no longer has, and what a user accepts: typed, bounded, and named by a hash of its content.

A driver that finds a loss records it and ends with exit code 52; the operator reports it and records the acceptance;
the next driver applies it at its claim.  Offsets are the next to read; a range is [start, until).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from fencepost.contract.offsets import split_offset_key
from fencepost.contract.reasons import Reason

LOSS_ID: Final = re.compile(r"[0-9a-f]{12}")
REPLACED: Final = frozenset({Reason.TOPIC_DELETED, Reason.TOPIC_RECREATED})
"""Losses of whole topics: their ranges are estimates."""
LOSSES: Final = frozenset({Reason.OFFSET_OUT_OF_RANGE, Reason.LOG_TRUNCATED, *REPLACED})

EARLIEST: Final = "earliest"
ABANDON: Final = "abandon"
LONGEST_CHOICE: Final = 65_536
"""Characters of a choice: a map of a thousand partitions takes half of it."""
_START: Final = re.compile(r"([A-Za-z0-9._-]{1,249}/(?:0|[1-9][0-9]{0,9})):(0|[1-9][0-9]{0,17})")


@dataclass(frozen=True, slots=True)
class TopicChange:
    """A topic's id in the fence row, and in Kafka when the loss was found: None where Kafka has no such topic."""

    old_id: str
    new_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """All that one look at Kafka showed to be lost for one reason.

    `ranges` maps 'topic/partition' to the offsets that are gone.  For OffsetOutOfRange reading continues where a range
    ends, for LogTruncated where it begins.  For a topic that was deleted or recreated a range reaches from the
    committed offset to the end that the driver last saw: an estimate, possibly empty.
    `topics` has the id of each topic of the ranges.  `committed_ms` is the fence row's last commit (see `commit_ms`):
    after another commit, the same offsets are another loss.
    """

    reason: Reason
    ranges: Mapping[str, tuple[int, int]]
    topics: Mapping[str, TopicChange] = field(default_factory=dict)
    committed_ms: int = 0

    @property
    def id(self) -> str:
        """Return 12 hexadecimal digits: the hash of everything in it."""
        content = [
            str(self.reason),
            sorted((key, *bounds) for key, bounds in self.ranges.items()),
            sorted((topic, change.old_id, change.new_id or "") for topic, change in self.topics.items()),
            self.committed_ms,
        ]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]

    @property
    def records(self) -> int:
        """Return the offsets in all ranges; at least the number of records."""
        return sum(until - start for start, until in self.ranges.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Who accepted a loss, when, and how to continue; see `choice_problem`."""

    by: str
    choice: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedLoss:
    """A loss as it is recorded: the epoch of the last run that found it, and its acceptance when there is one."""

    loss: Loss
    epoch: int
    at: datetime
    acceptance: Acceptance | None = None


def commit_ms(committed_at: datetime | None) -> int:
    """Return a fence row's `committed_at` in ms since 1970, as precise as Cassandra keeps it; 0 before any commit."""
    return 0 if committed_at is None else int(committed_at.timestamp() * 1000 + 1e-6)


def choice_problem(loss: Loss, choice: str) -> str:
    """Return why a loss cannot be accepted with this choice, '' when it can.

    A recreated topic is continued at `earliest`, at a map 'topic/partition:offset,…', or not (`abandon`); a deleted one
    can only be abandoned; a truncated log leaves no choice.  Of what retention deleted, '' accepts exactly the ranges
    that were reported, and `earliest` whatever is deleted of their topics before it is read, up to the ends that the
    log has when the next run claims.
    """
    if loss.reason is Reason.OFFSET_OUT_OF_RANGE:
        return "" if choice in {"", EARLIEST} else "takes continue=earliest or none"
    if loss.reason not in REPLACED:
        return "" if not choice else "takes no 'continue=': reading continues at the first record after the loss"
    if loss.reason is Reason.TOPIC_DELETED:
        return "" if choice == ABANDON else "needs continue=abandon: the topic does not exist"
    if choice in {EARLIEST, ABANDON}:
        return ""
    return _map_problem(loss, choice)


def starts_of(choice: str) -> dict[str, int]:
    """Return the offsets of a choice that is a map; empty for any other one."""
    found = (_START.fullmatch(part) for part in choice.split(","))
    return {match[1]: int(match[2]) for match in found if match}


def _map_problem(loss: Loss, choice: str) -> str:
    if not choice:
        return "needs continue=earliest, continue=TOPIC/PARTITION:OFFSET,… or continue=abandon"
    parts = choice.split(",") if len(choice) <= LONGEST_CHOICE else []
    for part in parts:
        found = _START.fullmatch(part)
        if found is None:
            return f"continue= has {part[:80]!r} where TOPIC/PARTITION:OFFSET belongs"
        if split_offset_key(found[1])[0] not in loss.topics:
            return f"continue= names {found[1]!r}, and that topic is not lost"
    return "" if parts else "continue= is too long"
