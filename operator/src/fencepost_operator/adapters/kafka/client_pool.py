"""The operator's Kafka clients, within limits of clients and brokers.

librdkafka starts a thread for each broker that an answer names, before the operator sees it.  So the size of an
answer bounds what one answer can cost, and a client whose cluster has too many brokers is closed at once and not opened
again before a pause that doubles with each refusal.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

from fencepost_operator.adapters.eviction import room, to_close
from fencepost_operator.adapters.kafka.client import Client, open_client
from fencepost_operator.api import KafkaConnection
from fencepost_operator.backoff import retry_delay
from fencepost_operator.errors import Busy, Rejected
from fencepost_operator.turns import LONGEST_WAIT, Turns, in_queue

_SHARE: Final = "wait, or give this namespace's pipelines the same source.kafka.bootstrapServers and properties"
FORGOTTEN_AFTER: Final = 600.0
"""Seconds without a request after which what was learned of a Kafka or a pipeline is dropped."""
_CLOSING_AT_ONCE: Final = 16
"""Threads that close clients; each waits for the name lookups that its client has in progress."""
_CONSUMER_ONLY: Final = frozenset({"isolation.level"})
"""Allowed, and not a property of an admin client: each request names the isolation level."""

_Key: TypeAlias = tuple[str | tuple[str, str], ...]
"""A namespace and the properties of a client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """How many clients are open: librdkafka starts a thread per client, per bootstrap server and per broker.

    Pauses are in seconds: a cluster that was refused for its size is not dialled again before.  So is `idle`, after
    which an unused client is closed.  Until then, one whose Kafka is gone looks its servers' names up every
    two seconds, under each search domain of the pod.
    """

    per_namespace: int = 16
    total: int = 128
    brokers: int = 256
    """Brokers of one cluster."""
    brokers_per_namespace: int = 512
    brokers_total: int = 2048
    first_pause: float = 10.0
    longest_pause: float = 600.0
    idle: float = 120.0


class _Oversized(Rejected):
    """The cluster is larger than the operator's process can serve."""


@dataclass(slots=True)
class _Refused:
    """A cluster that was refused for its size: `failures` in a row, the last one `error`."""

    error: _Oversized
    failures: int
    retry_at: float


