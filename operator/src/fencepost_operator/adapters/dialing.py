"""Checks where the operator dials, before it dials.

What is refused does not depend on what is there: one message for a name that does not exist, an address that is not
allowed and a lookup without an answer, so that a tenant learns nothing of the network.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from fencepost_operator.endpoints import EndpointPolicy
from fencepost_operator.errors import Rejected
from fencepost_operator.turns import Turns

_LOOKUP_WITHIN: Final = 3.0
"""Seconds from the lookup's turn on."""
_LOOKUPS: Final = 64
"""Threads at most: started when needed, and enough for 32 tenants whose name servers do not answer."""
_LOOKUPS_PER_NAMESPACE: Final = 2
"""A lookup that gets no answer keeps its thread for many seconds."""
_MOST_SERVERS: Final = 20
"""librdkafka starts a thread for each."""
_SERVER: Final = re.compile(r"(?:[A-Za-z_]+://)?(?:\[(?P<six>[^\]]+)\]|(?P<host>[^:\[\]/]+))(?::(?P<port>[0-9]{1,5}))?")
_KAFKA_PORT: Final = 9092


@dataclass(slots=True)
class Dialing:
    """The operator's allow-list of endpoints, applied to names; `close` ends its threads."""

    policy: EndpointPolicy = field(default_factory=EndpointPolicy)
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_LOOKUPS, thread_name_prefix="dns"))
    _turns: Turns = field(
        default_factory=lambda: Turns("the lookups of names", limit=_LOOKUPS, per_tenant=_LOOKUPS_PER_NAMESPACE)
    )

    async def kafka(self, namespace: str, servers: str, *, by_name: bool) -> str:
        """Return the bootstrap servers to dial: as they are `by_name`, else the addresses that were checked.

        Raises Rejected, naming the field.
        """
        if not self.policy.restricts:
            return servers
        found: list[str] = []
        for host, port in _servers(servers):
            addresses = await self._permitted(namespace, host, port)
            if not addresses:
                raise _refusal("spec.source.kafka.bootstrapServers", f"{host}:{port}")
            found += [f"[{each}]:{port}" if ":" in each else f"{each}:{port}" for each in addresses]
        return servers if by_name else ",".join(found[:_MOST_SERVERS])

    async def brokers(self, namespace: str, nodes: Iterable[tuple[str, int]]) -> None:
        """Check the brokers that Kafka advertises. Raises Rejected."""
        if not self.policy.restricts:
            return
        for host, port in nodes:
            if not await self._permitted(namespace, host, port):
                raise _refusal("spec.source.kafka.bootstrapServers", "a broker that Kafka advertises")

    async def _permitted(self, namespace: str, host: str, port: int) -> list[str]:
        """Return the host's addresses; none where one of them is not allowed or the lookup fails. Raises Busy."""
        loop = asyncio.get_running_loop()
        await self._turns.acquire(namespace)
        lookup = self._pool.submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        # The turn ends with the thread's work, not with the patience of who waits for it.
        lookup.add_done_callback(lambda _: self._ended(namespace, loop))
        try:
            async with asyncio.timeout(_LOOKUP_WITHIN):
                answers = await asyncio.wrap_future(lookup)
        except (OSError, ValueError, OverflowError):  # ValueError: a name that cannot be one
            return []
        addresses = sorted({str(address[0]) for *_, address in answers})
        return addresses if all(self.policy.allows(host, address, port) for address in addresses) else []

    def _ended(self, namespace: str, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # the operator ends, and the loop is closed
            loop.call_soon_threadsafe(self._turns.release, namespace)

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _servers(text: str) -> list[tuple[str, int]]:
    """Return the (host, port) of each of librdkafka's bootstrap servers. Raises Rejected."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    matches = [_SERVER.fullmatch(part) for part in parts]
    if not matches or len(matches) > _MOST_SERVERS or None in matches:
        raise _refusal("spec.source.kafka.bootstrapServers", "its form")
    return [
        (match["six"] or match["host"], int(match["port"] or _KAFKA_PORT)) for match in matches if match is not None
    ]


def _refusal(field_name: str, what: str) -> Rejected:
    return Rejected(
        f"{field_name}: the operator may not connect to {what}",
        remedy="name an endpoint of the operator's allowedEndpoints, or ask the platform engineer to add it",
    )
