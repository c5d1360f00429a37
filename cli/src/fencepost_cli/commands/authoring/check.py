"""`fencepost check`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import typer

from fencepost.contract.code_check import CodeRequest, DeclaredTable
from fencepost_cli.access import Overrides, fence_access, kafka_access
from fencepost_cli.checking import image as images
from fencepost_cli.checking.cluster import missing_objects, missing_tables, tables_of
from fencepost_cli.checking.cql_schema import files_beside, read_tables
from fencepost_cli.checking.manifest import Manifest, read_manifests
from fencepost_cli.commands.options import ports_of
from fencepost_cli.commands.output import Format, note, print_json, print_line, working
from fencepost_cli.errors import CliError, ExitCode
from fencepost_cli.local.request import at_registry
from fencepost_cli.ports import Cluster, Finding, Forwards, Found, Ports
from fencepost_operator.api import ObjectKey, ReconcileConfig, Spec
from fencepost_operator.desired.jobs.driver_config import driver_config

_SUFFIXES: Final = frozenset({".yaml", ".yml"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    ports: Ports
    code: Path | None
    schema: Path | None
    imports: bool
    image: str | None
    overrides: Overrides
    registry_credentials: Path | None


def check(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="PIPELINE.YAML|IMAGE", help="A manifest, or an image of the driver.")
    ],
    *,
    code: Annotated[Path | None, typer.Option("--code", help="Folder of the code. [default: the manifest's]")] = None,
    schema: Annotated[
        Path | None, typer.Option("--schema", help="CQL of the tables. [default: *.cql beside the manifest]")
    ] = None,
    no_code: Annotated[bool, typer.Option("--no-code", help="Do not import the code.")] = False,
    pipeline: Annotated[
        Path | None, typer.Option("--pipeline", help="Of an IMAGE: the manifest whose function is tried in it.")
    ] = None,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Also whether Secrets, topics and tables exist, by your kubeconfig.")
    ] = False,
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Where the pipeline will be.")] = None,
    kubeconfig_context: Annotated[str | None, typer.Option("--context", help="A context of the kubeconfig.")] = None,
    cassandra: Annotated[
        str | None, typer.Option("--cassandra", metavar="HOST:PORT", help="In place of the spec's contact points.")
    ] = None,
    kafka: Annotated[
        str | None, typer.Option("--kafka", metavar="HOST:PORT", help="In place of the spec's bootstrap servers.")
    ] = None,
    registry: Annotated[
        str | None, typer.Option("--registry", metavar="URL", help="In place of the spec's schema registry.")
    ] = None,
    registry_credentials: Annotated[
        Path | None,
        typer.Option("--registry-credentials", metavar="FOLDER", help="The keys of the registry's Secret, as files."),
    ] = None,
    output: Annotated[Format, typer.Option("--output", "-o", help="For people, or for scripts.")] = Format.TABLE,
) -> None:
    """Find what is wrong with a manifest, its code or an image, before it runs; exit code 1 if something is."""
    ports = ports_of(context)
    is_manifest = Path(target).suffix in _SUFFIXES
    manifest = Path(target) if is_manifest else pipeline
    options = _Options(
        ports=ports,
        code=code,
        schema=schema,
        imports=not no_code,
        image=None if is_manifest else target,
        overrides=Overrides(cassandra=cassandra, kafka=kafka, registry=registry),
        registry_credentials=registry_credentials,
    )
    found = [] if is_manifest else _image(options, manifest)
    for one in read_manifests(manifest) if manifest else ():
        found += one.findings
        if one.spec is not None:
            needed = _Cluster(ports.cluster(kubeconfig_context), namespace or one.namespace) if cluster else None
            found += _checked(one, one.spec, manifest or Path(), options, needed)
    _print(target, found, output)


@dataclass(frozen=True, slots=True)
class _Cluster:
    cluster: Cluster
    namespace: str | None


def _image(options: _Options, manifest: Path | None) -> list[Finding]:
    specs = [one.spec for one in read_manifests(manifest) if one.spec] if manifest else []
    with working("inspecting the image"):
        report = options.ports.image(options.image or "")
    return images.findings(report, specs[0].job.entrypoint if specs else None)


def _checked(one: Manifest, spec: Spec, path: Path, options: _Options, needed: _Cluster | None) -> Iterator[Finding]:
    files = (options.schema,) if options.schema else files_beside(path)
    tables = read_tables(files)
    if tables:
        yield from _undeclared(spec, tables, " or ".join(file.name for file in files))
    if needed is not None:
        online = dict[str, DeclaredTable]()
        yield from _in_cluster(one.name, spec, options, needed, online)
        tables = {**tables, **online}
    if not options.imports:
        return
    if options.image or options.code or any(path.parent.glob("*.py")):
        yield from _code(one, spec, path, options, tables)
    else:
        note(f"{path.parent} has no Python module: name the folder of {spec.job.entrypoint} with --code")


def _in_cluster(
    name: str, spec: Spec, options: _Options, needed: _Cluster, online: dict[str, DeclaredTable]
) -> Iterator[Finding]:
    """Yield what the cluster lacks, and add the tables that it has to `online`."""
    found, missing = needed.cluster.referenced(spec, name, needed.namespace)
    yield from missing_objects(missing, found.key.namespace)
    if any(reference.startswith("Secret/") for reference in missing):
        note("topics and tables are not checked while a Secret is missing")
        return
    with needed.cluster.forwards(found.key.namespace, note) as forwards:
        yield from _guarded("spec.source.kafka", lambda: _topics(found, options, forwards))
        yield from _guarded(_database(found.spec), lambda: _tables(found, options, forwards, online))


def _database(spec: Spec) -> str:
    return f"spec.checkpoint.{'cassandra' if spec.checkpoint.cassandra else 'postgresql'}"


def _guarded(place: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Yield what a check finds, and as a finding why it cannot be done: the others are done nevertheless."""
    try:
        yield from check()
    except CliError as error:
        yield Finding(place, str(error), error.remedy)


