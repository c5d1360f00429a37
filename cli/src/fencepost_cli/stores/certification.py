"""The promises of a store that the fence could be kept in, tried one after another in a keyspace of their own."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from fencepost.fence import (
    FenceCredentialsRejected,
    FenceEndpointInvalid,
    FenceError,
    FenceTable,
    FenceUnauthorized,
)
from fencepost.fence.cassandra.errors import translated
from fencepost.fence.cassandra.schema import has_keyspace
from fencepost.fence.cassandra.session import connect
from fencepost.fence.cassandra.table import create_schema, new_replication
from fencepost.fence.promises import BrokenPromise, Promise
from fencepost.fence.promises.keyspace import PROMISES as OF_A_KEYSPACE
from fencepost.fence.promises.keyspace import Scratch
from fencepost.fence.promises.table import PROMISES as OF_A_TABLE
from fencepost_cli.errors import CliError
from fencepost_cli.ports import REMOVAL, Certificate, Certified, StoreToCertify

REQUEST_TIMEOUT: Final = 20.0
"""Seconds for one request."""
DROPPED_WITHIN: Final = 60.0
"""Seconds for DROP KEYSPACE, which deletes the files of all tables."""

Subject = TypeVar("Subject")


def certify_store(store: StoreToCertify, show: Callable[[str], object]) -> Certificate:
    """Create a keyspace, try each promise in it, and drop it, also after an error or an interrupt. Raises CliError.

    Only the addresses that the endpoint names are dialled.
    """
    with _explained(store):
        session = connect(
            store.endpoint,
            credentials=store.credentials,
            request_timeout=REQUEST_TIMEOUT,
            discover=False,
            tls=store.tls,
        )
    scratch = Scratch(session, f"fencepost_certify_{uuid.uuid4().hex[:12]}")
    try:
        with _explained(store), translated("reading the version"):
            version = session.execute("SELECT release_version FROM system.local").one().release_version
        promises = [*_tried(scratch, store, show)]
    finally:
        session.cluster.shutdown()
    return Certificate(
        version=str(version),
        protocol=session.cluster.protocol_version,
        keyspace=scratch.keyspace,
        promises=promises,
    )


def _tried(scratch: Scratch, store: StoreToCertify, show: Callable[[str], object]) -> Iterator[Certified]:
    creation: Promise[Scratch] = Promise(
        name="the fence's tables can be created",
        needed_by="createSchema",
        check=lambda scratch, _: _created(scratch, store.replicas),
    )
    removal: Promise[Scratch] = Promise(name=REMOVAL, needed_by="this command", check=_dropped)
    try:
        first = _outcome(creation, scratch, show)
        yield first
        table: FenceTable = scratch.fence
        for promise in OF_A_TABLE:
            yield _outcome(promise, table, show) if first.kept else _not_tried(promise)
        for of_keyspace in OF_A_KEYSPACE:
            yield _outcome(of_keyspace, scratch, show) if first.kept else _not_tried(of_keyspace)
    finally:
        last = _outcome(removal, scratch, show)
    yield last


def _created(scratch: Scratch, replicas: int | None) -> str:
    replication = new_replication(scratch.session, strategy="NetworkTopologyStrategy", factor=replicas)
    create_schema(scratch.session, scratch.keyspace, replication)
    scratch.prepare()
    return ", ".join(f"{name}: {value}" for name, value in replication.items() if name != "class")


def _dropped(scratch: Scratch, _: str) -> None:
    with translated("dropping the keyspace"):
        if has_keyspace(scratch.session, scratch.keyspace):
            scratch.session.execute(f'DROP KEYSPACE IF EXISTS "{scratch.keyspace}"', timeout=DROPPED_WITHIN)


def _outcome(promise: Promise[Subject], subject: Subject, show: Callable[[str], object]) -> Certified:
    show(promise.name)
    start = time.monotonic()
    kept = True
    try:
        detail = promise.check(subject, f"certify/{uuid.uuid4()}/{promise.name.replace(' ', '-')}") or ""
    except (BrokenPromise, FenceError) as error:
        kept, detail = False, str(error)
    return Certified(
        promise=promise.name,
        needed_by=promise.needed_by,
        kept=kept,
        detail=detail,
        seconds=round(time.monotonic() - start, 1),
    )


def _not_tried(promise: Promise[Subject]) -> Certified:
    return Certified(promise=promise.name, needed_by=promise.needed_by, kept=None, detail="not tried")


@contextmanager
def _explained(store: StoreToCertify) -> Iterator[None]:
    """Say in two lines why there is no connection, without the name and password."""
    try:
        yield
    except FenceUnauthorized as error:
        raise _error(store, error, "grant the account SELECT ON KEYSPACE system") from error
    except FenceCredentialsRejected as error:
        raise _error(store, error, "correct --username, or its password") from error
    except FenceEndpointInvalid as error:
        raise _error(store, error, error.remedy) from error
    except FenceError as error:
        raise _error(
            store, error, "see whether the store answers at this address, and pass --ca if it needs TLS"
        ) from error


def _error(store: StoreToCertify, error: FenceError, remedy: str) -> CliError:
    text = f"{store.endpoint.address}: {error}"
    if store.credentials and (password := store.credentials[1]):
        text = text.replace(password, "***")
    return CliError(text, remedy=remedy)
