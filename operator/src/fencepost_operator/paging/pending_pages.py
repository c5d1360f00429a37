"""The pages of one pipeline until its status records which receivers have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from fencepost_operator.api import PageSent
from fencepost_operator.paging.page import Page, PageId, Receipt


@dataclass(slots=True)
class PendingPages:
    """`pages` have all receipts, `receipts` are those that the status lacks."""

    pages: tuple[Page, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    _since: dict[PageId, float] | None = None
    """Since when this process has had each page, by its monotonic clock; None before the first ones."""

    def record(self, pages: Sequence[Page], now: datetime, monotonic: float) -> None:
        """Replace the pages by those of a status.

        A page that a silence deferred for hours waits from the end of the silence on.  One that an operator finds when
        it starts has waited since it was recorded.
        """
        if (before := self._since) is None:
            before = {page.id: monotonic - max(0.0, (now - page.recorded_at).total_seconds()) for page in pages}
        self._since = {page.id: before.get(page.id, monotonic) for page in pages}
        self.receipts = tuple(receipt for receipt in self.receipts if any(map(receipt.is_missing_in, pages)))
        self.pages = tuple(_with(self.receipts, page) for page in pages)

    def deliver(self, page: Page, receiver: str, now: datetime) -> bool:
        """Note that a receiver has a page; return whether the status has to record that."""
        sent = PageSent(receiver=receiver, at=now.replace(microsecond=0), outcome=page.wanted)
        receipt = Receipt(reason=page.reason, opened_at=page.opened_at, sent=sent)
        if not any(map(receipt.is_missing_in, self.pages)):
            return False  # an alert that is repeated, or an incident that the status no longer has
        self.receipts = (*self.receipts, receipt)
        self.pages = tuple(_with([receipt], each) for each in self.pages)
        return True

    def since(self, page: Page) -> float:
        """Return since when one of `pages` waits, by the monotonic clock."""
        return (self._since or {})[page.id]


def _with(receipts: Sequence[Receipt], page: Page) -> Page:
    missing = (receipt.sent for receipt in receipts if receipt.is_missing_in(page))
    return replace(page, sent=(*page.sent, *missing))
