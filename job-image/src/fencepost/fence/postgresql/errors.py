"""What the PostgreSQL client raises, as the fence's errors: anything but a refusal leaves the outcome unknown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg

from fencepost.fence.errors import (
    FenceCredentialsRejected,
    FenceEndpointInvalid,
    FenceError,
    FenceRowInvalid,
    FenceSchemaInvalid,
    FenceSchemaMissing,
    FenceTlsFailed,
    FenceUnauthorized,
    FenceUnavailable,
)
from fencepost.fence.tls import CA, CERTIFICATE, KEY

_UNDEFINED: Final = frozenset({"42P01", "3F000"})
"""A table, a schema that does not exist."""
_FORBIDDEN: Final = "42501"
_REFUSALS: Final = ("0A", "21", "22", "23", "42")
"""Classes of SQLSTATE in which the statement is refused for what it says; the other ones may end."""
_OF_A_ROW: Final = ("22", "23")
"""Classes of SQLSTATE in which a row is refused: data, and constraints."""
_OF_A_MOVE: Final = ("27", "38", "39", "44", "54", "P0", "428C9")
"""Those in which a table refuses a row when it is inserted: triggers and functions, WITH CHECK OPTION, limits."""
_LOGIN: Final = re.compile(
    r'password authentication failed|no password supplied|role ".*" (does not exist|is not permitted to log in)'
    r"|no pg_hba\.conf entry|certificate authentication failed|permission denied for database"
)
_NO_DATABASE: Final = re.compile(r'FATAL: +database ".*" does not exist')
_PLACE: Final = re.compile(r"(connection failed: )?connection to server (at|on socket) .{1,300}? failed: ")
"""Where libpq was connected to, which may be a port of this process that changes each time."""
_TLS: Final[tuple[tuple[re.Pattern[str], str, str], ...]] = (
    (
        re.compile(r"does not support SSL"),
        "the server offers no TLS",
        "set ssl = on in postgresql.conf, or remove spec.checkpoint.postgresql.tls",
    ),
    (
        re.compile(r"does not match host name"),
        "the server's certificate is for another name",
        "set spec.checkpoint.postgresql.tls.serverName to a name in every server's certificate",
    ),
    (
        re.compile(r"certificate verify failed"),
        "the server's certificate cannot be verified",
        f"renew it if it has expired, or store the certificate of the authority that signed it in {CA} of the Secret",
    ),
    (
        re.compile(r"valid client certificate|certificate required|unknown ca|bad certificate|decrypt error"),
        "the server asks for another client certificate",
        f"store a certificate that the server accepts in {CERTIFICATE}, and its key in {KEY}",
    ),
)
"""What libpq and OpenSSL say, what that means, and what to do. The first one that fits counts."""


def refuses_a_row(error: BaseException | None) -> bool:
    """Return whether a table refuses a row for a value, a null or a constraint. The text never decides."""
    if not isinstance(error, psycopg.Error):
        return False
    return (error.sqlstate or "").startswith(_OF_A_ROW) or (not error.sqlstate and isinstance(error, psycopg.DataError))


def refuses_a_move(error: BaseException | None) -> bool:
    """Return whether a table refuses rows for their values, a constraint, a trigger, a check option or a limit."""
    return refuses_a_row(error) or (isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith(_OF_A_MOVE))


def divides_by_zero(error: BaseException | None) -> bool:
    """Return whether a statement failed by a division by zero."""
    return isinstance(error, psycopg.errors.DivisionByZero)


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn the client's errors into the fence's; anything but a refusal is an unknown outcome."""
    try:
        yield
    except psycopg.Error as error:
        raise _fence_error(doing, error) from error
    except OSError as error:
        raise FenceUnavailable(f"{doing}: {error}") from error
    except (ValueError, TypeError, RecursionError, OverflowError) as error:  # of values that no column of ours has
        raise FenceRowInvalid(f"{doing}: an answer that cannot be read ({type(error).__name__})") from error


def connection_error(doing: str, error: psycopg.Error) -> FenceError:
    """Return the error for a connection that was not made: libpq has its words alone, no SQLSTATE."""
    text = _PLACE.sub("", " ".join(str(error).split())).strip()
    for pattern, what, remedy in _TLS:
        if pattern.search(text):
            return FenceTlsFailed(f"{doing}: {what} ({text})", remedy=remedy)
    if _LOGIN.search(text):
        return FenceCredentialsRejected(f"{doing}: {text}")
    if _NO_DATABASE.search(text):
        return FenceEndpointInvalid(
            f"{doing}: {text}", remedy="create the database, or correct spec.checkpoint.postgresql.database"
        )
    return FenceUnavailable(f"{doing}: {text}")


def _fence_error(doing: str, error: psycopg.Error) -> FenceError:
    state, text = error.sqlstate or "", " ".join(str(error).split())
    if state == _FORBIDDEN:
        return FenceUnauthorized(f"{doing}: {text}")
    if state in _UNDEFINED:
        return FenceSchemaMissing(f"{doing}: {text}")
    if state.startswith(_REFUSALS) or (not state and isinstance(error, psycopg.DataError)):
        return FenceSchemaInvalid(f"{doing}: {text}")
    return FenceUnavailable(f"{doing}: {text or type(error).__name__}")
