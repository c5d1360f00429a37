"""Which pages one message has: most have one of their own, many of a kind share one.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fencepost_operator.api import PageState
from fencepost_operator.paging.page import Page, PageId
from fencepost_operator.paging.receivers import Kind

MANY: Final = 5
"""Pages of a kind that share a message; two do where there are more messages than may be sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Pages in one message: of one namespace, reason and state, or any for Alertmanager.

    `is_last`: it reports the end of an incident, and none of its reason is open in the namespace any more.
    """

    pages: tuple[Page, ...]
    is_last: bool = False

    @property
    def is_urgent(self) -> bool:
        """Whether it must wake the person on call."""
        return any(page.is_urgent for page in self.pages)

    @property
    def is_end(self) -> bool:
        """Whether it reports that incidents are over."""
        return self.pages[0].resolved_at is not None


def notices_of(kind: Kind, fresh: Sequence[Page], pages: Iterable[Page], *, most: int) -> list[Notice]:
    """Return messages for the fresh ones of a namespace's pages, in their order; `most` messages may be sent now."""
    found = _grouped(kind, fresh, MANY)
    if len(found) > most:
        found = _grouped(kind, fresh, 2)
    is_open = {page.reason for page in pages if page.resolved_at is None}
    last = {notice.pages[0].reason: notice for notice in found if notice.is_end}
    ended = [notice for reason, notice in last.items() if reason not in is_open]
    return [replace(notice, is_last=any(notice is each for each in ended)) for notice in found]


def _grouped(kind: Kind, fresh: Sequence[Page], many: int) -> list[Notice]:
    counts = Counter((page.reason, page.wanted) for page in fresh)
    groups: dict[PageId | tuple[str, PageState], list[Page]] = {}
    for page in fresh:
        sort = page.reason, page.wanted
        can_share = kind is Kind.APPRISE or page.resolved_at is None  # PagerDuty ends an incident only by its own key
        groups.setdefault(sort if can_share and counts[sort] >= many else page.id, []).append(page)
    return [Notice(pages=tuple(each)) for each in groups.values()]
