"""What collections leave behind: a file or an id that nothing reaches is gone once the grace period is over."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from uuid import UUID

from fencepost.state.collector import GRACE


@dataclass(slots=True)
class Growth:
    """Since when a collection that ended well has seen each id that nothing reaches, in seconds."""

    seen: dict[UUID, float] = field(default_factory=dict)

    def left(self, unreached: Collection[UUID], there: Collection[UUID], *, began: float, ended: float) -> set[UUID]:
        """Return what a collection has left that was due; `unreached` are those when it began."""
        due = {one for one in unreached if self.seen.get(one, math.inf) <= began - GRACE}
        self.seen = {one: self.seen.get(one, ended) for one in unreached}
        return due & set(there)
