"""Local ports that lead to pods through the API server, for names of the cluster that this machine cannot look up.

The event loop runs in a thread of its own, since the clients of Cassandra and Kafka are synchronous. Each connection is
one WebSocket of `pods/portforward` (v4.channel.k8s.io): before each message a byte for the channel, 0 for the data and
1 for an error, and on each channel first the port's number.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from threading import Thread
from typing import Final, Self

import aiohttp
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from fencepost_cli.errors import CliError
from fencepost_cli.ports import Dial
from fencepost_cli.stores.kubernetes.cluster_names import Backend, Place, backends, places, problem, resolves, selector
from fencepost_operator.adapters.kubernetes.api_server import PODS, SERVICES, ApiServer, Json, Resource
from fencepost_operator.errors import Denied, PortError

PROTOCOL: Final = "v4.channel.k8s.io"
OPENS_WITHIN: Final = 20.0
"""Seconds to find the pods and to open the first connection."""
SAYS_WITHIN: Final = 1.0
"""Seconds for the cluster to say why it ended a connection that nothing can be sent into."""
PIECE: Final = 64 * 1024
"""Bytes of one message."""
MOST: Final = 256
"""Local ports of one command: Kafka's brokers say how many names there are."""
_LOCAL: Final = "127.0.0.1"
_PORT_FORWARD: Final = Resource(prefix=PODS.prefix, plural=PODS.plural, subresource="portforward")
_DATA: Final = b"\x00"
_FORBIDDEN: Final = 403


