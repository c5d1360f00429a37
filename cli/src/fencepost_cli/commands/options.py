"""What every command accepts, and the way from there to the pipeline."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Concatenate, Final, ParamSpec, TypeAlias

import typer

from fencepost.batch import Watermarks
from fencepost.fence import FenceRow
from fencepost.fence.snapshots import Snapshot
from fencepost_cli.access import Overrides, fence_access, kafka_access, split_reference
from fencepost_cli.commands.output import Format, note
from fencepost_cli.errors import CliError
from fencepost_cli.ports import Cluster, FenceAccess, Forwards, Found, KafkaAccess, Objects, Ports, Store
from fencepost_operator.api import ObjectKey, Spec

P = ParamSpec("P")

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


_Pipeline: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="PIPELINE", help="NAMESPACE/NAME, or NAME in the namespace of -n or of the context."),
]
_Trial: TypeAlias = Annotated[
    str, typer.Argument(metavar="TRIAL", help="NAMESPACE/NAME, or NAME in the namespace of -n or of the context.")
]
_Namespace: TypeAlias = Annotated[str | None, typer.Option("--namespace", "-n", help="The pipeline's namespace.")]
_Context: TypeAlias = Annotated[str | None, typer.Option("--context", help="A context of the kubeconfig.")]
_Output: TypeAlias = Annotated[Format, typer.Option("--output", "-o", help="For people, or for scripts.")]


@dataclass(frozen=True, slots=True)
class Named:
    """The pipeline or the trial of a command that asks the API server alone, and reads no Secret unless it says so."""

    objects: Objects
    key: ObjectKey
    output: Format

    @property
    def is_json(self) -> bool:
        """Whether a script reads what is printed."""
        return self.output is Format.JSON


def of_object(command: Callable[Concatenate[Named, P], None]) -> Callable[..., None]:
    """Make a command of a function of a pipeline's objects: its options are the shared ones, and after them its own."""

    def run(
        context: typer.Context,
        pipeline: _Pipeline,
        namespace: _Namespace = None,
        kubeconfig_context: _Context = None,
        output: _Output = Format.TABLE,
        **own: Any,  # noqa: ANN401 - the command's options, of any type
    ) -> None:
        found = _named(context, split_reference(pipeline, namespace), kubeconfig_context, output)
        grouped = _grouped(groups, own)
        command(found, **own, **grouped)  # type: ignore[call-arg]

    groups = _groups(command)
    _sign(run, command, set())
    return run


def of_trial(command: Callable[Concatenate[Named, P], None]) -> Callable[..., None]:
    """Make a command of a function of a PipelineTrial, as `of_object` does of one of a pipeline."""

    def run(
        context: typer.Context,
        trial: _Trial,
        namespace: _Namespace = None,
        kubeconfig_context: _Context = None,
        output: _Output = Format.TABLE,
        **own: Any,  # noqa: ANN401 - the command's options, of any type
    ) -> None:
        found = _named(context, split_reference(trial, namespace, kind="trial"), kubeconfig_context, output)
        command(found, **own)  # type: ignore[call-arg]

    _sign(run, command, set())
    return run


def _named(context: typer.Context, place: tuple[str | None, str], kubeconfig: str | None, output: Format) -> Named:
    objects = ports_of(context).objects(kubeconfig)
    return Named(objects, objects.locate(place[1], place[0]), output)