def _topics(found: Found, options: _Options, forwards: Forwards) -> Iterator[Finding]:
    options.ports.log(kafka_access(found, options.overrides, forwards))
    yield from ()


def _tables(found: Found, options: _Options, forwards: Forwards, online: dict[str, DeclaredTable]) -> Iterator[Finding]:
    with options.ports.store(fence_access(found, options.overrides, forwards)) as store:
        online.update(tables_of(found.spec, store))
    yield from missing_tables(found.spec, online)


def _undeclared(spec: Spec, tables: Mapping[str, DeclaredTable], files: str) -> Iterator[Finding]:
    for index, sink in enumerate(spec.sinks):
        if sink.cassandra and not sink.cassandra.create_table:
            name = f"{sink.cassandra.keyspace}.{sink.cassandra.table}"
            if name not in tables:
                remedy = f"correct one of them; the tables there are {', '.join(sorted(tables))}"
                yield Finding(f"spec.sinks[{index}].cassandra.table", f"{name} is not in {files}", remedy)


def _code(
    one: Manifest, spec: Spec, path: Path, options: _Options, tables: Mapping[str, DeclaredTable]
) -> Iterator[Finding]:
    config = driver_config(
        key=ObjectKey("default", one.name),
        spec=spec,
        references={},
        config=ReconcileConfig(cluster_uid=""),
        epoch=1,
        generation=1,
    )
    folder = "/opt/fencepost/code" if options.image else str((options.code or path.parent).resolve())
    config = replace(config, source=at_registry(config.source, options.overrides.registry))
    if options.image and (config.source.key or config.source.value):
        note("the code is not imported: its columns need the schema registry, and the container has no network")
        return
    credentials = str(options.registry_credentials.absolute()) if options.registry_credentials else ""
    request = CodeRequest(config=config, code_dir=folder, tables=tables, registry_credentials=credentials)
    with working("importing the code"):
        problems = options.ports.code(request, options.image)
    yield from (Finding(problem.place, problem.message, problem.remedy) for problem in problems)


def _print(target: str, found: list[Finding], output: Format) -> None:
    if output is Format.JSON:
        print_json({"target": target, "findings": [asdict(one) for one in found]})
    else:
        for one in found:
            print_line(f"{one.place}: {one.problem}")
            print_line(f"remedy: {one.remedy}")
        print_line(f"{target}: problems found: {len(found)}")
    if found:
        raise typer.Exit(ExitCode.FOUND)