@dataclass(slots=True)
class PortForwards:
    """Implements the Forwards port, for a `with` block. `notify` gets messages beside the command's output."""

    configuration: Callable[[], Awaitable[Configuration]]
    namespace: str
    notify: Callable[[str], None]
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _thread: Thread | None = None
    _api: _Api | None = None
    _servers: dict[tuple[str, int], asyncio.Server] = field(default_factory=dict)
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __enter__(self) -> Self:
        """Begin; nothing is opened before a name asks for it."""
        self._thread = Thread(target=self._loop.run_forever, name="port-forwards", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close the local ports and their connections."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread is not None:
            self._thread.join()
        self._loop.close()

    def dial(self, place: str, option: str) -> Dial:
        """Return how to reach the names of a field of the spec; `option` is what the command line has in its place."""

        def address(host: str, port: int) -> tuple[str, int]:
            if resolves(host):
                return host, port
            if not self._loop.is_running():
                raise _unreached(place, host, "the command ends", option)  # to a thread of librdkafka
            try:
                opened = asyncio.run_coroutine_threadsafe(self._local_port(host, port), self._loop)
                return _LOCAL, opened.result(OPENS_WITHIN)
            except TimeoutError as error:
                raise _unreached(place, host, "the API server did not answer in time", option) from error
            except _NotForwarded as error:
                raise _unreached(place, host, error, option, needs=error.needs) from error

        return address

    async def _local_port(self, host: str, port: int) -> int:
        """Return the local port of a name's port. Raises _NotForwarded."""
        async with self._opening:
            known = self._servers.get((host, port))
            if known is not None:
                return _port_of(known)
            if len(self._servers) >= MOST:
                raise _NotForwarded(f"{MOST} ports are forwarded already")
            if self._api is None:
                self._api = _Api(await self.configuration())
            way = await self._way(self._api, host, port)
            socket, backend = await way.connect()  # what is missing is said now, and not by a client's time-out
            await socket.close()
            server = await asyncio.start_server(lambda r, w: self._serve(way, r, w), _LOCAL, 0)
            self._servers[host, port] = server
            self.notify(f"{host}:{port} is reached through the API server, in pod {way.place.namespace}/{backend.pod}")
            return _port_of(server)

    async def _way(self, api: _Api, host: str, port: int) -> _Way:
        reasons, needs = list[str](), None
        for place in places(host, self.namespace):
            try:
                service = await api.server.get(SERVICES, namespace=place.namespace, name=place.service)
            except Denied as error:
                reasons.append(str(error))
                needs = needs or place.namespace
                continue
            except PortError as error:
                raise _NotForwarded(str(error)) from error
            wrong = problem(service, port) if service else "does not exist"
            if service is not None and wrong is None:
                return _Way(api, place, service, port)
            reasons.append(f"{place} {wrong}")
        raise _NotForwarded("; ".join(reasons) or "it is not a name in the cluster either", needs=needs)

    async def _serve(self, way: _Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        try:
            socket, _ = await way.connect()
            async with socket:
                failed = await _carried(reader, writer, socket)
            if failed is not None:
                raise failed
        except (_NotForwarded, aiohttp.ClientError, OSError) as error:
            self.notify(f"a connection to {way.place}, port {way.port}, ended: {error}")
        except asyncio.CancelledError:
            return  # the command ends; asyncio's streams log a cancelled task of theirs as an error
        finally:
            writer.close()

    async def _close(self) -> None:
        for server in self._servers.values():
            server.close()
        others = asyncio.all_tasks(self._loop) - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._api is not None:
            await self._api.close()


class _NotForwarded(Exception):
    """Why a name cannot be reached; `needs` is the namespace in which the account misses a right."""

    def __init__(self, message: str, *, needs: str | None = None) -> None:
        super().__init__(message)
        self.needs = needs


class _Api:
    """The API server: its objects, and WebSockets with the same certificates, proxy and account."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._rest = RESTClientObject(configuration)
        self._session = aiohttp.ClientSession(trust_env=True)
        self.server = ApiServer(configuration)

    async def websocket(self, namespace: str, backend: Backend) -> aiohttp.ClientWebSocketResponse:
        """Open a port of a pod. Raises aiohttp.ClientError."""
        path = _PORT_FORWARD.path(namespace=namespace, name=backend.pod)
        bearer = await self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        return await self._session.ws_connect(
            f"{self._configuration.host}{path}?ports={backend.port}",
            protocols=(PROTOCOL,),
            headers={"Authorization": bearer} if bearer else {},
            ssl=self._rest.ssl_context,
            proxy=self._rest.proxy,
            proxy_headers=self._rest.proxy_headers,
            max_msg_size=0,
        )

    async def close(self) -> None:
        """End the connections."""
        await self._session.close()
        await self._rest.close()
        await self.server.close()


@dataclass(frozen=True, slots=True)
class _Way:
    """From a port of a name to one of the pods behind it, looked up for each connection."""

    api: _Api
    place: Place
    service: Json
    port: int

    async def connect(self) -> tuple[aiohttp.ClientWebSocketResponse, Backend]:
        """Connect to a ready pod, and return which one. Raises _NotForwarded."""
        namespace = self.place.namespace
        try:
            pods = await self.api.server.list(PODS, namespace=namespace, labels=selector(self.service))
        except PortError as error:
            raise _NotForwarded(str(error), needs=namespace if isinstance(error, Denied) else None) from error
        found = backends(self.service, pods, self.place, self.port)
        failure = _NotForwarded(f"{self.place} has no ready pod" + (f" {self.place.pod}" if self.place.pod else ""))
        for backend in random.sample(found, k=len(found)):
            try:
                return await self.api.websocket(namespace, backend), backend
            except aiohttp.WSServerHandshakeError as error:
                denied = error.status == _FORBIDDEN
                why = "your account cannot create pods/portforward" if denied else f"HTTP {error.status}"
                failure = _NotForwarded(f"pod {namespace}/{backend.pod}: {why}", needs=namespace if denied else None)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                failure = _NotForwarded(f"pod {namespace}/{backend.pod}: {type(error).__name__} {error}".rstrip())
        raise failure


async def _carried(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, socket: aiohttp.ClientWebSocketResponse
) -> BaseException | None:
    """Carry both directions until one ends; return why, None where a side ended the connection.

    What the cluster says of a connection that it ends comes before what sending into it fails with.
    """
    up, down = asyncio.ensure_future(_up(reader, socket)), asyncio.ensure_future(_down(socket, writer))
    await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
    if up.done() and up.exception() is not None:
        await asyncio.wait((down,), timeout=SAYS_WITHIN)
    for one in (up, down):
        one.cancel()
    failures = (one.exception() for one in (down, up) if one.done() and not one.cancelled())
    return next((failure for failure in failures if failure is not None), None)


async def _up(reader: asyncio.StreamReader, socket: aiohttp.ClientWebSocketResponse) -> None:
    while piece := await reader.read(PIECE):
        await socket.send_bytes(_DATA + piece)


async def _down(socket: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> None:
    """Write what the pod sends, until it ends the connection. Raises _NotForwarded on an error in the cluster."""
    begun = set[int]()
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel, piece = message.data[0], message.data[1:]
        if channel not in begun:
            begun.add(channel)  # the port's number
        elif channel:
            raise _NotForwarded(piece.decode(errors="replace"))
        else:
            writer.write(piece)
            await writer.drain()


def _port_of(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])


def _unreached(place: str, host: str, why: object, option: str, *, needs: str | None = None) -> CliError:
    rights = f"ask for the right to get services, list pods and create pods/portforward in namespace {needs}, or "
    return CliError(
        f"{place}: {host} has no address on this machine, and cannot be reached through the API server: {why}",
        remedy=f"{rights if needs else ''}name an address of this machine, such as that of a `kubectl port-forward`,"
        f" with {option} localhost:PORT",
    )