class KafkaPool:
    """Opens clients and closes them; `monotonic` is a clock, in seconds.

    Clients belong to one namespace.  Beyond the limits, an unused one is closed for a new one, and while all are
    in use whoever needs a new one waits.
    """

    def __init__(self, limits: ClientLimits | None = None, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits or ClientLimits()
        self._monotonic = monotonic
        self._clients: dict[_Key, Client] = {}
        self._refused: dict[tuple[str, str], _Refused] = {}
        self._closing: Counter[str] = Counter()
        self._opening = Turns("the Kafka clients", per_tenant=1)
        self._change = asyncio.Event()
        """Set when a client is not in use any more, or was closed."""
        self._sweep: asyncio.TimerHandle | None = None
        self._closers = ThreadPoolExecutor(_CLOSING_AT_ONCE, thread_name_prefix="kafka-close")

    def __len__(self) -> int:
        """Return how many clients are open."""
        return len(self._clients)

    async def close(self) -> None:
        """Close the clients; librdkafka ends their threads."""
        if self._sweep is not None:
            self._sweep.cancel()
        self._release(list(self._clients))
        await asyncio.get_running_loop().run_in_executor(None, self._closers.shutdown)

    @asynccontextmanager
    async def client(
        self, servers: str, connection: KafkaConnection, properties: Mapping[str, str]
    ) -> AsyncIterator[Client]:
        """Yield the client with these properties of the namespace. Raises Rejected, Unreachable, Busy."""
        own = {key: value for key, value in properties.items() if key not in _CONSUMER_ONLY}
        own["bootstrap.servers"] = servers
        key: _Key = (connection.namespace, *sorted(own.items()))
        client = self._clients.get(key) or await self._opened(key, own, connection)
        client.users += 1
        client.used_at = self._monotonic()
        if self._sweep is None:
            self._close_idle()
        try:
            yield client
        finally:
            client.users -= 1
            self._change.set()

    async def _opened(self, key: _Key, own: Mapping[str, str], connection: KafkaConnection) -> Client:
        """Open a client once there is room for it; the namespace's others that need one wait meanwhile."""
        async with self._opening.turn(connection.namespace):
            if known := self._clients.get(key):
                return known
            unneeded = self._room(connection.namespace)
            if unneeded is None:
                unneeded = await in_queue(
                    self._room_later(connection.namespace), "the Kafka clients", patience=LONGEST_WAIT
                )
            client = self._clients[key] = open_client(own, connection)
            client.used_at = self._monotonic()
            self._release(unneeded)
            return client

    async def _room_later(self, namespace: str) -> list[_Key]:
        while True:
            self._change.clear()
            await self._change.wait()
            if (unneeded := self._room(namespace)) is not None:
                return unneeded

    def _close_idle(self) -> None:
        """Close clients that were not used for long, and repeat that until none is open."""
        now = self._monotonic()
        self._release([k for k, c in self._clients.items() if not c.users and now - c.used_at > self._limits.idle])
        loop = asyncio.get_running_loop()
        self._sweep = loop.call_later(self._limits.idle / 4, self._close_idle) if self._clients else None

    def _room(self, namespace: str) -> list[_Key] | None:
        """Return the client to close for a new one, if any; None while there can be none."""
        limit, share, now = self._limits.total, self._limits.per_namespace, self._monotonic()
        if self._closing[namespace] >= share:
            return None
        return room(self._clients, namespace, Counter(), limit=limit, share=share, now=now)

    def check_brokers(self, client: Client, connection: KafkaConnection) -> None:
        """Close idle clients until the brokers of all are within the limits. Raises Rejected, Busy."""
        where = f"Kafka at {connection.bootstrap_servers}"
        if client.brokers > self._limits.brokers:
            raise _Oversized(
                f"{where}: the cluster of spec.source.kafka.bootstrapServers has {client.brokers} brokers; the operator"
                f" connects to clusters of at most {self._limits.brokers}",
                remedy="name a smaller Kafka cluster in spec.source.kafka.bootstrapServers",
            )
        while candidates := self._over_budget(client.namespace):
            idle = {k: c for k, c in candidates.items() if not c.users and c.brokers}
            if not idle:
                self._release(self._keys(client))
                raise Busy(
                    f"{where}: with its {client.brokers} brokers the operator's Kafka clients would have more than the"
                    f" {self._limits.brokers_per_namespace} brokers of one namespace, or"
                    f" {self._limits.brokers_total} in total",
                    remedy=_SHARE,
                )
            self._release([to_close({k: c.used_at for k, c in idle.items()}, self._monotonic())])

    def _over_budget(self, namespace: str) -> dict[_Key, Client]:
        """Return the clients of which some have to be closed: those of the namespace, or of the one with most brokers.

        Empty when the brokers of all clients are within the limits.
        """
        brokers: Counter[str] = Counter()
        for client in self._clients.values():
            brokers[client.namespace] += client.brokers
        over: str | None = None
        if brokers[namespace] > self._limits.brokers_per_namespace:
            over = namespace
        elif brokers.total() > self._limits.brokers_total:
            over = brokers.most_common(1)[0][0]
        return {k: c for k, c in self._clients.items() if c.namespace == over}

    def refuse_again(self, connection: KafkaConnection) -> None:
        """Raise the last refusal of a cluster for its size until the pause after it is over."""
        now = self._monotonic()
        for old in [k for k, refused in self._refused.items() if now - refused.retry_at > FORGOTTEN_AFTER]:
            del self._refused[old]
        refused = self._refused.get(_cluster(connection))
        if refused is not None and now < refused.retry_at:
            raise _Oversized(str(refused.error), remedy=refused.error.remedy)

    def let_go(self, client: Client, connection: KafkaConnection, error: Rejected) -> None:
        """Close a client whose cluster was refused, and remember a cluster that is too large."""
        self._release(self._keys(client))
        if isinstance(error, _Oversized):
            known = self._refused.get(_cluster(connection))
            failures = known.failures + 1 if known else 1
            pause = retry_delay(failures, first=self._limits.first_pause, longest=self._limits.longest_pause)
            kept = _Oversized(str(error), remedy=error.remedy)  # without the traceback
            self._refused[_cluster(connection)] = _Refused(kept, failures, self._monotonic() + pause)

    def accept(self, connection: KafkaConnection) -> None:
        """Forget that the cluster was refused."""
        self._refused.pop(_cluster(connection), None)

    def _keys(self, client: Client) -> list[_Key]:
        return [key for key, known in self._clients.items() if known is client]

    def _release(self, keys: list[_Key]) -> None:
        """Forget clients and close them, in threads of their own: a name that is looked up delays that for long."""
        loop = asyncio.get_running_loop()
        for client in [self._clients.pop(key) for key in keys]:
            self._closing[client.namespace] += 1
            with suppress(RuntimeError):  # no thread can be started now; the work waits for the next one
                self._closers.submit(self._close, client, loop)

    def _close(self, client: Client, loop: asyncio.AbstractEventLoop) -> None:
        try:
            client.close()
        finally:
            with suppress(RuntimeError):  # the operator ends, and the loop is closed
                loop.call_soon_threadsafe(self._closed, client.namespace)

    def _closed(self, namespace: str) -> None:
        self._closing[namespace] -= 1
        self._change.set()


def _cluster(connection: KafkaConnection) -> tuple[str, str]:
    """Return what identifies a cluster that was refused, whatever the client's properties are."""
    return connection.namespace, connection.bootstrap_servers
