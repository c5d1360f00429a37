"""Sessions with the tenants' databases of one kind: one that does not answer delays only its own callers.

Nothing is shared that a silent server could use up:

- Connecting has threads of its own, bounded in total, per namespace and per address.  Whoever waits for a
  free one waits among its own namespace: the namespace with the fewest attempts in progress comes first, and within it
  a server that has not failed yet.
- An open session has a few turns of its own, which go round among namespaces; a request beyond them waits for this
  session alone.
- Time in these queues does not count as the server's: see `turns`.
- After a failed attempt the circuit is open: requests get the last error at once, without a thread, until one of them
  may try again.  The pause doubles with each failure.
- Sessions are bounded in total and per namespace; an unused one is closed for a new one.

Each attempt and each request in progress has a thread, which is a daemon: an idle session has none here, and a silent
server does not delay the end of the process.  All state belongs to the event loop; threads only make the blocking
calls.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from fencepost.fence import FenceCredentialsRejected, FenceError, FenceUnauthorized, FenceUnavailable
from fencepost_operator.adapters.daemon_threads import in_thread, then
from fencepost_operator.adapters.eviction import room
from fencepost_operator.backoff import retry_delay
from fencepost_operator.endpoints import EndpointPolicy
from fencepost_operator.turns import LONGEST_WAIT, Turns, in_queue

log = logging.getLogger(__name__)

_NEXT_CLOSE: Final = 5.0
"""Seconds after which closing a session is tried again that found no thread."""

T = TypeVar("T")
S = TypeVar("S")
P = TypeVar("P")
_S_co = TypeVar("_S_co", covariant=True)


class Login(Hashable, Protocol[_S_co]):
    """What makes two sessions the same."""

    @property
    def address(self) -> Hashable:
        """What identifies the server, whoever logs in."""
        ...

    def open(self, policy: EndpointPolicy) -> _S_co:
        """Connect to addresses that the policy allows. Raises FenceError."""
        ...


L = TypeVar("L", bound=Login[object])


@dataclass(frozen=True, slots=True, kw_only=True)
class Client(Generic[S, P]):
    """How sessions of one kind are used: `place` makes what work gets of a keyspace or schema, `end` closes.

    `is_answer` says of an error's cause whether the server sent it.
    """

    name: str
    place: Callable[[S, str], P]
    end: Callable[[S], object]
    none_answers: str
    """Said where no allowed address answers, whatever is there."""
    is_answer: Callable[[BaseException | None], bool]
    turns: int = 4
    """Requests in progress on one session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the sessions may take. Times in seconds."""

    connecting: int = 32
    connecting_per_namespace: int = 8
    connecting_per_address: int = 4
    sessions: int = 128
    sessions_per_namespace: int = 16
    turns: int | None = None
    """Requests in progress on one session, instead of the client's."""
    places: int = 64
    """Keyspaces or schemas that a session keeps ready."""
    idle: float = 600.0
    """A session that was not used for longer is closed."""
    connect_wait: float = 8.0
    """How long a request waits while one connects: less than an observation waits, so that it has the reason."""
    strikes: int = 2
    """Requests in a row without an answer after which a session is closed, to resolve and connect again."""
    first_pause: float = 3.0
    longest_pause: float = 60.0


@dataclass(slots=True, eq=False)
class _Lane(Generic[L, S, P]):
    """One session and who uses it; `namespace` is the one that it counts for."""

    login: L
    namespace: str
    session: S
    turns: Turns
    used_at: float
    places: dict[str, P] = field(default_factory=dict)
    users: int = 0
    strikes: int = 0
    is_retired: bool = False


@dataclass(slots=True, eq=False)
class _Opening(Generic[L, S, P]):
    """A connection that is wanted: waiting for a thread, or in progress once `namespace` is charged for it."""

    login: L
    arrival: int
    failures: int
    result: asyncio.Future[_Lane[L, S, P]]
    started: asyncio.Event = field(default_factory=asyncio.Event)
    waiters: Counter[str] = field(default_factory=Counter)
    namespace: str | None = None


@dataclass(slots=True)
class _Circuit:
    """The failures in a row of a login; before `retry_at` no connection is tried."""

    error: FenceError
    failures: int
    retry_at: float


