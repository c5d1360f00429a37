"""One tree of errors. Adapters translate their vendor's errors into these; no other code catches a vendor's.

FencepostError
├── PortError            a call to the world failed; the effect of a write is unknown unless a subclass says otherwise
│   ├── Unreachable      no answer in time: wait and look again, assume nothing
│   ├── Denied           credentials or RBAC refuse: a user must fix it
│   ├── Rejected         the other side understood and refused: nothing was done
│   ├── Busy             a queue of the operator's own is too long: nothing was asked for, no server is to blame
│   └── NotLeading       this replica does not hold the lease, so it did not even ask: nothing was done
└── Conflict             another client wrote first (resourceVersion, epoch, version): observe again
"""

from __future__ import annotations

from typing import Final

from fencepost_operator.text import single_line

LIMIT: Final = 2000
"""Characters of a message. Messages quote what tenants and vendors wrote, and end in conditions and Events."""


class FencepostError(Exception):
    """Base of all errors of the operator. The message is one line of at most LIMIT characters."""

    def __init__(self, message: str = "") -> None:
        super().__init__(single_line(message, limit=LIMIT))


class PortError(FencepostError):
    """A call to the world failed.  `remedy` says what the user should do, in one sentence."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = single_line(remedy, limit=LIMIT)


class Unreachable(PortError):
    """No answer in time; whether a write took effect is not known."""


class Denied(PortError):
    """Credentials or permissions were refused."""


class Rejected(PortError):
    """The request was understood and refused; nothing was done."""


class Busy(PortError):
    """The request waited too long for its turn within the operator; nothing was asked for, and nothing was done."""


class NotLeading(PortError):
    """Another replica of the operator may act; nothing was asked for, and nothing was done."""


class Conflict(FencepostError):
    """Another client wrote first; observe again."""
