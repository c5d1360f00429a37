"""`fencepost run --local`: what it makes of a manifest and its options, and what it prints."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fencepost.contract import ExitCode, KafkaSink, Reason, RegistryEndpoint, SqliteSink, Verdict
from fencepost.local.request import Committed, Event, RecordFile, Request
from fencepost_cli.app import app
from fencepost_cli.errors import CliError
from fencepost_cli.local.request import read_pipeline
from fencepost_cli.local.watched_files import WatchedFiles
from fencepost_cli.ports import LocalEnd, Ports
from fencepost_cli.stores.processes import local as local_process

EXAMPLES = Path(__file__).parents[3] / "examples"
STOPPED = Verdict(exit_code=int(ExitCode.STOPPED), reason=Reason.STOPPED, message="stopped", remedy="")


@dataclass
class Laptop:
    """Runs the command with a process that does what `work` says, and ends as `ends` says in turn."""

    work: Callable[[Request, Callable[[Event], object]], object] = lambda _request, _show: None
    ends: list[Verdict | None] = field(default_factory=lambda: [STOPPED])
    requests: list[Request] = field(default_factory=list)

    def run(self, *words: object) -> Result:
        def local(request: Request, show: Callable[[Event], object], _is_stale: Callable[[], bool]) -> LocalEnd:
            self.requests.append(request)
            self.work(request, show)
            end = self.ends.pop(0)
            return LocalEnd(verdict=end, is_interrupted=not self.ends)

        nothing: Any = None
        ports = Ports(
            cluster=nothing,
            objects=nothing,
            store=nothing,
            log=nothing,
            leader_epoch=nothing,
            configs=nothing,
            producer=nothing,
            records=nothing,
            parquet=nothing,
            state=nothing,
            code=nothing,
            certify=nothing,
            image=nothing,
            local=local,
            serve=nothing,
        )
        return CliRunner().invoke(app, ["run", *map(str, words)], obj=ports, env={"COLUMNS": "200"})

    def request(self, *words: object) -> Request:
        ended = self.run("--local", *words)
        assert ended.exit_code == 0, ended.output
        return self.requests[-1]


def test_the_first_example_runs_as_it_is(tmp_path: Path) -> None:
    made = Laptop().request(EXAMPLES / "departures" / "pipeline.yaml", "--into", tmp_path / "d.sqlite")
    (sink,) = made.config.sinks
    assert sink == SqliteSink(
        name="departures", path=str(tmp_path / "d.sqlite"), table="departures",
        key=("topic", "partition", "bucket", "offset"),
    )  # fmt: skip
    assert made.config.entrypoint == "departures:transform"
    assert made.code == str(EXAMPLES / "departures")
    assert made.files == (RecordFile(path=str(EXAMPLES / "departures" / "flights.jsonl"), topic="flights"),)
    assert (made.ends, made.config.batch_interval, made.config.spark_master) == (True, 0.0, "local[2]")
    assert made.config.pipeline == "local/default/departures"


def test_a_stateful_pipeline_keeps_its_state_settings(tmp_path: Path) -> None:
    records = tmp_path / "views.jsonl"
    records.touch()
    made = Laptop().request(EXAMPLES / "shop" / "sessions" / "pipeline.yaml", "--records", records)
    assert made.config.state is not None
    assert (made.config.state.partitions, made.config.state.output_mode) == (2, "append")


def test_another_registry_takes_the_place_of_the_manifests(tmp_path: Path) -> None:
    (tmp_path / "flights.jsonl").touch()
    manifest = shutil.copy(EXAMPLES / "schema-registry.yaml", tmp_path)
    made = Laptop().request(manifest, "--registry", "http://localhost:1", "--registry-credentials", tmp_path)
    assert made.config.source.schema_registry == RegistryEndpoint(url="http://localhost:1")
    assert made.registry_credentials == str(tmp_path)
    made = Laptop().request(manifest)
    assert made.config.source.schema_registry == RegistryEndpoint(url="http://schema-registry:8081")
    assert made.registry_credentials == ""


def test_kafka_takes_the_place_of_files(tmp_path: Path) -> None:
    pipeline = EXAMPLES / "departures" / "pipeline.yaml"
    made = Laptop().request(pipeline, "--kafka", "localhost:9092", "--cores", 3, "--code", tmp_path)
    assert (made.files, made.ends, made.config.source.bootstrap_servers) == ((), False, "localhost:9092")
    assert (made.config.spark_master, made.code, made.config.batch_interval) == ("local[3]", str(tmp_path), 1.0)
    assert Laptop().request(pipeline, "--kafka", "localhost:9092", "--once").ends


MANIFEST = """
apiVersion: streaming.fencepost.dev/v1alpha1
kind: StreamingPipeline
metadata: {name: p, namespace: shop}
spec:
  job: {image: i, entrypoint: "m:f"}
  cluster: {workers: 1}
  source: {kafka: {bootstrapServers: "k:9092", topics: [a, b]}}
  sinks:
  - name: rows
    cassandra:
      keyspace: ks
      table: t
      createTable: {partitionKey: [x], clusteringKey: [{column: y, order: DESC}]}
  - {name: out, kafka: {topic: outs}}
  - {name: call, function: {entrypoint: "m:g"}}
  checkpoint: {cassandra: {contactPoints: [c]}}