class Sessions(Generic[L, S, P]):
    """All sessions. Every method belongs to the event loop's thread."""

    def __init__(
        self,
        client: Client[S, P],
        limits: Limits | None = None,
        *,
        policy: EndpointPolicy | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._limits = limits or Limits()
        self._policy = policy or EndpointPolicy()
        self._monotonic = monotonic
        self._lanes: dict[L, _Lane[L, S, P]] = {}
        self._openings: dict[L, _Opening[L, S, P]] = {}
        self._circuits: dict[L, _Circuit] = {}
        self._arrivals = itertools.count()
        self._ending: set[Future[None]] = set()
        self._is_closed = False

    def __len__(self) -> int:
        """Return how many sessions are open."""
        return len(self._lanes)

    async def run(self, login: L, name: str, work: Callable[[P], T], *, namespace: str) -> T:
        """Do blocking work in the keyspace or schema of this name, in a thread.

        Raises FenceError, Busy, and what `work` raises.
        Work that has begun continues in its thread when the caller is cancelled, and keeps its turn until it ends.
        """
        lane = await self._entered(login, namespace)
        while lane.is_retired:  # it fell silent while this request waited for its turn
            lane.turns.release(namespace)
            self._leave(lane)
            lane = await self._entered(login, namespace)
        place = self._place(lane, name)
        job = in_thread(lambda: work(place), name="fence-request")
        then(job, lambda: self._finished(lane, namespace, job))
        return await asyncio.wrap_future(job)

    async def _entered(self, login: L, namespace: str) -> _Lane[L, S, P]:
        """Return the session with a turn on it."""
        lane = await self._lane(login, namespace)
        lane.users += 1
        try:
            await lane.turns.acquire(namespace)
        except BaseException:
            self._leave(lane)
            raise
        return lane

    def forget(self, login: L, name: str) -> None:
        """Drop what is known of the tables in a place: their schema changed."""
        if lane := self._lanes.get(login):
            lane.places.pop(name, None)

    async def close(self) -> None:
        """End all sessions; connections that are being made end when they are."""
        self._is_closed = True
        for opening in list(self._openings.values()):
            opening.result.cancel()
            opening.started.set()
        self._openings = {login: opening for login, opening in self._openings.items() if opening.namespace}
        for lane in list(self._lanes.values()):
            self._retire(lane)
        await asyncio.gather(*map(asyncio.wrap_future, self._ending), return_exceptions=True)

    # A session, or its error

    async def _lane(self, login: L, namespace: str) -> _Lane[L, S, P]:
        if lane := self._lanes.get(login):
            return lane
        opening, circuit = self._openings.get(login), self._circuits.get(login)
        if circuit is not None and (opening is not None or self._monotonic() < circuit.retry_at):
            raise _copy(circuit.error)  # another caller is connecting, or no attempt is due yet
        if opening is None:
            opening = self._openings[login] = _Opening(
                login=login,
                arrival=next(self._arrivals),
                failures=circuit.failures if circuit else 0,
                result=asyncio.get_running_loop().create_future(),
            )
        opening.waiters[namespace] += 1
        self._dispatch()
        try:
            if not opening.started.is_set():
                await in_queue(opening.started.wait(), f"the sessions with {self._client.name}", patience=LONGEST_WAIT)
            async with asyncio.timeout(self._limits.connect_wait):
                return await asyncio.shield(opening.result)
        except TimeoutError as error:
            if self._policy.restricts:  # nor may the time that a name takes show the network
                raise FenceUnavailable(self._client.none_answers) from error
            raise FenceUnavailable(f"no session within {self._limits.connect_wait:.0f} s; one is connecting") from error
        finally:
            opening.waiters[namespace] -= 1
            if opening.namespace is None and not opening.waiters.total():
                self._openings.pop(login, None)  # no caller waits for it any more

    def _dispatch(self) -> None:
        """Start as many of the connections that are wanted as the limits allow."""
        while not self._is_closed and (chosen := self._next()):
            opening, namespace, unneeded = chosen
            for login in unneeded:
                self._retire(self._lanes[login])
            self._open(opening, namespace)

    def _next(self) -> tuple[_Opening[L, S, P], str, list[L]] | None:
        """Return the connection to start next, the namespace that it counts for, and the session to close for it."""
        waiting = {login: opening for login, opening in self._openings.items() if opening.namespace is None}
        started = [opening for opening in self._openings.values() if opening.namespace is not None]
        if not waiting or len(started) >= self._limits.connecting:
            return None
        charged = Counter(opening.namespace for opening in started if opening.namespace is not None)
        addresses = Counter(opening.login.address for opening in started)
        ranked = sorted(  # an arrival and a namespace are one of a kind, so logins are never compared
            (charged[namespace], opening.failures, opening.arrival, namespace, login)
            for login, opening in waiting.items()
            if addresses[login.address] < self._limits.connecting_per_address
            for namespace in +opening.waiters
            if charged[namespace] < self._limits.connecting_per_namespace
        )
        limit, share, now = self._limits.sessions, self._limits.sessions_per_namespace, self._monotonic()
        full: set[str] = set()
        for *_, namespace, login in ranked:
            if namespace not in full:
                unneeded = room(self._lanes, namespace, charged, limit=limit, share=share, now=now)
                if unneeded is not None:
                    return self._openings[login], namespace, unneeded
                full.add(namespace)
        return None

    def _open(self, opening: _Opening[L, S, P], namespace: str) -> None:
        opening.namespace = namespace
        opening.started.set()
        job = in_thread(lambda: self._connect(opening.login), name="fence-connect")
        then(job, lambda: self._opened(opening, job))

    def _connect(self, login: L) -> S:
        """Connect, in a thread of its own."""
        session: S = login.open(self._policy)  # type: ignore[assignment]  # a login opens the client's sessions
        if self._is_closed:
            self._end(session)
            raise FenceUnavailable("the operator is stopping")
        return session

    def _opened(self, opening: _Opening[L, S, P], job: Future[S]) -> None:
        login, namespace = opening.login, opening.namespace or ""
        self._openings.pop(login, None)
        failure = job.exception()
        if failure is None and not self._is_closed:
            limit = self._limits.turns or self._client.turns
            turns = Turns(f"a session with {self._client.name}", limit=limit)
            lane: _Lane[L, S, P] = _Lane(login, namespace, job.result(), turns, self._monotonic())
            self._lanes[login] = lane
            if not opening.result.done():
                opening.result.set_result(lane)
        elif failure is None:
            self._end_later(job.result())
        else:
            error = failure if isinstance(failure, FenceError) else FenceUnavailable(f"connecting failed: {failure!r}")
            self._break(login, error)
            if not opening.result.done():
                opening.result.set_exception(error)
                opening.result.exception()  # retrieved, because no caller may wait for it any more
        self._dispatch()

    def _break(self, login: L, error: FenceError) -> None:
        """Open the circuit of a login for a pause that doubles with each failure."""
        before = self._circuits.get(login)
        failures = before.failures + 1 if before else 1
        pause = retry_delay(failures, first=self._limits.first_pause, longest=self._limits.longest_pause)
        with_pause = f"{error}; the next attempt comes {pause:.0f} s after this one"
        self._circuits[login] = _Circuit(_copy(error, with_pause), failures, self._monotonic() + pause)
        self._forget_old_circuits()

    def _forget_old_circuits(self) -> None:
        """Drop the failures of logins that were not requested in a while: a spec may name many logins over time."""
        now = self._monotonic()
        old = [login for login, circuit in self._circuits.items() if now - circuit.retry_at > self._limits.idle]
        for login in old:
            del self._circuits[login]

    # A session in use

    def _place(self, lane: _Lane[L, S, P], name: str) -> P:
        place = lane.places.pop(name) if name in lane.places else self._client.place(lane.session, name)
        lane.places[name] = place  # the newest last
        if len(lane.places) > self._limits.places:
            del lane.places[next(iter(lane.places))]
        return place

    def _finished(self, lane: _Lane[L, S, P], namespace: str, job: Future[T]) -> None:
        failure = job.exception()
        if failure is None or not self._is_connection_failure(failure):
            lane.strikes = 0
            self._circuits.pop(lane.login, None)
        else:
            lane.strikes += 1
            if lane.strikes >= self._limits.strikes and not lane.is_retired and isinstance(failure, FenceError):
                self._break(lane.login, failure)
                self._retire(lane)
        lane.turns.release(namespace)  # after the lane is judged: who comes next must see that it is retired
        self._leave(lane)

    def _leave(self, lane: _Lane[L, S, P]) -> None:
        lane.users -= 1
        lane.used_at = self._monotonic()
        if lane.is_retired and not lane.users:
            self._end_later(lane.session)
        for idle in [other for other in self._lanes.values() if not other.users]:
            if self._monotonic() - idle.used_at > self._limits.idle:
                self._retire(idle)
        self._dispatch()

    def _retire(self, lane: _Lane[L, S, P]) -> None:
        """Stop lending the session, and close it once it has no users."""
        lane.is_retired = True
        if self._lanes.get(lane.login) is lane:
            del self._lanes[lane.login]
        if not lane.users or self._is_closed:
            self._end_later(lane.session)

    def _end_later(self, session: S) -> None:
        job = in_thread(lambda: self._end(session), name="fence-close")
        self._ending.add(job)
        then(job, lambda: self._ended(session, job))

    def _ended(self, session: S, job: Future[None]) -> None:
        self._ending.discard(job)
        if job.exception() is not None and not self._is_closed:  # no thread; the session has some to give back
            asyncio.get_running_loop().call_later(_NEXT_CLOSE, self._end_later, session)

    def _end(self, session: S) -> None:
        try:
            self._client.end(session)
        except Exception as error:  # noqa: BLE001 - the client's; a session that does not close must not fail the caller
            log.warning("a session with %s did not close: %s", self._client.name, error)

    def _is_connection_failure(self, failure: BaseException) -> bool:
        """Return whether a request failed for want of a usable connection.

        A refusal by a server shows that the connection is usable; a thread that the operator cannot start shows
        nothing.
        """
        match failure:
            case FenceUnauthorized():
                return False
            case FenceUnavailable():
                cause = failure.__cause__
                return not self._client.is_answer(cause) and not isinstance(cause, RuntimeError)
            case _:
                return isinstance(failure, FenceCredentialsRejected)


def _copy(error: FenceError, message: str = "") -> FenceError:
    """Return an error to raise: one that is raised again and again keeps every traceback."""
    copied = copy.copy(error)  # without the traceback
    copied.args = (message or str(error),)
    copied.__cause__ = error.__cause__
    return copied
