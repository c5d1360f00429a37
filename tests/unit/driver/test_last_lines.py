"""The last lines of the log, as the verdict keeps them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fencepost.contract import Variable
from fencepost.driver.environment import Environment
from fencepost.driver.reporting.last_lines import LastLines


@pytest.fixture
def log() -> Iterator[tuple[logging.Logger, LastLines]]:
    logger, kept = logging.getLogger("fencepost.test"), LastLines()
    logger.setLevel(logging.INFO)
    logger.addHandler(kept)
    yield logger, kept
    logger.removeHandler(kept)


def test_the_newest_lines_are_kept_without_their_keys(log: tuple[logging.Logger, LastLines]) -> None:
    logger, kept = log
    for number in range(50):
        logger.info("batch %d", number, extra={"fields": {"a": "b"}})
    lines = kept.without(())
    assert len(lines) == 20
    assert lines[-1].endswith("INFO fencepost.test: batch 49")


def test_an_exception_is_logged_without_its_java_frames(log: tuple[logging.Logger, LastLines]) -> None:
    logger, kept = log
    java = "".join(f"\n\tat org.apache.spark.X.f(X.scala:{number})" for number in range(500))
    error = RuntimeError(f"Job aborted: ZeroDivisionError in line 7{java}\n\t... 12 more")
    logger.error("the run failed", exc_info=error)
    lines = kept.without(())
    assert lines[-1] == "RuntimeError: Job aborted: ZeroDivisionError in line 7"


def test_the_java_stack_in_a_message_is_kept_by_its_causes(log: tuple[logging.Logger, LastLines]) -> None:
    logger, kept = log
    java = "".join(f"\n\tat org.apache.spark.X.f(X.scala:{number})" for number in range(50))
    logger.error("the query ended: %s", f"Terminated{java}\nCaused by: java.io.IOException: full{java}")
    lines = kept.without(())
    assert len(lines) == 2
    assert lines[0].endswith("the query ended: Terminated")
    assert lines[1] == "Caused by: java.io.IOException: full"


def test_the_jvms_lines_are_kept_without_their_frames(log: tuple[logging.Logger, LastLines]) -> None:
    _, kept = log
    frames = [f"\tat org.apache.spark.X.f(X.scala:{number})" for number in range(50)]
    kept.add(["ERROR Executor: no space left", *frames, "\t... 12 more", "Caused by: java.io.IOException: full"])
    assert kept.without(()) == ("ERROR Executor: no space left", "Caused by: java.io.IOException: full")


def test_the_secrets_are_those_that_the_pod_was_given(tmp_path: Path) -> None:
    for name, text in {
        "kafka/sasl.password": "hunter2\n",
        "kafka/sasl.username": "reader",
        "sinks/api/token": "s3cr3t",
        "tls/tls.key": "-----BEGIN-----\nMIIE\n",
        "tls/ca.crt": "public",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    environment = Environment(
        driver="d",
        credentials=("cassandra", "pa55"),
        variables={Variable.SPARK_AUTH_SECRET: "hush"},
        termination_log=tmp_path / "log",
        kafka_properties=tmp_path / "kafka",
        sink_options=tmp_path / "sinks",
        cassandra_tls=tmp_path / "tls",
    )
    assert set(environment.secrets()) == {"pa55", "hush", "hunter2", "s3cr3t", "-----BEGIN-----", "MIIE"}
    absent = replace(environment, credentials=None, kafka_properties=tmp_path / "no", sink_options=tmp_path / "no")
    assert set(absent.secrets()) == {"hush", "-----BEGIN-----", "MIIE"}


def test_secrets_are_covered_the_longest_first(log: tuple[logging.Logger, LastLines]) -> None:
    logger, kept = log
    logger.error("cannot log in with hunter2-prod or hunter2 as a")
    kept.add(["WARN sasl hunter2-prod"])
    assert kept.without(["hunter2", "hunter2-prod", "", "a"])[0].endswith("cannot log in with *** or *** as a")
    assert kept.without(["hunter2", "hunter2-prod"])[-1] == "WARN sasl ***"
