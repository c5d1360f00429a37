"""Spark's side of the file system: requests of Hadoop's client to the real services, without retries, as it is set."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from json import loads
from typing import IO, Any, Final, TypeAlias, TypeVar
from urllib.parse import parse_qsl
from uuid import UUID

from fencepost.fence import FenceError, FenceUnavailable
from fencepost.state.errors import CheckpointError, NameServiceUnavailable
from fencepost.state.webhdfs.authentication import Keys, Ticket
from fencepost.state.webhdfs.data_service import DataService
from fencepost.state.webhdfs.http_server import Answer, Body, Request
from fencepost.state.webhdfs.name_service import PREFIX, STORED
from simulation.stateful.stage import Killed, Process, Stage
from simulation.stateful.stores import Network

T = TypeVar("T")
Asking: TypeAlias = Generator[Callable[[], bool] | None, None, T]
NO_BODY: Final = Body(io.BytesIO(), {})
TIMEOUT: Final = 60
"""Turns until a client, or a data service, gives up on a process that does not answer."""


class RequestFailed(Exception):
    """What Spark gets as an IOException: a refusal, or no answer."""

    def __init__(self, why: str, status: int = 0) -> None:
        super().__init__(why)
        self.status = status


@dataclass(eq=False, slots=True)
class Server:
    """A service of a process. `is_blocked` says whether a request waits for another one."""

    process: Process
    handle: Callable[[Request], Answer]
    is_blocked: Callable[[Request], bool] = lambda _: False


@dataclass(slots=True)
class Wires:
    """Connections between processes, by 'host:port'."""

    stage: Stage
    network: Network
    met: Counter[str]
    servers: dict[str, Server] = field(default_factory=dict)

    def exchange(self, address: str, request: Request) -> Asking[Answer]:
        """Send a request once the server is awake. Raises RequestFailed, Killed of the client."""
        client, end = self.stage.running[-1], self.stage.turn + TIMEOUT
        server = self.servers.get(address)
        yield lambda: server is None or self._answers(server, request) or self.stage.turn >= end
        self._meet("before", server, request)
        if server is None or server.process.is_dead:
            raise RequestFailed(f"{address}: connection refused")
        if not self._answers(server, request):
            self.send_late(server, request, 1)
            raise RequestFailed(f"{address}: no answer")
        answer = self.answered(server, request, client)
        self._meet("after", server, request)
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise RequestFailed(b"".join(answer.blocks).decode(), answer.status)
        return answer

    def answered(self, server: Server, request: Request, client: Process) -> Answer:
        """Return what a server that is awake answers. Raises RequestFailed when it ends meanwhile, Killed."""
        try:
            return self._answered(server, request)
        finally:
            client.check_alive()

    def _answered(self, server: Server, request: Request) -> Answer:
        self.stage.running.append(server.process)
        try:
            found = server.handle(request)
            if found.file is not None:
                with found.file as file:
                    return replace(found, file=None, blocks=(file.read(found.length),))
            return found if isinstance(found.blocks, tuple) else replace(found, blocks=(b"".join(found.blocks),))
        except (FenceError, CheckpointError) as error:  # inside the answer's blocks
            raise RequestFailed(f"the connection ends: {error}") from error
        except Killed as killed:
            if killed.process is not server.process:
                raise
            self.stage.kill(server.process)
            raise RequestFailed(f"{server.process.name} ended") from None
        finally:
            self.stage.running.pop()

    def _answers(self, server: Server, request: Request) -> bool:
        return server.process.is_dead or (self.stage.is_awake(server.process) and not server.is_blocked(request))

    def _meet(self, when: str, server: Server | None, request: Request) -> None:
        armed = self.network.found("request", when) if self.network.armed else None
        if armed is None:
            return
        process = self.stage.running[-1]
        if armed.how == "kill":
            raise Killed(process)
        if armed.how in {"lose", "late"}:
            if armed.how == "late" and when == "before" and server is not None:
                self.send_late(server, request, armed.seconds)
            raise RequestFailed("the answer is lost")
        self.stage.hold(armed.seconds, frozen=armed.how == "freeze")

    def send_late(self, server: Server, request: Request, turns: int) -> None:
        """Let a request arrive whose client has given up."""

        def arrive() -> Asking[None]:
            due = self.stage.turn + turns
            yield lambda: self.stage.turn >= due and self._answers(server, request)
            if not server.process.is_dead:
                try:
                    self.answered(server, request, self.network.network)
                except RequestFailed:
                    return

        self.stage.start(self.network.network, arrive())


class SimulatedDataService(DataService):
    """Reports over the wires."""

    def __init__(self, process: Process, store: Any, keys: Keys, wires: Wires) -> None:
        super().__init__(store, Cache(), keys)  # type: ignore[arg-type] # only what a data service uses of it
        self._process = process
        self._wires = wires

    def _report(self, address: str, operation: str, ticket: Ticket) -> tuple[int, bytes]:
        network = self._wires.network
        server = self._wires.servers.get(address)
        request = request_of("POST", "/", {"op": operation, "ticket": self._keys.ticket(ticket)}, "", "")
        try:
            network.before("report")
            if server is None or server.process.is_dead:
                self._wires.met["file stored for a driver that is gone"] += operation == STORED
                raise NameServiceUnavailable("connection refused")
            if not self._wires.stage.is_awake(server.process):
                self._wires.send_late(server, request, 1)
                raise NameServiceUnavailable("no answer")
            answer = self._wires.answered(server, request, self._process)
            network.after("report")
        except (FenceUnavailable, RequestFailed) as error:
            raise NameServiceUnavailable(str(error)) from None
        return answer.status, b"".join(answer.blocks)


class Cache:
    """Keeps files in memory; see `fencepost.state.webhdfs.file_cache`."""

    def __init__(self) -> None:
        self._files: dict[UUID, bytes] = {}

    def open(self, file: UUID, length: int) -> IO[bytes] | None:
        """Return the file, or None."""
        found = self._files.get(file)
        return io.BytesIO(found) if found is not None and len(found) == length else None

    @contextmanager
    def writing(self, file: UUID) -> Generator[io.BytesIO]:
        """Keep what is written in the block."""
        copy = io.BytesIO()
        yield copy
        self._files[file] = copy.getvalue()


@dataclass(frozen=True, slots=True)
class Client:
    """The file system of a process, on the checkpoint of one epoch."""

    wires: Wires
    address: str
    root: str
    header: str
    sender: str

    def status(self, path: str) -> Asking[bool]:
        """Return whether a file is there."""
        try:
            yield from self._ask("GET", path, {"op": "GETFILESTATUS"})
        except RequestFailed as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return False
            raise
        return True

    def make(self, path: str) -> Asking[None]:
        """Make a directory."""
        yield from self._ask("PUT", path, {"op": "MKDIRS"})

    def entries(self, path: str) -> Asking[dict[str, int]]:
        """Return the names in a directory, and when each changed; none where it does not exist."""
        try:
            answer = yield from self._ask("GET", path, {"op": "LISTSTATUS"})
        except RequestFailed as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return {}
            raise
        found = loads(b"".join(answer.blocks))["FileStatuses"]["FileStatus"]
        return {each["pathSuffix"]: each["modificationTime"] for each in found}

    def read(self, path: str) -> Asking[bytes]:
        """Return the content of a file."""
        answer = yield from self._ask("GET", path, {"op": "OPEN"})
        return b"".join((yield from self._follow(answer, "GET")).blocks)

    def write(self, path: str, content: bytes) -> Asking[None]:
        """Create a file, or replace it."""
        answer = yield from self._ask("PUT", path, {"op": "CREATE", "overwrite": "true"})
        yield from self._follow(answer, "PUT", content)

    def rename(self, path: str, target: str, *, overwrite: bool) -> Asking[None]:
        """Rename a file, as FileSystemBasedCheckpointFileManager does."""
        if not overwrite and (yield from self.status(target)):
            raise RequestFailed(f"{target} exists", HTTPStatus.CONFLICT)
        yield from self._ask("PUT", path, {"op": "RENAME", "destination": f"{self.root}/{target}"})

    def write_atomically(self, path: str, content: bytes, unique: str, *, overwrite: bool) -> Asking[None]:
        """Create a file under a temporary name and rename it, as CheckpointFileManager does."""
        folder, _, name = path.rpartition("/")
        temporary = f"{folder}/.{name}.{unique}.tmp".lstrip("/")
        yield from self.write(temporary, content)
        yield from self.rename(temporary, path, overwrite=overwrite)

    def delete(self, path: str) -> Asking[None]:
        """Delete a file."""
        yield from self._ask("DELETE", path, {"op": "DELETE", "recursive": "false"})

    def _ask(self, method: str, path: str, parameters: Mapping[str, str]) -> Asking[Answer]:
        whole = f"{PREFIX}{self.root}/{path}"
        return self.wires.exchange(self.address, request_of(method, whole, parameters, self.sender, self.header))

    def _follow(self, answer: Answer, method: str, content: bytes = b"") -> Asking[Answer]:
        """Send the request to where the answer redirects it."""
        assert answer.location is not None
        address, _, rest = answer.location.removeprefix("http://").partition("/")
        path, _, query = rest.partition("?")
        parameters = dict(parse_qsl(query))
        header = self.header if "op" in parameters else ""
        return self.wires.exchange(address, request_of(method, f"/{path}", parameters, self.sender, header, content))


def request_of(
    method: str, path: str, parameters: Mapping[str, str], sender: str, header: str, content: bytes = b""
) -> Request:
    """Return a request as the HTTP server passes it on."""
    body = Body(io.BytesIO(content), {"content-length": str(len(content))}) if content else NO_BODY
    return Request(
        method=method,
        path=path,
        parameters=parameters,
        headers={header: ""} if header else {},
        sender=sender,
        body=body,
    )
