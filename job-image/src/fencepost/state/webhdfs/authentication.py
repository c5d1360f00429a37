"""Who may ask: a header that the name service checks, and tickets that its redirects carry to a data service.

Hadoop's client adds no header whose value is ours, but one whose name is ours: the header against cross-site requests,
`dfs.webhdfs.rest-csrf.custom-header`.  So the name is the secret.  It is a setting of Spark's, which reaches executors
over their encrypted connection, and it contains the word "secret": Spark redacts it in its pages and event log.  It is
in no URL, since Java puts those into messages of exceptions, and Spark puts a checkpoint's location into plans.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Final, TypeAlias, TypeVar

from fencepost.fence.errors import FenceClockSkew

HEADER_PREFIX: Final = "x-fencepost-secret-"
TICKET_LIFE: Final = 3600.0
"""Seconds. A ticket is used at once, so only nodes whose clocks differ by more see one that has expired."""


class NotAuthentic(Exception):
    """The header or the ticket is missing, forged or made for something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadTicket:
    """Allows one file to be stored, and says which name service lists it then: 'host:port'.

    `patience` is for how many seconds a request to the database is repeated.  The driver says it, because it follows
    from how long its run may stand still.
    """

    file: str
    report_to: str
    patience: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTicket:
    """Allows one file to be read, and says which name service receives the report of a failure: 'host:port'.

    `location` is the checkpoint's where the file is an operator's metadata; see `operator_metadata`.  `patience` is as
    for an upload.
    """

    file: str
    length: int
    report_to: str
    patience: float
    location: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTicket:
    """States that all chunks of a file are durable."""

    file: str
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTicket:
    """States why a request failed at a data service: the class of the error and its message."""

    error: str
    message: str


Ticket: TypeAlias = UploadTicket | ReadTicket | StoredTicket | FailedTicket


class TicketExpired(FenceClockSkew):
    """A ticket of ours has expired. `ticket` is None where another process reports it."""

    def __init__(self, message: str, *, ticket: Ticket | None = None) -> None:
        super().__init__(message, remedy="Correct the clocks of the nodes of the driver and its workers (see NTP).")
        self.ticket = ticket


T = TypeVar("T", UploadTicket, ReadTicket, StoredTicket, FailedTicket)


class Keys:
    """What processes of one generation derive from its secret."""

    def __init__(self, secret: str, *, now: Callable[[], float] = time.time) -> None:
        self._secret = secret.encode()
        self._now = now

    def header(self, scope: str) -> str:
        """Return the name of the header of a scope: a pipeline and an epoch."""
        return HEADER_PREFIX + self._mac(f"header {scope}".encode())[:32]

    def check_header(self, headers: Mapping[str, str], scope: str) -> None:
        """Raise NotAuthentic unless the header of the scope is among them. Names are in lower case."""
        expected = self.header(scope)
        if not any(hmac.compare_digest(name.encode(), expected.encode()) for name in headers):
            raise NotAuthentic("the request does not belong to this run")

    def ticket(self, ticket: Ticket) -> str:
        """Return a ticket as the value of a URL's parameter."""
        fields = {"kind": type(ticket).__name__, "until": self._now() + TICKET_LIFE, **asdict(ticket)}
        text = base64.urlsafe_b64encode(json.dumps(fields).encode()).rstrip(b"=")
        return f"{text.decode()}.{self._mac(b'ticket ' + text)}"

    def opened(self, value: str, kind: type[T]) -> T:
        """Return the ticket of this kind. Raises NotAuthentic, TicketExpired."""
        text, _, mac = value.partition(".")
        if not hmac.compare_digest(mac.encode(), self._mac(b"ticket " + text.encode()).encode()):
            raise NotAuthentic("the ticket is not ours")
        fields = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if fields.pop("kind") != kind.__name__:
            raise NotAuthentic("the ticket is for something else")
        late, found = self._now() - fields.pop("until"), kind(**fields)
        if late > 0:
            raise TicketExpired(
                f"a ticket expired {late:.0f} s ago by the clock of {os.uname().nodename}: tickets are used within"
                " seconds, so the clocks of two nodes of the pipeline are an hour apart",
                ticket=found,
            )
        return found

    def _mac(self, message: bytes) -> str:
        return hmac.digest(self._secret, b"fencepost webhdfs " + message, hashlib.sha256).hex()
