"""What every command accepts, and the way from there to the pipeline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, TypeAlias

import typer

from fencepost.batch import Watermarks
from fencepost.fence import FenceRow
from fencepost_cli.access import Overrides, cassandra_access, kafka_access, split_reference
from fencepost_cli.errors import CliError
from fencepost_cli.output import Format
from fencepost_cli.ports import CassandraAccess, Found, Ports, Store

PipelineArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="PIPELINE", help="NAMESPACE/NAME, or NAME in the namespace of -n or of the context.")
]
NamespaceOption: TypeAlias = Annotated[str | None, typer.Option("--namespace", "-n", help="The pipeline's namespace.")]
ContextOption: TypeAlias = Annotated[str | None, typer.Option("--context", help="A context of the kubeconfig.")]
OutputOption: TypeAlias = Annotated[Format, typer.Option("--output", "-o", help="For people, or for scripts.")]
ScopeOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--scope", help="The operator's scope, the first part of the fence row's key. [default: the run's]"),
]
CassandraOption: TypeAlias = Annotated[
    str | None, typer.Option("--cassandra", metavar="HOST:PORT", help="In place of the spec's contact points.")
]
KafkaOption: TypeAlias = Annotated[
    str | None, typer.Option("--kafka", metavar="HOST:PORT", help="In place of the spec's bootstrap servers.")
]

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True, slots=True)
class Target:
    """The pipeline of one command and the ways to its parts."""

    ports: Ports
    found: Found
    overrides: Overrides

    @property
    def cassandra(self) -> CassandraAccess:
        """The way to the fence. Raises CliError."""
        return cassandra_access(self.found, self.overrides)

    @contextmanager
    def store(self) -> Iterator[Store]:
        """Open the pipeline's Cassandra for the block. Raises CliError."""
        with self.ports.store(self.cassandra) as store:
            yield store

    def watermarks(self) -> Watermarks:
        """Return the bounds of each partition's log. Raises CliError."""
        return self.ports.log(kafka_access(self.found, self.overrides))

    def row(self, store: Store) -> FenceRow:
        """Return the fence row. Raises CliError without one."""
        row = store.row()
        if row is None or row.is_released:
            guessed = self.overrides.scope is None and self.found.scope is None
            hint = "; the pipeline has no run that names the operator's scope: pass --scope" if guessed else ""
            raise CliError(
                f"there is no fence row {self.cassandra.pipeline} in keyspace {self.cassandra.keyspace}",
                remedy=f"see the conditions of `kubectl describe spl -n {self.found.key.namespace}"
                f" {self.found.key.name}`: the operator creates the row before the first run{hint}",
            )
        return row


def target(  # each is an option of the command line
    context: typer.Context,
    pipeline: str,
    *,
    namespace: str | None,
    kubeconfig_context: str | None,
    scope: str | None = None,
    cassandra: str | None = None,
    kafka: str | None = None,
) -> Target:
    """Find the pipeline. Raises CliError."""
    ports: Ports = context.find_object(Ports) or _no_ports()
    where, name = split_reference(pipeline, namespace)
    found = ports.cluster(kubeconfig_context).find(name, where)
    return Target(ports, found, Overrides(scope=scope, cassandra=cassandra, kafka=kafka))


def parse_since(text: str | None, *, now: datetime | None = None) -> datetime | None:
    """Return the moment of '90m', '2d' or an ISO 8601 time; a time without a zone is UTC. Raises CliError."""
    if text is None:
        return None
    span = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if span:
        return (now or datetime.now(UTC)) - timedelta(seconds=int(span[1]) * _UNITS[span[2]])
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise CliError(
            f"--since {text!r} is neither an age nor a time", remedy="write 90m, 12h, 2d, or 2026-01-31T12:00:00Z"
        ) from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _no_ports() -> Ports:
    raise CliError("the command was started without its ports", remedy="start it as `fencepost`")
