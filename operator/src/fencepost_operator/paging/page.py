"""One incident as its receivers are told it, and what is known of the telling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from fencepost_operator.api import ObjectKey, PageSent, PageState


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One incident of a pipeline.  All text is bounded and on one line each.

    `dedup_key` stays the same for a reason of a pipeline: whoever receives a page twice can see that.  `details` has
    what a person reads first, in that order.  `sent` is what the status says of who was told.
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
    def wanted(self) -> PageState:
        """What each receiver is to be told."""
        return PageState.OPENED if self.resolved_at is None else PageState.RESOLVED

    @property
    def shared_key(self) -> str:
        """The key under which incidents of this reason in this namespace are told together."""
        prefix = self.dedup_key.removesuffix(f"{self.key}/{self.reason}")
        return f"{prefix}{self.key.namespace}/*/{self.reason}"

    @property
    def is_urgent(self) -> bool:
        """Whether it must wake the person on call."""
        return self.severity == "critical" and self.resolved_at is None

    def is_reported_to(self, receiver: str) -> bool:
        """Whether the status says that the receiver knows how it is."""
        return any(sent.receiver == receiver and sent.outcome is self.wanted for sent in self.sent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A receiver was told about the incident of `reason` that began at `opened_at`."""

    reason: str
    opened_at: datetime
    sent: PageSent


@dataclass(frozen=True, slots=True, kw_only=True)
class PagingProblem:
    """Why a receiver of the pipeline's namespace is not told; the message names Secret, key and line."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PagingFacts:
    """What the pager knows about one pipeline. `receivers` are ids, None while they are not known."""

    receivers: tuple[str, ...] | None = ()
    critical_only: frozenset[str] = frozenset()
    """Those of them that are not told of warnings."""
    receipts: tuple[Receipt, ...] = ()
    problems: tuple[PagingProblem, ...] = ()


class Pager(Protocol):
    """Tells receivers, beside the loops: nothing here waits."""

    def facts(self, key: ObjectKey) -> PagingFacts:
        """Return who is to be told of a pipeline, and who was."""
        ...

    def tell(self, key: ObjectKey, pages: Sequence[Page]) -> None:
        """Replace what there is to tell of a pipeline; all of it is in its status."""
        ...

    def forget(self, key: ObjectKey) -> None:
        """Drop what there was to tell of a pipeline that is gone."""
        ...


class NoPager:
    """Tells nobody."""

    def facts(self, key: ObjectKey) -> PagingFacts:  # noqa: ARG002 - a port
        """Return that nobody is to be told."""
        return PagingFacts()

    def tell(self, key: ObjectKey, pages: Sequence[Page]) -> None:
        """Do nothing."""

    def forget(self, key: ObjectKey) -> None:
        """Do nothing."""
