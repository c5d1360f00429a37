"""The pager's ports: the receivers, and a process that sends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fencepost_operator.paging.delivery import Allowance, Answer, Message
from fencepost_operator.paging.receivers import Receivers


class ReceiverSource(Protocol):
    """The Secrets with receivers."""

    async def receivers(self, namespace: str) -> Receivers:
        """Return those of a namespace, '' for the operator's own; none without a Secret. Raises PortError."""
        ...


class Sender(Protocol):
    """Sends messages, in a process of their own."""

    async def send(self, messages: Sequence[Message], allowance: Allowance) -> Sequence[Answer]:
        """Return an answer for each message, within some seconds; never raises."""
        ...


class ReservedAddresses(Protocol):
    """Where the cluster itself is."""

    async def addresses(self) -> Sequence[str]:
        """Return the addresses of the API server and of the nodes. Raises PortError."""
        ...


class PageMetrics(Protocol):
    """Where the pager reports its figures."""

    def sent(self, kind: str, outcome: str) -> None:
        """Count a page that was sent, or was not."""
        ...
