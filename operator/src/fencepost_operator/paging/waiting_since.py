"""Since when each page waits to be sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from fencepost_operator.api import ObjectKey
from fencepost_operator.paging.page import Page


@dataclass(slots=True)
class WaitingSince:
    """When this process was first asked to send each page.

    A page that a silence deferred for hours is late only from the end of the silence on. A page that an operator finds
    in the status when it starts has waited since it was recorded.
    """

    _since: dict[ObjectKey, dict[tuple[str, datetime, str], datetime]] = field(default_factory=dict)

    def note(self, key: ObjectKey, pages: Sequence[Page], now: datetime) -> None:
        """Replace the pages of a pipeline."""
        before = self._since.get(key)
        self._since[key] = {
            _state(page): _recorded(page) if before is None else before.get(_state(page), now) for page in pages
        }

    def since(self, page: Page) -> datetime:
        """Return since when a page waits."""
        return self._since.get(page.key, {}).get(_state(page)) or _recorded(page)

    def forget(self, key: ObjectKey) -> None:
        """Drop a pipeline that is gone."""
        self._since.pop(key, None)


def _state(page: Page) -> tuple[str, datetime, str]:
    return page.reason, page.opened_at, page.wanted


def _recorded(page: Page) -> datetime:
    return page.resolved_at or page.opened_at
