"""The files of a new project, by what its author chose."""

from __future__ import annotations

import keyword
import re
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from fencepost_cli.errors import CliError

BASE_IMAGE: Final = "registry.example/fencepost-job:0.1.0"
_NAME: Final = re.compile("[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
_TEMPLATES: Final = "templates"
_SUFFIX: Final = ".template"
"""Of a template that tools would take for one of this repository's own files."""


class Ci(StrEnum):
    """Where the project is tested after each push."""

    GITHUB = "github"
    GITLAB = "gitlab"
    NONE = "none"


_CI_FILES: Final[Mapping[Ci, str]] = {Ci.GITHUB: ".github/workflows/ci.yaml", Ci.GITLAB: ".gitlab-ci.yml"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What a project is made of: names, and addresses of Kafka ('host:port') and Cassandra ('host')."""

    name: str
    topic: str
    keyspace: str
    table: str
    image: str
    is_stateful: bool
    ci: Ci
    kafka: str = "kafka:9092"
    cassandra: str = "cassandra"


def module_of(name: str) -> str:
    """Return the Python module of a project. Raises CliError for a name that is not a pipeline's and a module's."""
    module = name.replace("-", "_")
    if not _NAME.fullmatch(name) or keyword.iskeyword(module) or module in {"fencepost", "pyspark", "test"}:
        raise CliError(
            f"{name!r} cannot name a pipeline and its Python module",
            remedy="use at most 40 lower-case letters, digits and dashes, and begin with a letter",
        )
    return module


def project_files(choices: Choices) -> dict[str, str]:
    """Return the content of each file by its path. Raises CliError for the name."""
    module = module_of(choices.name)
    kind, function = ("stateful", "stream") if choices.is_stateful else ("stateless", "transform")
    names = {
        "name": choices.name,
        "module": module,
        "function": function,
        "mode": "\n    mode: Stateful" if choices.is_stateful else "",
        "topic": choices.topic,
        "keyspace": choices.keyspace,
        "table": choices.table,
        "image": choices.image,
        "repository": _without_tag(choices.image),
        "base": BASE_IMAGE,
        "kafka": choices.kafka,
        "cassandra": choices.cassandra,
        "summary": "Counts of records by id and hour, in Cassandra."
        if choices.is_stateful
        else f"One row in Cassandra for each record of the topic `{choices.topic}`.",
    }
    paths = {
        "job.py": f"{module}.py",
        "test_job.py": f"test_{module}.py",
        "gitignore": ".gitignore",
        "records.jsonl": f"{choices.topic}.jsonl",
    }
    found = {
        paths.get(name, name): string.Template(template.read_text()).substitute(names)
        for template in _templates(kind)
        for name in [template.name.removesuffix(_SUFFIX)]
    }
    if choices.ci is not Ci.NONE:
        text = (files("fencepost_cli.projects") / _TEMPLATES / "ci" / f"{choices.ci}.yaml").read_text()
        found[_CI_FILES[choices.ci]] = string.Template(text).substitute(names)
    return dict(sorted(found.items()))


def write_project(folder: Path, contents: Mapping[str, str]) -> None:
    """Write new files. Raises CliError, and writes nothing, where one exists."""
    existing = [path for path in contents if (folder / path).exists()]
    if existing:
        raise CliError(
            f"{folder} has {', '.join(existing)} already, and init overwrites no file",
            remedy="choose another name, or move the file away",
        )
    try:
        for path, text in contents.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            with (folder / path).open("x") as file:
                file.write(text)
    except OSError as error:
        raise CliError(f"cannot write the project: {error}", remedy="choose another folder with --folder") from error


def _templates(kind: str) -> Iterator[Traversable]:
    for folder in ("common", kind):
        yield from (files("fencepost_cli.projects") / _TEMPLATES / folder).iterdir()


def _without_tag(image: str) -> str:
    before, _, tag = image.rpartition(":")
    return image if not before or "/" in tag else before
