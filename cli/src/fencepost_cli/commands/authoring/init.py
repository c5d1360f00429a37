"""`fencepost init`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
import yaml

from fencepost_cli.commands.output import print_line
from fencepost_cli.errors import CliError
from fencepost_cli.projects.project import Choices, Ci, module_of, project_files, write_project
from fencepost_operator.api import Spec, parse


def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the pipeline, its folder and its module.")],
    *,
    topic: Annotated[str | None, typer.Option("--topic", help="The topic that is read; NAME by default.")] = None,
    keyspace: Annotated[str | None, typer.Option("--keyspace", help="Of the table.")] = None,
    table: Annotated[str | None, typer.Option("--table", help="The table that is written.")] = None,
    image: Annotated[str | None, typer.Option("--image", help="The image that the Dockerfile builds.")] = None,
    stateful: Annotated[
        bool | None, typer.Option("--stateful/--stateless", help="Whether rows depend on earlier records.")
    ] = None,
    ci: Annotated[Ci | None, typer.Option("--ci", help="Where the project is tested after each push.")] = None,
    kafka: Annotated[str, typer.Option("--kafka", help="Bootstrap servers, as host:port.")] = "kafka:9092",
    cassandra: Annotated[str, typer.Option("--cassandra", help="A node of Cassandra.")] = "cassandra",
    folder: Annotated[Path | None, typer.Option("--folder", help="Where to write; ./NAME by default.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Take the defaults, and ask nothing.")] = False,
) -> None:
    """Write a new project: function, test, table, pipeline.yaml, Dockerfile and CI file. Overwrites nothing."""
    module = module_of(name)
    asks = sys.stdin.isatty() and not yes

    def chosen(given: str | None, question: str, default: str) -> str:
        return given or (str(typer.prompt(question, default=default, err=True)) if asks else default)

    if stateful is None:
        stateful = asks and typer.confirm("Do rows depend on earlier records (counts, sessions, joins)?", err=True)
    choices = Choices(
        name=name,
        topic=chosen(topic, "Topic", name),
        keyspace=chosen(keyspace, "Keyspace", module),
        table=chosen(table, "Table", module),
        image=chosen(image, "Image", f"registry.example/{name}:1"),
        is_stateful=stateful,
        ci=ci or _ci(chosen(None, f"CI ({', '.join(Ci)})", Ci.GITHUB)),
        kafka=kafka,
        cassandra=cassandra,
    )
    where = folder or Path(name)
    contents = project_files(choices)
    _check_manifest(contents["pipeline.yaml"])
    write_project(where, contents)
    for path in contents:
        print_line(f"wrote {where / path}")
    print_line(f"next: cd {where}, run `pytest` and `fencepost run --local pipeline.yaml`; README.md has the rest")


def _ci(text: str) -> Ci:
    try:
        return Ci(text)
    except ValueError as error:
        raise CliError(f"{text!r} is not a kind of CI", remedy=f"choose one of {', '.join(Ci)}") from error


def _check_manifest(text: str) -> None:
    """Raise CliError for names that the API server would refuse."""
    parsed = parse(yaml.safe_load(text))
    if not isinstance(parsed, Spec):
        raise CliError(f"{parsed[0].field}: {parsed[0].problem}", remedy=f"choose another name: {parsed[0].remedy}")
