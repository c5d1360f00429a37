"""Entrypoints, settings, errors that cross processes, and last words."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from cassandra import OperationTimedOut, ReadTimeout
from pyspark.errors import NumberFormatException, PythonException, SparkRuntimeException, UnknownException

from fakes.driver_configs import USUAL
from fakes.spark_types import frame
from fencepost.contract import (
    ClusteringColumn,
    ContractError,
    DriverConfig,
    ExitCode,
    NotJsonError,
    PostgresqlEndpoint,
    Reason,
    StateConfig,
    Variable,
    Verdict,
    spark_conf,
)
from fencepost.driver.reporting.verdict import database_of, judge
from fencepost.entrypoint import load
from fencepost.errors import (
    KEY,
    BadSpec,
    BatchFailed,
    DataLoss,
    DependencyDown,
    ObjectChanged,
    OutOfMemory,
    PoisonRecord,
    RecordFailed,
    as_worker_error,
    begin_attempt,
    from_text,
    suspects_record,
)
from fencepost.fence import (
    FenceCredentialsRejected,
    Fenced,
    FenceMissing,
    FenceSchemaInvalid,
    FenceSchemaMissing,
    FenceSwapRefused,
    FenceUnavailable,
)
from fencepost.kafka.log import client_properties
from fencepost.logs import JsonFormatter
from fencepost.sinks.cassandra.table_metadata import Table
from fencepost.spark import failures, session
from fencepost.state.webhdfs.client_settings import client_settings
from present import present

CONFIG = replace(
    USUAL,
    spark_master="spark://m:7077",
    spark_conf={"spark.sql.shuffle.partitions": "9", "spark.driver.port": "1", "spark.authenticate": "false"},
)
POD = {Variable.SPARK_AUTH_SECRET: "hush", Variable.POD_IP: "10.0.0.7"}


def write(folder: Path, name: str, text: str) -> Path:
    (folder / f"{name}.py").write_text(text)
    return folder


def test_an_entrypoint_is_loaded_from_the_code_folder(tmp_path: Path) -> None:
    write(tmp_path, "fp_good", "def transform(batch, context): return batch\n")
    assert load("fp_good:transform", tmp_path).__name__ == "transform"


@pytest.mark.parametrize(
    ("entrypoint", "text", "reason", "message"),
    [
        ("transform", "", "EntrypointInvalid", "is not of the form"),
        ("fp_absent:f", None, "EntrypointNotFound", "module 'fp_absent' is not on the Python path"),
        ("fp_a:f", "x = 1", "EntrypointNotFound", "no function 'f'"),
        ("fp_b:x", "x = 1", "EntrypointNotFound", "no function 'x'"),
        ("fp_c:f", "import fp_not_there", "EntrypointNotFound", "imports 'fp_not_there', which is not in the image"),
        ("fp_d:f", "\n\n1 / 0", "EntrypointFailed", "ZeroDivisionError: division by zero at fp_d.py:3"),
        ("fp_e:f", "def f(:", "EntrypointFailed", "SyntaxError"),
    ],
)
def test_entrypoints_that_cannot_work(
    tmp_path: Path, entrypoint: str, text: str | None, reason: str, message: str
) -> None:
    if text is not None:
        write(tmp_path, entrypoint.partition(":")[0], text)
    with pytest.raises(BadSpec, match=message.replace("(", r"\(")) as caught:
        load(entrypoint, tmp_path)
    assert caught.value.reason == reason


def test_settings_of_a_cluster_are_authenticated_whatever_the_author_says() -> None:
    conf = session.settings(CONFIG, POD)
    assert conf["spark.sql.shuffle.partitions"] == "9"
    assert conf["spark.driver.port"] == "7078"
    assert conf["spark.driver.host"] == "10.0.0.7"
    assert conf["spark.authenticate"] == "true"
    assert conf["spark.authenticate.secret"] == "hush"
    assert conf["spark.network.crypto.cipher"] == "AES/GCM/NoPadding"
    assert conf["spark.app.name"] == "s/ns/n/4"
    assert "spark.cores.max" not in conf


def test_settings_of_state_are_ours_and_an_author_who_sets_one_is_refused() -> None:
    config = replace(CONFIG, spark_conf={}, state=StateConfig(partitions=3, max_bytes=1, data_port=0))
    conf = session.settings(config, POD, checkpoint={"spark.hadoop.client": "waits"})
    assert conf["spark.sql.shuffle.partitions"] == "3"
    assert conf["spark.hadoop.client"] == "waits"
    assert "spark.sql.streaming.stateStore.providerClass" not in session.settings(CONFIG, POD)
    with pytest.raises(BadSpec, match=r"sets spark\.sql\.shuffle\.partitions for the state") as refused:
        session.settings(replace(CONFIG, state=StateConfig(partitions=3, max_bytes=1, data_port=0)), POD)
    assert "spec.state.partitions" in refused.value.remedy


def test_the_operator_refuses_each_setting_of_state_that_is_ours() -> None:
    config = replace(CONFIG, spark_conf={}, state=StateConfig(partitions=3, max_bytes=1, data_port=0))
    plain = session.settings(replace(config, state=None), POD)
    conf = session.settings(config, POD, checkpoint=client_settings("secret", patience=30.0))
    ours = [key for key, value in conf.items() if plain.get(key) != value]
    assert ours
    assert [key for key in ours if not key.startswith(spark_conf.RESERVED_WITH_STATE)] == []


@pytest.mark.parametrize(("stall_timeout", "lost_after"), [(10.0, "20s"), (60.0, "30s"), (600.0, "60s")])
def test_a_silent_executor_is_lost_within_the_patience_and_never_for_a_few_late_heartbeats(
    stall_timeout: float, lost_after: str
) -> None:
    conf = session.settings(replace(CONFIG, stall_timeout=stall_timeout), POD)
    assert conf["spark.storage.blockManagerHeartbeatTimeoutMs"] == lost_after
    assert conf["spark.network.timeoutInterval"] == "5s"
    assert conf["spark.executor.heartbeatInterval"] == "5s"
    conf = session.settings(replace(CONFIG, spark_conf={"spark.network.timeout": "120s"}), POD)
    assert "spark.storage.blockManagerHeartbeatTimeoutMs" not in conf


def test_an_executor_that_runs_out_of_memory_ends_with_the_authors_options_too() -> None:
    authors = {"spark.executor.extraJavaOptions": "-Dx=1"}
    options = session.settings(replace(CONFIG, spark_conf=authors), POD)["spark.executor.extraJavaOptions"]
    assert options.split()[-2:] == ["-XX:+ExitOnOutOfMemoryError", "-Dx=1"]


def test_an_authors_jars_are_behind_sparks_in_executors_where_the_class_archive_admits_them() -> None:
    conf = session.settings(replace(CONFIG, spark_conf={"spark.executor.extraClassPath": "/a.jar:/b.jar"}), POD)
    assert conf["spark.executorEnv.SPARK_DIST_CLASSPATH"] == "/a.jar:/b.jar"
    assert "spark.executor.extraClassPath" not in conf
    assert "spark.executorEnv.SPARK_DIST_CLASSPATH" not in session.settings(CONFIG, POD)


def test_a_session_is_asked_for_once_the_masters_port_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    late: list[socket.socket] = []
    opening = threading.Timer(0.5, lambda: late.append(socket.create_server(("127.0.0.1", port))))
    opening.start()
    session.await_master(f"spark://127.0.0.1:{port}", timeout=30.0)
    opening.join()
    assert late
    late[0].close()
    session.await_master("local[2]", timeout=30.0)
    session.await_master(f"spark://127.0.0.1:{port}", timeout=0.2)


def test_a_setting_without_effect_ends_the_run_with_a_remedy() -> None:
    with pytest.raises(BadSpec, match=r"spark\.jars\.packages has no effect") as caught:
        session.settings(replace(CONFIG, spark_conf={"spark.jars.packages": "a:b:1"}), POD)
    assert caught.value.reason == "SparkConfInvalid"
    assert "put the jar into the image" in caught.value.remedy


def test_an_open_quote_in_java_options_is_a_bad_spec() -> None:
    with pytest.raises(BadSpec, match=r"spark\.driver\.extraJavaOptions: No closing quotation"):
        session.driver_options(replace(CONFIG, spark_conf={"spark.driver.extraJavaOptions": "-Dx='1"}))


def test_an_emptied_secret_of_the_cluster_fails_the_run_and_does_not_end_the_pipeline() -> None:
    """The operator restores its Secret: another run works, and the spec has nothing to correct."""
    with pytest.raises(ObjectChanged, match=Variable.SPARK_AUTH_SECRET) as caught:
        session.settings(CONFIG, {Variable.SPARK_AUTH_SECRET: ""})
    assert judge(caught.value).exit_code == ExitCode.FAILED


def test_an_emptied_config_map_of_the_run_fails_the_run_and_does_not_end_the_pipeline() -> None:
    with pytest.raises(NotJsonError) as caught:
        DriverConfig.from_json("")
    assert judge(caught.value).exit_code == ExitCode.FAILED


def test_local_mode_needs_no_secret_and_listens_to_itself_alone() -> None:
    conf = session.settings(replace(CONFIG, spark_master="local[2]"), {})
    assert conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.authenticate.secret" not in conf


def test_kafka_properties_of_the_secret_win_and_the_drivers_own_are_kept(tmp_path: Path) -> None:
    (tmp_path / "sasl.password").write_text("p\n")
    (tmp_path / "..data").mkdir()
    source = replace(CONFIG.source, properties={"sasl.password": "old", "client.id": "x"})
    assert client_properties(source, tmp_path) == {
        "sasl.password": "p", "client.id": "x", "bootstrap.servers": "k:9092",
    }  # fmt: skip


def test_an_error_survives_the_way_through_spark() -> None:
    sent = DataLoss("t/0 [1, 2) is {gone}", reason=Reason.OFFSET_OUT_OF_RANGE)
    text = f"PythonException: Trace\n File ...\nfencepost.errors.WorkerError: {as_worker_error(sent)}\n\tat org.apache"
    found = from_text(text)
    assert isinstance(found, DataLoss)
    assert (found.message, found.reason) == (sent.message, "OffsetOutOfRange")
    assert from_text("nothing") is None
    assert from_text("fencepost-error:{broken}") is None


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (BadSpec("x", reason=Reason.SINK_MISMATCH), ExitCode.BAD_SPEC, "SinkMismatch"),
        (DependencyDown("x"), ExitCode.DEPENDENCY_DOWN, "DependencyDown"),
        (Fenced("x", seen=None), ExitCode.FENCED, "FencedOut"),
        (FenceMissing("x"), ExitCode.FENCED, "FenceLost"),
        (FenceUnavailable("x"), ExitCode.DEPENDENCY_DOWN, "CassandraUnreachable"),
        (OperationTimedOut({"c": "Client request timeout"}, "c"), ExitCode.DEPENDENCY_DOWN, "CassandraUnreachable"),
        (ReadTimeout("x"), ExitCode.DEPENDENCY_DOWN, "CassandraUnreachable"),
        (FenceCredentialsRejected("x"), ExitCode.DEPENDENCY_DOWN, "CassandraCredentialsRejected"),
        (FenceSchemaMissing("x"), ExitCode.DEPENDENCY_DOWN, "FenceSchemaMissing"),
        (FenceSwapRefused("x"), ExitCode.DEPENDENCY_DOWN, "CassandraRejected"),
        (ContractError("x"), ExitCode.BAD_SPEC, "ContractMismatch"),
        (KeyError("x"), ExitCode.FAILED, "Failed"),
        (DataLoss("x"), ExitCode.DATA_LOSS, "DataLoss"),
        (
            RuntimeError(str(as_worker_error(DataLoss("x")))),
            ExitCode.FAILED,
            "Failed",
        ),  # the engine opens what is sealed
    ],
)
def test_each_error_has_its_code_and_reason(error: Exception, code: ExitCode, reason: str) -> None:
    verdict = judge(error, epoch=1, version=2, batch={"t/0": (1, 2)})
    assert (verdict.exit_code, verdict.reason) == (code, reason)
    assert verdict.remedy
    assert Verdict.from_json(verdict.to_json()) == verdict


@pytest.mark.parametrize(
    ("error", "reason", "remedy"),
    [
        (FenceUnavailable("x"), "PostgresqlUnreachable", ""),
        (FenceCredentialsRejected("x"), "PostgresqlCredentialsRejected", "spec.checkpoint.postgresql.credentialsFrom"),
        (FenceSwapRefused("x"), "PostgresqlRejected", ""),
        (FenceSchemaMissing("x"), "FenceSchemaMissing", "docs/fence-schema.sql"),
        (FenceSchemaInvalid("x"), "FenceSchemaInvalid", "docs/fence-schema.sql"),
    ],
)
def test_a_verdict_names_the_database_of_the_fence(error: Exception, reason: str, remedy: str) -> None:
    elsewhere = replace(USUAL, cassandra=None, postgresql=PostgresqlEndpoint(hosts=("db",)))
    found = judge(error, database=database_of(elsewhere))
    assert (found.exit_code, found.reason) == (ExitCode.DEPENDENCY_DOWN, reason)
    assert remedy in found.remedy
    assert "assandra" not in found.remedy


def test_a_verdict_says_which_record_is_poison_or_that_one_may_be() -> None:
    found = judge(PoisonRecord("t/0@5 fails", record=("t/0", 5)))
    assert (found.suspect, found.record) == (True, {"t/0": 5})
    for error in (PoisonRecord("null"), RecordFailed("no JSON")):
        found = judge(error)
        assert (found.suspect, found.record) == (True, {})
    for other in (BatchFailed("lost"), OutOfMemory("no memory"), DependencyDown("away"), RuntimeError("unknown")):
        assert not judge(other).suspect


@pytest.mark.parametrize("text", ["x", "Ошибка: ", '"quoted" \\ and\tmore', "\x00\x1b", "😀", "lone \udcff"], ids=ascii)
@pytest.mark.parametrize("partitions", [1, 400])
def test_a_verdict_fits_in_what_the_kubelet_keeps_whatever_the_text_is(text: str, partitions: int) -> None:
    batch = {f"topic/{number}": (10**9, 10**9 + 5) for number in range(partitions)}
    long = DependencyDown(text * 2000, reason=Reason.CASSANDRA_UNREACHABLE, remedy=f"Do {text}.")
    for error in (long, RuntimeError(text * 2000)):
        written = judge(error, epoch=3, version=9, batch=batch).to_json()
        assert len(written.encode()) <= Verdict.LIMIT
        verdict = present(Verdict.from_json(written))
        assert (verdict.epoch, verdict.version) == (3, 9)
        assert len(verdict.message) > 500


def test_a_verdict_of_any_length_fits() -> None:
    endless = Verdict(exit_code=1, reason=Reason.FAILED, message="я" * 100_000, remedy="\x00" * 100_000)
    assert len(endless.to_json().encode()) <= Verdict.LIMIT


def test_a_verdict_is_written_as_people_read_it() -> None:
    text = judge(DataLoss("топик «рейсы» удалён")).to_json()
    assert "топик «рейсы» удалён" in text


def leave(path: Path) -> subprocess.CompletedProcess[str]:
    program = (
        "import atexit, sys; from pathlib import Path; from fencepost.driver.reporting.verdict import judge, leave;"
        "from fencepost.errors import DataLoss; atexit.register(print, 'never');"
        "leave(judge(DataLoss('gone')), path=Path(sys.argv[1]))"
    )
    return subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False)


def test_the_last_words_are_written_and_nothing_runs_after_them(tmp_path: Path) -> None:
    ended = leave(tmp_path / "log")
    assert ended.returncode == ExitCode.DATA_LOSS
    assert ended.stdout == ""
    assert Verdict.from_json((tmp_path / "log").read_text()) == judge(DataLoss("gone"))


def test_the_last_words_do_not_depend_on_the_locale(tmp_path: Path) -> None:
    message = ascii("удалён \udcff")
    program = (
        "import sys; from pathlib import Path; from fencepost.driver.reporting.verdict import judge, leave;"
        f"leave(judge(RuntimeError({message})), path=Path(sys.argv[1]))"
    )
    command = [sys.executable, "-X", "utf8=0", "-c", program, str(tmp_path / "log")]
    environment = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": ":".join(sys.path)}
    ended = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert ended.returncode == ExitCode.FAILED
    verdict = present(Verdict.from_json((tmp_path / "log").read_text(encoding="utf-8")))
    assert verdict.message == "RuntimeError: удалён ?"


def test_last_words_go_to_stderr_when_there_is_no_log(tmp_path: Path) -> None:
    ended = leave(tmp_path / "absent" / "log")
    assert ended.returncode == ExitCode.DATA_LOSS
    assert Verdict.from_json(ended.stderr.strip()) is not None


def test_a_configuration_that_cannot_be_read_is_a_verdict_too(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-m", "fencepost", "run", "--termination-log", str(log)]
    ended = subprocess.run(command, env={Variable.CONFIG: "{}"}, capture_output=True, check=False)
    assert ended.returncode == ExitCode.BAD_SPEC
    verdict = present(Verdict.from_json(log.read_text()))
    assert verdict.reason == "ContractMismatch"


def test_a_table_says_what_does_not_fit() -> None:
    table = Table(
        keyspace="k",
        name="t",
        columns={"p": "int", "o": "bigint", "v": "text"},
        partition_key=("p",),
        clustering_key=(ClusteringColumn(column="o"),),
    )
    assert list(table.problems(frame(p="int", o="bigint"))) == []
    assert list(table.problems(frame(p="bigint", w="string"))) == [
        "column 'o' is part of the primary key, and the frame does not have it",
        "column 'p': int takes int or smallint or tinyint, not bigint; cast it in the transform",
        "column 'w' is not in the table, which has o, p, v",
    ]


def test_log_lines_are_json_with_their_fields() -> None:
    record = logging.LogRecord("fencepost.driver.run", logging.INFO, "", 0, "committed", None, None)
    record.fields = {"version": 3}
    assert '"message": "committed", "version": 3' in JsonFormatter().format(record)


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("org.apache.spark.SparkIllegalArgumentException: [INVALID_DRIVER_MEMORY] System memory 268435456", True),
        ("java.lang.NumberFormatException: Failed to parse time string: soon", True),
        (
            "java.lang.IllegalArgumentException: requirement failed: Can only call getServletHandlers on a running",
            False,
        ),
        ("org.apache.spark.SparkException: All masters are unresponsive! Giving up.", False),
    ],
)
def test_settings_that_spark_refuses_differ_from_a_silent_master(words: str, *, refused: bool) -> None:
    assert session.refuses_settings(RuntimeError(words)) is refused


LOST = (
    "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: "
    "Lost task 0.0 in stage 1.0 (TID 1) (10.0.0.1 executor 0): "
)
EXITED = (
    f"{LOST}ExecutorLostFailure (executor 0 exited unrelated to the running tasks) Reason: Command exited with code"
)
CRASHED = f"{LOST}org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"
FORGED = "fencepost-error:"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f"{EXITED} 3",
         OutOfMemory),
        (f"{EXITED} 52", OutOfMemory),
        (LOST + "java.lang.OutOfMemoryError: Java heap space", OutOfMemory),
        (f"{EXITED} 30", BatchFailed),
        (f"{CRASHED}: Fatal Python error: Segmentation fault", BatchFailed),
    ],
)  # fmt: skip
def test_too_little_memory_is_named(text: str, kind: type[BatchFailed]) -> None:
    assert type(failures.of_job(UnknownException(message=text), is_warm_up=False)) is kind
    assert type(failures.of_transform(UnknownException(message=text), is_warm_up=False)) is kind


@pytest.mark.parametrize(
    ("text", "process"),
    [
        (f"{EXITED} 137", "an executor's JVM"),
        (f"{EXITED} 3", "an executor's JVM"),
        (LOST + "java.lang.OutOfMemoryError: Java heap", "an executor's JVM"),
        ("java.lang.OutOfMemoryError: Java heap space\n\tat org.apache.spark.sql.Dataset.collect", "the driver's JVM"),
        (f"{CRASHED}",
         "a Python worker"),
    ],
)  # fmt: skip
def test_the_process_that_ran_out_of_memory_is_named(text: str, process: str) -> None:
    """Each of them arrived as 'the transform raised' where the transform itself ran the job."""
    for found in (
        failures.of_job(UnknownException(message=text), is_warm_up=False),
        failures.of_transform(UnknownException(message=text), is_warm_up=False),
    ):
        assert isinstance(found, OutOfMemory)
        assert found.message.startswith(f"{process} ran out of memory: ")


def test_memory_that_the_driver_itself_lacks_is_the_drivers() -> None:
    found = failures.of_transform(MemoryError(), is_warm_up=False)
    assert found.message.startswith("the driver's Python process ran out of memory")


@pytest.mark.parametrize("error", [ConnectionRefusedError("fares:443"), TimeoutError("no answer")], ids=repr)
def test_a_service_of_the_authors_that_is_away_is_a_dependency(error: Exception) -> None:
    found = failures.of_transform(error, is_warm_up=False)
    assert (type(found), found.reason, found.code) == (BatchFailed, "DependencyDown", 1)


@pytest.mark.parametrize(
    "content",
    [
        FORGED + '{"kind":"DataLoss","message":"x","reason":"OffsetOutOfRange","remedy":"y","ranges":{"t/0":[5,9]}}',
        FORGED + "0" * 64 + ':{"kind":"DependencyDown","message":"x","reason":"KafkaUnreachable","remedy":"y"}',
        "pod app-1 OOMKilled",
        "MemoryError",
        "java.lang.OutOfMemoryError: Java heap space",
        "Lost task 0.0: Python worker exited unexpectedly (crashed)",
        "Python worker exited unexpectedly (crashed)",
        f"{EXITED} 137",
        "x\nfencepost.errors.DependencyDown: the index is down",
        "x\nTimeoutError: the index is down",
    ],
)  # fmt: skip
def test_no_text_in_a_record_decides_what_its_failure_means(content: str) -> None:
    """Each of these ended the run as a loss, as too little memory or as an outage, and the record came again."""
    cast = f"[CAST_INVALID_INPUT] The value '{content}' of the type \"STRING\" cannot be cast. SQLSTATE: 22018"
    raised = (
        f"{LOST}org.apache.spark.api.python.PythonException: Traceback (most recent call last):\nValueError: {content}"
    )
    by_query = f"{LOST}org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] {content} SQLSTATE: P0001"
    for error in (
        NumberFormatException(message=cast),
        PythonException(message=raised),
        SparkRuntimeException(message=by_query),
        ValueError(content),
    ):
        for found in (failures.of_job(error, is_warm_up=False), failures.of_transform(error, is_warm_up=False)):
            assert suspects_record(found), found
            assert not judge(found).loss


def test_a_seal_of_another_text_is_not_one() -> None:
    text = str(as_worker_error(RecordFailed("x")))
    assert isinstance(from_text(f"it quotes fencepost-error:{'0' * 64}:{{}} and raised {text}"), RecordFailed)
    assert from_text(text.replace("RecordFailed", "DataLoss")) is None
    assert KEY not in text


def test_a_seal_of_another_attempt_of_the_run_is_none() -> None:
    begin_attempt()
    text = str(as_worker_error(DependencyDown("x")))
    assert isinstance(from_text(text), DependencyDown)
    begin_attempt()
    assert from_text(text) is None