@dataclass(frozen=True, slots=True)
class Target:
    """The pipeline of one command, the ways to its parts, and how to print."""

    ports: Ports
    cluster: Cluster
    found: Found
    overrides: Overrides
    output: Format
    forwards: Forwards

    @property
    def key(self) -> ObjectKey:
        """The pipeline's place."""
        return self.found.key

    @property
    def spec(self) -> Spec:
        """What the pipeline asks for."""
        return self.found.spec

    @property
    def is_json(self) -> bool:
        """Whether a script reads what is printed."""
        return self.output is Format.JSON

    @property
    def fence(self) -> FenceAccess:
        """The way to the fence. Raises CliError."""
        return fence_access(self.found, self.overrides, self.forwards)

    @property
    def kafka(self) -> KafkaAccess:
        """The way to the topics. Raises CliError."""
        return kafka_access(self.found, self.overrides, self.forwards)

    @contextmanager
    def store(self) -> Iterator[Store]:
        """Open the database of the fence for the block. Raises CliError."""
        with self.ports.store(self.fence) as store:
            yield store

    def watermarks(self) -> Watermarks:
        """Return the bounds of each partition's log. Raises CliError."""
        return self.ports.log(self.kafka)

    def row(self, store: Store) -> FenceRow:
        """Return the fence row. Raises CliError without one."""
        row = store.row()
        if row is None or row.is_released:
            guessed = self.overrides.scope is None and self.found.scope is None
            hint = "; the pipeline has no run that names the operator's scope: pass --scope" if guessed else ""
            raise CliError(
                f"fence row {self.fence.pipeline} not found in {self.fence.place}",
                remedy=f"see the conditions of `kubectl describe spl -n {self.key.namespace}"
                f" {self.key.name}`: the operator creates the row before the first run{hint}",
            )
        return row

    def snapshot(self, store: Store, text: str) -> Snapshot:
        """Return the snapshot with this name or id, of several with one name the newest. Raises CliError."""
        named = [one for one in store.snapshots() if text in {one.name, str(one.id)}]
        whole = store.snapshot(named[0]) if named else None
        if whole is None:
            raise CliError(
                f"{self.key} has no snapshot {text!r}", remedy=f"choose one of `fencepost snapshots list {self.key}`"
            )
        return whole


class Needs(StrEnum):
    """What a command reads beside the Kubernetes API: each brings its options."""

    FENCE = "fence"
    KAFKA = "kafka"


_OPTIONS_OF: Final = {Needs.FENCE: ("scope", "cassandra", "postgresql"), Needs.KAFKA: ("kafka",)}


def of_pipeline(*needs: Needs) -> Callable[[Callable[Concatenate[Target, P], None]], Callable[..., None]]:
    """Make a command of a function of a pipeline: its options are the shared ones, and after them its own.

    A parameter whose type is a dataclass stands for the fields of it: options that several commands have.
    """

    def made(command: Callable[Concatenate[Target, P], None]) -> Callable[..., None]:
        def run(  # each is an option of the command line
            context: typer.Context,
            pipeline: _Pipeline,
            namespace: _Namespace = None,
            kubeconfig_context: _Context = None,
            output: _Output = Format.TABLE,
            scope: Annotated[
                str | None,
                typer.Option(
                    "--scope", help="The operator's scope, the first part of the fence row's key. [default: the run's]"
                ),
            ] = None,
            cassandra: Annotated[
                str | None,
                typer.Option("--cassandra", metavar="HOST:PORT", help="In place of the spec's contact points."),
            ] = None,
            postgresql: Annotated[
                str | None,
                typer.Option("--postgresql", metavar="HOST:PORT", help="In place of the spec's hosts of PostgreSQL."),
            ] = None,
            kafka: Annotated[
                str | None,
                typer.Option("--kafka", metavar="HOST:PORT", help="In place of the spec's bootstrap servers."),
            ] = None,
            **own: Any,  # noqa: ANN401 - the command's options, of any type
        ) -> None:
            ports: Ports = ports_of(context)
            where, name = split_reference(pipeline, namespace)
            cluster = ports.cluster(kubeconfig_context)
            overrides = Overrides(scope=scope, cassandra=cassandra, postgresql=postgresql, kafka=kafka)
            grouped = _grouped(groups, own)
            found = cluster.find(name, where)
            with cluster.forwards(found.key.namespace, note) as forwards:
                command(Target(ports, cluster, found, overrides, output, forwards), **own, **grouped)  # type: ignore[call-arg]

        groups = _groups(command)
        left_out = {option for need, options in _OPTIONS_OF.items() if need not in needs for option in options}
        _sign(run, command, left_out)
        return run

    return made


