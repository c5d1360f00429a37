"""A receiver of pages that outlives operators, and the pager of one operator, which forgets all when it dies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from fencepost_operator.api import ObjectKey, PageSent, PageState
from fencepost_operator.paging.page import Page, PagingFacts, Receipt
from simulation.failure import require
from simulation.world import SimulatedWorld

RECEIVER: Final = "operator/pagerduty/1"


@dataclass(slots=True)
class Inbox:
    """What the receiver knows: by key, what it got last. It gets no incident under two keys."""

    known: dict[str, PageState] = field(default_factory=dict)
    keys: dict[tuple[str, datetime], str] = field(default_factory=dict)
    """By reason, and when the incident began."""

    def take(self, page: Page) -> None:
        key = self.keys.setdefault((page.reason, page.opened_at), page.dedup_key)
        require(key == page.dedup_key, f"another key: {page.dedup_key}")
        self.known[page.dedup_key] = page.wanted

    def open(self) -> set[tuple[str, datetime]]:
        return {incident for incident, key in self.keys.items() if self.known[key] is PageState.OPENED}


@dataclass(slots=True)
class SimulatedPager:
    """Sends between two passes: an operator that dies in between has recorded a page, and sent nothing."""

    world: SimulatedWorld
    inbox: Inbox
    due: tuple[Page, ...] = ()
    receipts: dict[tuple[str, object, PageState], Receipt] = field(default_factory=dict)

    def facts(self, key: ObjectKey) -> PagingFacts:
        del key
        for page in self.due:
            mark = (page.reason, page.opened_at, page.wanted)
            if mark not in self.receipts and not page.is_reported_to(RECEIVER):
                self.inbox.take(page)
                sent = PageSent(receiver=RECEIVER, at=self.world.now, outcome=page.wanted)
                self.receipts[mark] = Receipt(reason=page.reason, opened_at=page.opened_at, sent=sent)
        return PagingFacts(receivers=(RECEIVER,), receipts=tuple(self.receipts.values()))

    def set_pages(self, key: ObjectKey, pages: Sequence[Page]) -> None:
        del key
        self.due = tuple(pages)
        current = {(page.reason, page.opened_at) for page in pages}
        self.receipts = {mark: receipt for mark, receipt in self.receipts.items() if mark[:2] in current}

    def forget(self, key: ObjectKey) -> None:
        del key
        self.due = ()
