"""Tickets as numbers of a list.

Who may hold a ticket is not what the histories are about, and signed ones took a sixth of their time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from fencepost.state.webhdfs.authentication import TICKET_LIFE, Keys, NotAuthentic, Ticket, TicketExpired

T = TypeVar("T")


@dataclass(slots=True)
class Tickets:
    """The tickets of one history, with when each expires. The methods are those of `Keys`."""

    issued: list[tuple[Ticket, float]] = field(default_factory=list)

    def places(self) -> list[tuple[object, str, object]]:
        """Return what is put in the place of what signs tickets."""

        def ticket(keys: Keys, ticket: Ticket) -> str:  # functions, so that they are bound as methods are
            self.issued.append((ticket, keys._now() + TICKET_LIFE))
            return str(len(self.issued) - 1)

        def opened(keys: Keys, value: str, kind: type[T]) -> T:
            found, until = self.issued[int(value)]
            if not isinstance(found, kind):
                raise NotAuthentic("the ticket is for something else")
            if keys._now() > until:
                raise TicketExpired("a ticket expired", ticket=found)
            return found

        places: list[tuple[Any, str, object]] = [(Keys, "ticket", ticket), (Keys, "opened", opened)]
        return places
