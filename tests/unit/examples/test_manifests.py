"""What `kubectl apply -k` sends agrees with the CRD, with the transform's file and with the tables."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from flights.sink import statements
from unit.crds.schema import ROOT as SCHEMA

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted(
    file.parent for pattern in ("*", "shop/*") for file in (ROOT / "examples").glob(f"{pattern}/pipeline.yaml")
)

example = pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.name)


def load(path: Path) -> Any:
    """A file's one document."""
    return yaml.safe_load(path.read_text())


def resources(folder: Path) -> Iterator[Path]:
    """The files of a kustomization, and of those that it includes."""
    for name in load(folder / "kustomization.yaml")["resources"]:
        path = (folder / name).resolve()
        if path.is_dir():
            yield from resources(path)
        else:
            yield path


def unknown(value: Any, schema: Any, where: str) -> list[str]:
    """Fields that the CRD does not have."""
    if isinstance(value, list):
        return [found for item in value for found in unknown(item, schema["items"], f"{where}[]")]
    if not isinstance(value, dict) or "properties" not in schema:
        return []
    return [
        found
        for name, inner in value.items()
        for found in (
            unknown(inner, schema["properties"][name], f"{where}.{name}")
            if name in schema["properties"]
            else [f"{where}.{name}"]
        )
    ]


def schema_of(folder: Path) -> Path:
    """The script that makes the tables: SQL where the fence is in PostgreSQL."""
    return next(path for path in (folder / "schema.sql", folder / "schema.cql") if path.is_file())


@example
def test_every_field_is_the_crds(folder: Path) -> None:
    assert unknown(load(folder / "pipeline.yaml")["spec"], SCHEMA["properties"]["spec"], "spec") == []


@example
def test_every_file_is_in_the_kustomization(folder: Path) -> None:
    kustomization = load(folder / "kustomization.yaml")
    code = [file for generated in kustomization["configMapGenerator"] for file in generated["files"]]

    listed = {*resources(folder), *(folder / file for file in [*code, "kustomization.yaml"]), schema_of(folder)}
    local = {*folder.glob("*.jsonl")}  # records for a run on the laptop

    found = {file for file in folder.iterdir() if file.is_file()} - local
    assert found == {file for file in listed if file.parent == folder}
    assert all(file.is_file() for file in listed)


@example
def test_the_entrypoint_is_in_the_config_map(folder: Path) -> None:
    job = load(folder / "pipeline.yaml")["spec"]["job"]
    (generated,) = load(folder / "kustomization.yaml")["configMapGenerator"]
    module, _, function = job["entrypoint"].partition(":")

    assert job["codeFrom"]["configMapName"] == generated["name"]
    assert f"{module}.py" in generated["files"]
    assert f"def {function}(" in (folder / f"{module}.py").read_text()


@example
def test_the_schema_makes_every_sinks_table(folder: Path) -> None:
    script = statements(schema_of(folder).read_text())
    made = {name for text in script for name in re.findall(r"^CREATE TABLE IF NOT EXISTS (\S+)", text)}
    sinks = load(folder / "pipeline.yaml")["spec"]["sinks"]
    tables = [sink["cassandra"] for sink in sinks if "cassandra" in sink]
    wanted = {f"{table['keyspace']}.{table['table']}" for table in tables}
    assert (wanted or {sink["name"] for sink in sinks}) == made


@example
def test_the_pipelines_name_is_its_folders(folder: Path) -> None:
    assert load(folder / "pipeline.yaml")["metadata"]["name"] == folder.name


@example
def test_the_secret_is_the_one_that_is_named(folder: Path) -> None:
    (secret,) = (load(file) for file in resources(folder) if file.name == "secret.yaml")
    (checkpoint,) = load(folder / "pipeline.yaml")["spec"]["checkpoint"].values()

    assert checkpoint["credentialsFrom"]["secretName"] == secret["metadata"]["name"]
    assert set(secret["stringData"]) == {"username", "password"}
