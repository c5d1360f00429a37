"""A session with PostgreSQL: a connection that is made when it is needed, and again after it broke.

Each statement is a transaction of its own, sent in one message: a client that is frozen, or cut off, in the middle of
it holds no lock.  No statement is repeated, and none is cancelled: a commit that waits for a synchronous standby would
become visible before it is safe.  One that waits for a lock ends in the server after its caller gave up, because each
attempt would leave a connection waiting there.  After an error without an answer the connection is given up, and the
outcome is for `Fence` to settle.
"""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg.abc import PQGen

from fencepost.contract import PostgresqlEndpoint
from fencepost.fence.errors import FenceError, FenceTlsFailed, FenceUnavailable
from fencepost.fence.postgresql.errors import connection_error, translated
from fencepost.fence.tls import CA, CERTIFICATE, KEY, TlsMaterial

MOST_ADDRESSES: Final = 4
"""Addresses that one attempt to connect tries: each silent one takes the request's time."""
_BEGIN: Final = (
    "SELECT set_config('timezone', 'UTC', false), set_config('statement_timeout', '0', false),"
    " set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')"
    " THEN 'on' ELSE current_setting('synchronous_commit') END, false),"
    " set_config('lock_timeout', %s, false)"
)
"""What the account's own settings must not weaken, and the longest wait for a lock in milliseconds."""
_WAIT: Final = 0.1
_LOCK_WAIT: Final = 4
"""Request times after which the server ends a statement that waits for a lock: its caller has given up by then."""

Reach = Callable[[str, str, int], tuple[str, int]]
"""Returns where to dial for a host's name, one of its addresses, and the port.

Raises PermissionError where the address may not be dialled, OSError where nothing answers."""


def directly(_name: str, address: str, port: int) -> tuple[str, int]:
    """Dial the address itself."""
    return address, port


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """One whose requests end after `limit` seconds."""

    limit: float = 5.0

    def wait(self, gen: PQGen[Any], interval: float = _WAIT, timeout: float | None = None) -> Any:  # noqa: ANN401 - what the request returns
        """Run a request. Raises psycopg.OperationalError when it takes too long."""
        return super().wait(gen, interval, self.limit if timeout is None else timeout)


class Session:
    """One database; threads take turns. `request_timeout` is in seconds.

    The credentials are a name and a password, '' where a client certificate is enough. `tls` is needed where the
    endpoint has TLS.  `reach` decides which addresses of a host's name are dialled.
    """

    def __init__(
        self,
        endpoint: PostgresqlEndpoint,
        *,
        credentials: tuple[str, str],
        tls: TlsMaterial | None = None,
        request_timeout: float = 5.0,
        reach: Reach = directly,
    ) -> None:
        self._endpoint = endpoint
        self._credentials = credentials
        self._tls = tls
        self.request_timeout = request_timeout
        self._reach = reach
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    def open(self) -> None:
        """Connect now.

        Raises FenceUnavailable where no host answers that takes writes, FenceCredentialsRejected, FenceTlsFailed,
        FenceEndpointInvalid where the server lacks the database.
        """
        self.run("connecting", "SELECT 1")

    def run(
        self, doing: str, statement: str, values: Sequence[object] = (), *, limit: float | None = None
    ) -> list[tuple[Any, ...]]:
        """Run a statement as a transaction, and return its rows; `limit` is in seconds. Raises FenceError."""
        with self._lock:
            connection = self._connection = self._connection or self.connect()
            connection.limit = limit or self.request_timeout
            try:
                with translated(doing):
                    cursor = connection.execute(statement.encode(), values or None)
                    return cursor.fetchall() if cursor.description else []
            except FenceUnavailable:
                self._give_up()
                raise

    def close(self) -> None:
        """End the connection; the next statement makes another one."""
        with self._lock:
            self._give_up()

    def _give_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def connect(self) -> Connection:
        """Return a connection with the first host that takes writes. Raises the error of the last one."""
        doing = f"PostgreSQL at {self._endpoint.address}"
        failure = FenceUnavailable(f"{doing}: no address of the hosts may be dialled")
        left = MOST_ADDRESSES
        for name in self._endpoint.hosts:
            try:
                addresses = [None] if self._is_socket(name) else _addresses(name, self._endpoint.port)
            except OSError as error:
                failure = FenceUnavailable(f"{doing}: {name}: {error}")
                continue
            for address in addresses:
                if not left:
                    break
                try:
                    place = None if address is None else self._reach(name, address, self._endpoint.port)
                    left -= 1
                    return self._connect(doing, name, place)
                except PermissionError:
                    continue
                except OSError as error:
                    left -= 1
                    failure = FenceUnavailable(f"{doing}: {name}: {error}")
                except FenceUnavailable as error:
                    failure = error
        raise failure

    def _is_socket(self, name: str) -> bool:
        """Return whether a host is the folder of a socket on this machine, as libpq has it."""
        return name.startswith("/") and self._reach is directly

    def _connect(self, doing: str, name: str, place: tuple[str, int] | None) -> Connection:
        endpoint, (user, password) = self._endpoint, self._credentials
        at: dict[str, Any] = {"port": endpoint.port} if place is None else {"hostaddr": place[0], "port": place[1]}
        with self._security(name) as security:
            try:
                connection = Connection.connect(
                    **at,
                    dbname=endpoint.database,
                    user=user,
                    password=password or None,
                    connect_timeout=max(2, round(self.request_timeout)),  # libpq's least
                    application_name="fencepost",
                    client_encoding="utf8",
                    gssencmode="disable",
                    target_session_attrs="read-write",
                    autocommit=True,
                    **security,
                )
            except psycopg.Error as error:
                raise connection_error(doing, error) from None  # its cause has the connection's string
        connection.limit = self.request_timeout
        try:
            with translated(doing):
                connection.execute(_BEGIN, (str(round(_LOCK_WAIT * self.request_timeout * 1000)),))
        except FenceError:
            connection.close()
            raise
        return connection

    @contextmanager
    def _security(self, name: str) -> Iterator[Mapping[str, Any]]:
        """Hold the options of libpq for TLS. Raises FenceTlsFailed, naming the key of the Secret that is wrong."""
        options = self._endpoint.tls
        if options is None:
            yield {"host": name, "sslmode": "prefer", "sslcertmode": "disable"}
            return
        if self._tls is None:
            raise FenceTlsFailed(
                "no certificate authority is configured", remedy="give spec.checkpoint.postgresql.tls a Secret"
            )
        self._tls.context(verify_hostname=options.verify_hostname)  # says which key is wrong; libpq does not
        with self._tls.files() as paths:
            found: dict[str, Any] = {
                "host": options.server_name or name,  # what the certificate is checked for
                "sslmode": "verify-full" if options.verify_hostname else "verify-ca",
                "sslrootcert": paths[CA],
            }
            if CERTIFICATE in paths:
                yield {**found, "sslcert": paths[CERTIFICATE], "sslkey": paths[KEY]}
            else:
                yield {**found, "sslcertmode": "disable"}


def _addresses(name: str, port: int) -> list[str]:
    """Return the addresses of a name, in any order. Raises OSError."""
    try:
        answers = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except ValueError as error:  # a name that cannot be one, such as 'a..b'
        raise OSError(str(error)) from error
    found = {str(address[0]) for *_, address in answers}
    return random.sample(sorted(found), k=len(found))
