"""`fencepost certify`."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fencepost.contract import LOCAL_SERIAL, SERIAL, CassandraTls, PostgresqlTls
from fencepost.fence import FenceTlsFailed
from fencepost.fence.tls import TlsMaterial
from fencepost_cli.access import postgresql_endpoint, store_endpoint
from fencepost_cli.commands.options import ports_of
from fencepost_cli.commands.output import Column, Format, note, number, print_json, print_line, print_table, working
from fencepost_cli.errors import CliError, ExitCode
from fencepost_cli.ports import Certificate, StoreToCertify

PASSWORD = "FENCEPOST_CASSANDRA_PASSWORD"  # noqa: S105 - the name of a variable
POSTGRESQL_PASSWORD = "FENCEPOST_POSTGRESQL_PASSWORD"  # noqa: S105 - the name of a variable


class Serial(StrEnum):
    """Of the lightweight transactions."""

    SERIAL = SERIAL
    LOCAL_SERIAL = LOCAL_SERIAL


def certify(
    context: typer.Context,
    *,
    cassandra: Annotated[
        str | None,
        typer.Option("--cassandra", metavar="HOST[:PORT],…", help="Nodes of the store; no others are dialled."),
    ] = None,
    postgresql: Annotated[
        str | None,
        typer.Option("--postgresql", metavar="HOST[:PORT],…", help="Servers of one PostgreSQL; one takes writes."),
    ] = None,
    database: Annotated[str, typer.Option("--database", help="Of --postgresql.")] = "fencepost",
    username: Annotated[
        str | None,
        typer.Option(
            "--username",
            "-u",
            help="Of an account that may create keyspaces, or schemas; its password is in"
            f" {PASSWORD} or {POSTGRESQL_PASSWORD}.",
        ),
    ] = None,
    ca: Annotated[Path | None, typer.Option("--ca", help="Authorities as PEM: the connection then has TLS.")] = None,
    certificate: Annotated[Path | None, typer.Option("--certificate", help="Of the client, as PEM.")] = None,
    key: Annotated[Path | None, typer.Option("--key", help="Of the client's certificate, as PEM.")] = None,
    server_name: Annotated[
        str | None, typer.Option("--server-name", help="Name in the nodes' certificates. [default: the host]")
    ] = None,
    local_datacenter: Annotated[str | None, typer.Option("--local-datacenter", help="Whose nodes are asked.")] = None,
    serial: Annotated[
        Serial, typer.Option("--serial-consistency", help="As checkpoint.cassandra.serialConsistency will be.")
    ] = Serial.SERIAL,
    replicas: Annotated[
        int | None, typer.Option("--replicas", min=1, help="Of the keyspace. [default: 3, or one per node if fewer]")
    ] = None,
    output: Annotated[Format, typer.Option("--output", "-o", help="For people, or for scripts.")] = Format.TABLE,
) -> None:
    """Try what Fencepost needs of a store, in a keyspace or a schema that is dropped; exit code 1: not all."""
    credentials = _credentials(username, PASSWORD if cassandra else POSTGRESQL_PASSWORD)
    material = _material(ca, certificate, key)
    if cassandra and not postgresql:
        tls = CassandraTls(server_name=server_name) if ca else None
        endpoint = store_endpoint(cassandra, local_datacenter=local_datacenter, serial=serial.value, tls=tls)
        store = StoreToCertify(cassandra=endpoint, credentials=credentials, tls=material, replicas=replicas)
    elif postgresql and not cassandra:
        checked = PostgresqlTls(server_name=server_name) if ca else None
        store = StoreToCertify(
            postgresql=postgresql_endpoint(postgresql, database=database, tls=checked),
            credentials=_named(credentials),
            tls=material,
        )
    else:
        raise CliError("one store is needed", remedy="pass --cassandra HOST or --postgresql HOST")
    with working("certifying") as progress:
        found = ports_of(context).certify(store, progress.show)
    _print(store, found, output)
    if not all(one.kept for one in found.promises):
        raise typer.Exit(ExitCode.FOUND)


def _credentials(username: str | None, variable: str) -> tuple[str, str] | None:
    if username is None:
        return None
    if (password := os.environ.get(variable)) is not None:
        return username, password
    if not sys.stdin.isatty():
        raise CliError(f"the password for --username is missing: {variable} is not set", remedy=f"export {variable}")
    return username, str(typer.prompt("Password", hide_input=True, err=True))


def _named(credentials: tuple[str, str] | None) -> tuple[str, str]:
    if credentials is None:
        raise CliError("PostgreSQL has no anonymous account", remedy="pass --username")
    return credentials


def _material(ca: Path | None, certificate: Path | None, key: Path | None) -> TlsMaterial | None:
    if ca is None:
        if certificate or key:
            raise CliError("--certificate and --key need TLS", remedy="pass the nodes' authorities with --ca")
        return None
    named = {"ca.crt": ca, "tls.crt": certificate, "tls.key": key}
    try:
        return TlsMaterial.of({name: path.read_text() for name, path in named.items() if path is not None})
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"cannot read a certificate: {error}", remedy="name files with PEM text") from error
    except FenceTlsFailed as error:
        raise CliError(f"TLS: {error}", remedy=error.remedy) from error


def _print(store: StoreToCertify, found: Certificate, output: Format) -> None:
    kept = sum(one.kept is True for one in found.promises)
    if output is Format.JSON:
        promises = [
            {"name": one.promise, "neededBy": one.needed_by}
            | {name: value for name, value in asdict(one).items() if name in {"kept", "detail", "seconds"}}
            for one in found.promises
        ]
        print_json(
            {
                "store": store.address,
                "version": found.version,
                **({"protocol": found.protocol} if found.protocol else {}),
                store.place: found.scratch,
                "promises": promises,
            }
        )
        return
    protocol = f", native protocol v{found.protocol}" if found.protocol else ""
    print_line(f"{store.address}: version {found.version}{protocol}")
    print_line()
    print_table(
        [Column("PROMISE"), Column("KEPT"), number("SECONDS"), Column("NEEDED BY"), Column("FOUND")],
        [(one.promise, one.kept, one.seconds, one.needed_by, one.detail) for one in found.promises],
    )
    print_line()
    if any(one.promise == store.removal and not one.kept for one in found.promises):
        note(f"{store.place} {found.scratch} may still be there: drop it")
    print_line(f"promises kept: {kept} of {len(found.promises)}", style="" if kept == len(found.promises) else "red")