"""


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.yaml"
    path.write_text(f"kind: ConfigMap\n---\n{MANIFEST}")
    (tmp_path / "a.jsonl").touch()
    return path


def test_each_sink_is_a_table_unless_it_is_asked_for(manifest: Path, tmp_path: Path) -> None:
    given = "--into", tmp_path / "p.sqlite"
    rows, out, call = Laptop().request(manifest, *given, "--key", "out=key").config.sinks
    assert isinstance(rows, SqliteSink)
    assert isinstance(out, SqliteSink)
    assert isinstance(call, SqliteSink)
    assert (rows.table, rows.key) == ("t", ("x", "y"))
    assert (out.table, out.key) == ("outs", ("key",))
    assert (call.table, call.key) == ("call", None)
    _, real, _ = Laptop().request(manifest, *given, "--real-sink", "out").config.sinks
    assert isinstance(real, KafkaSink)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--records", "absent.jsonl"], "does not exist"),
        (["--topic", "c"], "the pipeline does not read it"),
        (["--key", "rows"], "names no columns"),
        (["--key", "other=x"], "does not have this sink"),
        (["--real-sink", "rows"], "does not connect to Cassandra"),
    ],
)
def test_options_that_do_not_fit_are_refused(manifest: Path, words: list[str], problem: str) -> None:
    ended = Laptop().run("--local", manifest, *words)
    assert ended.exit_code == 2
    assert problem in ended.output


@pytest.mark.parametrize(
    ("text", "problem"),
    [("kind: ConfigMap", "has no object"), ("{", "cannot read"), (f"{MANIFEST}---{MANIFEST}", "has 2 pipelines"),
     (MANIFEST.replace("workers: 1", "workers: none"), "spec.cluster.workers")],
)  # fmt: skip
def test_a_file_without_a_pipeline_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(text)
    ended = Laptop().run("--local", path)
    assert ended.exit_code == 2
    assert problem in ended.output


def test_without_local_nothing_runs(manifest: Path) -> None:
    ended = Laptop().run(manifest)
    assert ended.exit_code == 2
    assert "--local" in ended.output


def test_a_manifest_without_records_says_where_they_may_be(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(MANIFEST)
    ended = Laptop().run("--local", tmp_path / "pipeline.yaml")
    assert "a.jsonl or a.parquet or b.jsonl or b.parquet" in ended.output


def write_rows(request: Request, show: Callable[[Event], object]) -> None:
    with closing(sqlite3.connect(request.database)) as database, database:
        for sink in request.config.sinks:
            assert isinstance(sink, SqliteSink)
            database.execute(f"CREATE TABLE IF NOT EXISTS {sink.table} (id, fencepost_written_at)")
        database.execute("INSERT INTO t VALUES ('first', 1), ('second', 2)")
    show(Event(loaded=1_000))
    show(Event(committed=Committed(records=1_000, rows={"rows": 2, "out": 0}, milliseconds=1_500)))
    show(Event(committed=Committed(records=5, rows={"rows": 2}, milliseconds=10)))


def test_batches_and_the_first_rows_are_printed(manifest: Path, tmp_path: Path) -> None:
    ended = Laptop(write_rows).run("--local", manifest, "--into", tmp_path / "p.sqlite")
    assert ended.exit_code == 0
    assert "1,000 records are loaded" in ended.output
    assert "batch 1: 1,000 records, 2 rows to rows, 0 rows to out, 1.5 s" in ended.output
    assert ended.output.count("second") == 1
    assert "fencepost_written_at" not in ended.output
    assert "1,005 records in 2 batches" in ended.output
    assert "table t: 2 rows" in ended.output
    assert f"rows and progress are in {tmp_path / 'p.sqlite'}" in ended.output


def test_a_failure_ends_the_command_with_its_remedy(manifest: Path) -> None:
    failed = Verdict(exit_code=1, reason=Reason.FAILED, message="it broke", remedy="correct it")

    def logged(request: Request, _show: Callable[[Event], object]) -> None:
        Path(request.log).write_text("java.lang.Something\n")

    ended = Laptop(logged, [failed]).run("--local", manifest)
    assert ended.exit_code == 2
    assert "error: it broke\nremedy: correct it" in ended.output
    assert "java.lang.Something" in ended.output


def test_a_watched_run_starts_over_when_it_is_stale_and_also_after_a_failure(manifest: Path, tmp_path: Path) -> None:
    failed = Verdict(exit_code=51, reason=Reason.ENTRYPOINT_FAILED, message="no such function", remedy="name one")
    found: list[bool] = []

    def work(request: Request, _show: Callable[[Event], object]) -> None:
        found.append(Path(request.database).exists())
        Path(request.database).touch()

    laptop = Laptop(work, [None, None, failed])
    ended = laptop.run("--local", manifest, "--watch", "--into", tmp_path / "p.sqlite")
    assert ended.exit_code == 0
    assert found == [False] * 3
    assert "no such function" in ended.output


def test_missing_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = Laptop().request(EXAMPLES / "departures" / "pipeline.yaml", "--into", tmp_path / "d.sqlite")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda *_args, **_more: None)
    with pytest.raises(CliError, match="no java is on the PATH") as refused:
        local_process.run_local(made, lambda _event: None, lambda: False)
    assert "apt-get install openjdk" in refused.value.remedy
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(CliError, match="/nowhere has no bin/java"):
        local_process.run_local(made, lambda _event: None, lambda: False)


@pytest.mark.parametrize("option", ["--fresh", "--watch"])
def test_a_file_that_is_not_a_database_is_kept(manifest: Path, option: str) -> None:
    before = manifest.read_bytes()
    ended = Laptop().run("--local", manifest, option, "--into", manifest)
    assert ended.exit_code == 2
    assert "cannot be read, and is kept" in ended.output
    assert manifest.read_bytes() == before


def test_a_database_of_an_earlier_run_is_deleted(manifest: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE fencepost_fence (pipeline TEXT)")
        database.execute("CREATE TABLE earlier (id INTEGER)")
    there: list[bool] = []
    Laptop(lambda request, _show: there.append(Path(request.database).exists())).run(
        "--local", manifest, "--fresh", "--into", path
    )
    assert there == [False]


def test_a_database_that_no_run_has_made_is_kept_and_its_tables_are_named(manifest: Path, tmp_path: Path) -> None:
    path = tmp_path / "accounts.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE accounts (id INTEGER)")
    ended = Laptop().run("--local", manifest, "--fresh", "--into", path)
    assert ended.exit_code == 2
    assert "accounts.sqlite has no table of a run, and is kept; it has accounts" in ended.output
    assert "name another file, or delete this one" in ended.output
    assert path.exists()


@pytest.mark.parametrize("name", ["new.py", "package/new.py", "new.cql"])
def test_a_file_that_is_new_is_a_change(manifest: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "package").mkdir()
    files = WatchedFiles.of(read_pipeline(manifest), Laptop().request(manifest))
    (tmp_path / "rows.sqlite").touch()
    assert not files.have_changed()
    (tmp_path / name).touch()
    assert files.have_changed()


@pytest.mark.parametrize("folder", [".git", "__pycache__", "environment"])
def test_what_is_not_the_authors_is_not_watched(manifest: Path, tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / "environment").mkdir(exist_ok=True)
    (tmp_path / "environment" / "pyvenv.cfg").touch()
    files = WatchedFiles.of(read_pipeline(manifest), Laptop().request(manifest))
    (tmp_path / folder / "new.py").touch()
    assert not files.have_changed()
