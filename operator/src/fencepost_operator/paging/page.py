"""One incident as its receivers get it, and which of them have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, TypeAlias

from fencepost_operator.api import ObjectKey, PageSent, PageState, Reported

PageId: TypeAlias = tuple[str, PageState]
"""Dedup key, and the state that is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Reported):
    """One incident of a pipeline.  All text is bounded and on one line each.

    `dedup_key` identifies the incident: a page that arrives twice is recognized, and an end that arrives late ends no
    later incident of the reason.  `details` are in the order of reading.  `sent` are the receivers that have it.
    """

    key: ObjectKey
    dedup_key: str
    reason: str
    severity: str
    summary: str
    opened_at: datetime
    resolved_at: datetime | None = None
    details: Mapping[str, str] = field(default_factory=dict)
    runbook: str = ""
    sent: tuple[PageSent, ...] = ()

    @property
    def id(self) -> PageId:
        """What identifies the page among those of all pipelines."""
        return self.dedup_key, self.wanted

    @property
    def recorded_at(self) -> datetime:
        """When the status recorded the state."""
        return self.resolved_at or self.opened_at

    @property
    def shared_key(self) -> str:
        """The key under which incidents of this reason in this namespace share a message."""
        prefix, _, _ = self.dedup_key.partition(f"{self.key}/{self.reason}")
        return f"{prefix}{self.key.namespace}/*/{self.reason}"

    @property
    def is_urgent(self) -> bool:
        """Whether it must wake the person on call."""
        return self.severity == "critical" and self.resolved_at is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A receiver has a page about the incident of `reason` that began at `opened_at`."""

    reason: str
    opened_at: datetime
    sent: PageSent

    def is_missing_in(self, page: Page) -> bool:
        """Whether the page is of the incident, and lacks the receipt."""
        is_same = (page.reason, page.opened_at) == (self.reason, self.opened_at)
        known = {(sent.receiver, sent.outcome) for sent in page.sent}
        return is_same and (self.sent.receiver, self.sent.outcome) not in known


@dataclass(frozen=True, slots=True, kw_only=True)
class PagingProblem:
    """Why a receiver of the pipeline's namespace gets no pages; the message names Secret, key and line."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PagingFacts:
    """What the pager knows about one pipeline. `receivers` are ids, None while they are not known."""

    receivers: tuple[str, ...] | None = ()
    critical_only: frozenset[str] = frozenset()
    """Those of them that get no warnings."""
    receipts: tuple[Receipt, ...] = ()
    problems: tuple[PagingProblem, ...] = ()


class Pager(Protocol):
    """Sends pages concurrently with the loops: no method waits."""

    def facts(self, key: ObjectKey) -> PagingFacts:
        """Return the receivers of a pipeline, and which pages they have."""
        ...

    def set_pages(self, key: ObjectKey, pages: Sequence[Page]) -> None:
        """Replace the pages of a pipeline; all of them are in its status."""
        ...

    def forget(self, key: ObjectKey) -> None:
        """Drop the pages of a pipeline that is gone."""
        ...


class NoPager:
    """Sends nothing."""

    def facts(self, key: ObjectKey) -> PagingFacts:  # noqa: ARG002 - a port
        """Return no receivers."""
        return PagingFacts()

    def set_pages(self, key: ObjectKey, pages: Sequence[Page]) -> None:
        """Do nothing."""

    def forget(self, key: ObjectKey) -> None:
        """Do nothing."""
