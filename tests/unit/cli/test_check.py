"""`fencepost check` names what is wrong with a manifest, its code, its image and its cluster, each with a remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fakes.manifests import spec
from fencepost.batch import Watermarks
from fencepost.contract import RegistryEndpoint
from fencepost.contract.code_check import CodeProblem
from fencepost_cli.checking.cql_schema import tables
from fencepost_cli.errors import CliError
from unit.cli.world import World


def manifest(folder: Path, **changes: Any) -> Path:
    body = {
        "apiVersion": "streaming.fencepost.dev/v1alpha1",
        "kind": "StreamingPipeline",
        "metadata": {"name": "orders"},
        "spec": spec(**changes),
    }
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump(body))
    return path


def found(world: World, *words: str) -> dict[str, str]:
    """Return the problems by their place."""
    ended = world.json("check", *words, code=1)
    assert all(one["remedy"] for one in ended["findings"])
    return {one["place"]: one["problem"] for one in ended["findings"]}


@pytest.mark.parametrize(
    ("changes", "place", "problem"),
    [
        ({"sorce": {}}, "spec.sorce", "is not a field"),
        ({"job": {"image": "i", "entrypoint": "orders"}}, "spec.job.entrypoint", "module:function"),
        ({"job": {"image": "i", "entrypoint": "a:b", "memmory": "1Gi"}}, "spec.job.memmory", "is not a field"),
        ({"sinks": []}, "spec.sinks", "at least 1"),
        ({"sinks": [{"name": "x", "cassandra": {"keyspace": "a", "table": "b"}, "kafka": {"topic": "t"}}]},
         "spec.sinks[0]", "has cassandra and kafka"),
        ({"onPoison": {"action": "drop"}}, "spec.onPoison.action", "'stop' or 'deadLetter'"),
        ({"state": {}}, "spec.state", "Stateless"),
    ],
)  # fmt: skip
def test_a_field_that_is_wrong_is_named(tmp_path: Path, changes: Any, place: str, problem: str) -> None:
    assert problem in found(World.usual(), str(manifest(tmp_path, **changes)))[place]


def test_a_misspelled_field_has_a_near_one_as_its_remedy(tmp_path: Path) -> None:
    ended = World.usual().run("check", str(manifest(tmp_path, sorce={})))
    assert ended.exit_code == 1
    assert ended.stdout.splitlines()[1] == "remedy: write source"


def test_a_file_that_is_not_a_pipeline_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    for text, message in (("kind: Pod", "no object of kind"), ("a: 1\na: 2", "there twice"), ("[", "cannot read")):
        path.write_text(text)
        assert message in World.usual().refused("check", str(path))
    assert "cannot read" in World.usual().refused("check", str(tmp_path / "none.yaml"))


def test_the_code_is_checked_with_the_tables_of_the_schema_file(tmp_path: Path) -> None:
    world = World.usual()
    world.code_problems = [
        CodeProblem(message="column 'x' is not in the table", remedy="make them agree", place="spec.job.entrypoint")
    ]
    path = manifest(tmp_path)
    (tmp_path / "orders.py").touch()
    (tmp_path / "schema.cql").write_text("CREATE TABLE shop.orders (id text PRIMARY KEY);")
    assert found(world, str(path)) == {"spec.job.entrypoint": "column 'x' is not in the table"}
    ((request, _),) = world.asked
    assert request.tables["shop.orders"].columns == {"id": "text"}
    assert request.config.entrypoint == "orders.job:transform"
    assert world.run("check", str(path), "--no-code").exit_code == 0


def test_a_table_that_the_schema_file_lacks_is_named(tmp_path: Path) -> None:
    (tmp_path / "schema.cql").write_text("CREATE TABLE shop.order (id text PRIMARY KEY);")
    assert "shop.orders is not in schema.cql" in found(World.usual(), str(manifest(tmp_path))).popitem()[1]


def test_each_file_of_cql_beside_the_manifest_is_read(tmp_path: Path) -> None:
    path = str(manifest(tmp_path))
    (tmp_path / "b.cql").write_text("CREATE TABLE shop.order (id text PRIMARY KEY);")
    assert "shop.orders is not in b.cql" in found(World.usual(), path).popitem()[1]
    (tmp_path / "a.cql").write_text("CREATE TABLE shop.orders (id text PRIMARY KEY);")
    assert World.usual().run("check", path).exit_code == 0
    (tmp_path / "c.cql").write_bytes(b"\xff")
    assert "cannot read" in World.usual().refused("check", path)


def test_the_cluster_is_asked_for_objects_topics_and_tables(tmp_path: Path) -> None:
    world = World.usual()
    path = str(manifest(tmp_path))
    assert world.run("check", path, "--cluster").exit_code == 0
    world.missing = ["ConfigMap/orders-code"]
    world.tables = {}
    world.log = CliError("topic orders does not exist", remedy="create it")
    assert found(world, path, "--cluster", "-n", "shop") == {
        "ConfigMap orders-code": "does not exist in namespace shop",
        "spec.source.kafka": "topic orders does not exist",
        "spec.sinks[0].cassandra.table": "shop.orders does not exist",
    }


def test_without_a_secret_topics_and_tables_are_not_asked_for(tmp_path: Path) -> None:
    world = World.usual()
    world.missing, world.tables = ["Secret/cassandra"], {}
    assert found(world, str(manifest(tmp_path)), "--cluster", "-n", "shop") == {
        "Secret cassandra": "does not exist in namespace shop"
    }


def test_the_tables_of_the_cluster_are_those_that_the_code_must_fit(tmp_path: Path) -> None:
    world = World.usual()
    (tmp_path / "orders.py").touch()
    assert world.run("check", str(manifest(tmp_path)), "--cluster").exit_code == 0
    request, _ = world.asked[-1]
    table = request.tables["shop.orders"]
    assert (table.partition_key, [part.column for part in table.clustering_key]) == (("topic", "partition"), ["offset"])


def test_an_images_function_is_tried_in_the_image(tmp_path: Path) -> None:
    world = World.usual()
    world.inspected = {"versions": None, "pythons": []}
    assert "not built from fencepost-job" in found(world, "registry.example/x:1")["image"]
    found(world, "registry.example/x:1", "--pipeline", str(manifest(tmp_path)))
    request, image = world.asked[-1]
    assert (image, request.code_dir) == ("registry.example/x:1", "/opt/fencepost/code")


DECODED = {
    "kafka": {
        "bootstrapServers": "kafka:9092",
        "topics": ["orders"],
        "schemaRegistry": {"url": "http://registry:8081"},
        "value": {"format": "avro", "subject": "orders-value", "version": 1},
    }
}


def test_the_schema_registry_is_asked_from_this_machine(tmp_path: Path) -> None:
    world = World.usual()
    (tmp_path / "orders.py").touch()
    path = str(manifest(tmp_path, source=DECODED))
    account = ("--registry", "http://localhost:8081", "--registry-credentials", str(tmp_path))
    assert world.run("check", path, *account).exit_code == 0
    request, _ = world.asked[-1]
    assert request.config.source.schema_registry == RegistryEndpoint(url="http://localhost:8081")
    assert request.registry_credentials == str(tmp_path)
    world.code_problems = [CodeProblem(message="no answer", remedy="r", place="spec.source.kafka.schemaRegistry")]
    assert found(world, path) == {"spec.source.kafka.schemaRegistry": "no answer"}


def test_an_images_function_of_decoded_values_is_not_tried(tmp_path: Path) -> None:
    world = World.usual()
    world.inspected = {"versions": None, "pythons": []}
    ended = world.run("check", "registry.example/x:1", "--pipeline", str(manifest(tmp_path, source=DECODED)))
    assert "the container has no network" in ended.output
    assert world.asked == ["registry.example/x:1"]  # what the image holds


SCHEMA = """
-- CREATE TABLE a.commented (x int PRIMARY KEY);
CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy'}; USE shop;
create type address (street text, zip frozen<list<int>>);
CREATE TABLE IF NOT EXISTS "Orders" (
  topic text, partition int, /* a comment, with a comma */ bucket bigint,
  "Weird, name" map<text, frozen<address>>,
  at timestamp STATIC,
  PRIMARY KEY ((topic, partition), bucket, at)
) WITH CLUSTERING ORDER BY (bucket DESC, at ASC) AND comment = 'a; b';
CREATE TABLE other.small (id UUID PRIMARY KEY, v int)
"""


def test_the_schema_file_is_read_as_cassandra_reads_it() -> None:
    read = tables(SCHEMA)
    assert set(read) == {"shop.Orders", "other.small"}
    orders, small = read["shop.Orders"], read["other.small"]
    assert orders.columns == {
        "topic": "text", "partition": "int", "bucket": "bigint", "Weird, name": "map<text, frozen<address>>",
        "at": "timestamp",
    }  # fmt: skip
    assert orders.partition_key == ("topic", "partition")
    assert [(part.column, part.order) for part in orders.clustering_key] == [("bucket", "DESC"), ("at", "ASC")]
    assert orders.user_types == {"address": {"street": "text", "zip": "frozen<list<int>>"}}
    assert (small.columns, small.partition_key) == ({"id": "uuid", "v": "int"}, ("id",))


def test_watermarks_are_all_that_is_asked_of_kafka(tmp_path: Path) -> None:
    world = World.usual()
    world.log = Watermarks(begins={}, ends={}, topic_ids={})
    assert world.run("check", str(manifest(tmp_path)), "--cluster", "--kafka", "k:9092").exit_code == 0