def _sign(run: Callable[..., None], command: Callable[..., None], left_out: set[str]) -> None:
    """Give `run` what typer reads: the name, the text, and its own options without `left_out` before the command's."""
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    shared = inspect.signature(run, eval_str=True).parameters.values()
    own = [each for one in _own(command) for each in _expanded(one)]
    named = [one for one in (*shared, *own) if one.kind is not one.VAR_KEYWORD and one.name not in left_out]
    keywords = [one.replace(kind=one.KEYWORD_ONLY) for one in named]  # in any order, with and without a default
    run.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in keywords}


def _own(command: Callable[..., object], skipped: int = 1) -> list[inspect.Parameter]:
    """Return the parameters of a command after the target, or of a group of options."""
    return list(inspect.signature(command, eval_str=True).parameters.values())[skipped:]


def _groups(command: Callable[..., object]) -> list[tuple[str, type[Any]]]:
    """Return the parameters of a command that stand for several options, with their dataclasses."""
    return [(one.name, kind) for one in _own(command) if (kind := _group(one)) is not None]


def _grouped(groups: Sequence[tuple[str, type[Any]]], own: dict[str, Any]) -> dict[str, Any]:
    """Take the options of groups out of `own`, and return each group."""
    return {name: kind(**{each.name: own.pop(each.name) for each in fields(kind)}) for name, kind in groups}


def _group(parameter: inspect.Parameter) -> type[Any] | None:
    """Return the dataclass whose fields are options, None for a parameter that is one option."""
    kind: type[Any] = parameter.annotation
    return kind if is_dataclass(kind) else None


def _expanded(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    kind = _group(parameter)
    return [parameter] if kind is None else _own(kind, skipped=0)


def parse_place(text: str, option: str) -> tuple[str, int, int]:
    """Return (topic, partition, offset) of 'topic/partition@offset', or with a slash for the @. Raises CliError."""
    found = re.fullmatch(r"([A-Za-z0-9._-]{1,249})/([0-9]{1,10})[@/]([0-9]{1,18})", text)
    if found is None:
        raise CliError(
            f"{option} {text!r} is not the place of a record", remedy=f"write {option} TOPIC/PARTITION@OFFSET"
        )
    return found[1], int(found[2]), int(found[3])


def parse_span(text: str, option: str) -> timedelta:
    """Return the span of '90m', '36h', '7d'. Raises CliError."""
    found = re.fullmatch(r"([0-9]{1,7})([smhd])", text)
    if found is None:
        raise CliError(f"{option} {text!r} is not a duration", remedy=f"write {option} 36h, or {option} 7d")
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


def parse_since(text: str | None, *, option: str = "--since", now: datetime | None = None) -> datetime | None:
    """Return the moment of '90m', '2d' or an ISO 8601 time; a time without a zone is UTC. Raises CliError."""
    if text is None:
        return None
    span = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if span:
        return (now or datetime.now(UTC)) - timedelta(seconds=int(span[1]) * _UNITS[span[2]])
    return parse_moment(
        text, option, what="neither an age nor a time", remedy="write 90m, 12h, 2d, or 2026-01-31T12:00:00Z"
    )


def parse_moment(text: str, option: str, *, what: str = "not a time", remedy: str | None = None) -> datetime:
    """Return the moment of an ISO 8601 time; one without a zone is UTC. Raises CliError."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise CliError(
            f"{option} {text!r} is {what}", remedy=remedy or f"write {option} 2026-01-31T12:00:00Z"
        ) from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def ports_of(context: typer.Context) -> Ports:
    """Return the adapters of a command. Raises CliError without any."""
    found = context.find_object(Ports)
    if found is None:
        raise CliError("the command was started without its ports", remedy="start it as `fencepost`")
    return found
