"""The last lines of the log, as the verdict keeps them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from fencepost.contract import Variable, Verdict
from fencepost.contract.purge_request import PURGE_FILE, PurgeRequest
from fencepost.contract.trial import TrialRequest
from fencepost.driver import purge_command
from fencepost.driver.environment import Environment
from fencepost.driver.reporting.last_lines import LastLines
from fencepost.driver.run import Driver
from fencepost.driver.trial.run import TrialDriver
from unit.driver.loop_world import config


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
        "sinks/api/headers": "k3y:w1th",
        "registry/headers": "X-Key: r3g1stry\n",
        "telemetry/openLineage/headers": "X-Key: l1n3age\n",
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
        registry_credentials=tmp_path / "registry",
        telemetry_credentials=tmp_path / "telemetry",
        cassandra_tls=tmp_path / "tls",
    )
    of_services = {"X-Key: r3g1stry", "r3g1stry", "X-Key: l1n3age", "l1n3age"}
    of_others = {"pa55", "hush", "hunter2", "s3cr3t", "k3y:w1th", "-----BEGIN-----", "MIIE"}
    assert set(environment.secrets()) == of_others | of_services
    no = tmp_path / "no"
    absent = replace(environment, credentials=None, kafka_properties=no, sink_options=no, registry_credentials=no)
    absent = replace(absent, telemetry_credentials=no)
    assert set(absent.secrets()) == {"hush", "-----BEGIN-----", "MIIE"}
    moved = replace(absent, cassandra_tls=no, postgresql_tls=tmp_path / "tls")
    assert set(moved.secrets()) == {"hush", "-----BEGIN-----", "MIIE"}


def test_the_account_is_that_of_the_database_of_the_fence(tmp_path: Path) -> None:
    def account(**variables: str) -> tuple[str, str] | None:
        return Environment.read(variables, termination_log=tmp_path / "log").credentials

    assert account(FENCEPOST_CASSANDRA_USERNAME="a", FENCEPOST_CASSANDRA_PASSWORD="b") == ("a", "b")  # noqa: S106
    assert account(FENCEPOST_POSTGRESQL_USERNAME="a", FENCEPOST_POSTGRESQL_PASSWORD="b") == ("a", "b")  # noqa: S106
    assert account(FENCEPOST_POSTGRESQL_USERNAME="a") == ("a", "")
    assert account() is None


def test_secrets_are_covered_the_longest_first(log: tuple[logging.Logger, LastLines]) -> None:
    logger, kept = log
    logger.error("cannot log in with hunter2-prod or hunter2 as a")
    kept.add(["WARN sasl hunter2-prod"])
    assert kept.without(["hunter2", "hunter2-prod", "", "a"])[0].endswith("cannot log in with *** or *** as a")
    assert kept.without(["hunter2", "hunter2-prod"])[-1] == "WARN sasl ***"


def test_the_message_of_a_verdict_has_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what the pod ends with, nor what the telemetry gets before."""
    (tmp_path / "api").mkdir()
    (tmp_path / "api" / "token").write_text("s3cr3t\nm0re", encoding="utf-8")
    driver = Driver(
        config(1),
        Environment(
            driver="d", credentials=None, variables={}, termination_log=tmp_path / "log", sink_options=tmp_path
        ),
    )
    sent = list[str]()
    monkeypatch.setattr(os, "_exit", _exit)
    monkeypatch.setattr(driver._telemetry, "ended", lambda last, _: sent.append(last.message))
    with pytest.raises(SystemExit):
        driver.end(ValueError(r"Invalid header value b's3cr3t\nm0re'"))
    left = Verdict.from_json((tmp_path / "log").read_text(encoding="utf-8"))
    assert left
    assert [left.message] == sent == [r"ValueError: Invalid header value b'***\n***'"]


@pytest.mark.parametrize("kind", ["purge", "trial"])
def test_the_verdict_of_a_purge_or_a_trial_has_no_secret(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other processes that end with a verdict; a library quotes the password here."""

    def fail(*_: object) -> NoReturn:
        raise ValueError("cannot log in with hunter2")

    monkeypatch.setattr(os, "_exit", _exit)
    monkeypatch.setattr(purge_command, "purge", fail)
    monkeypatch.setattr(TrialDriver, "_work", fail)
    (tmp_path / "config.json").write_text(config(1).to_json(), encoding="utf-8")
    (tmp_path / PURGE_FILE).write_text(PurgeRequest(ranges={}).to_json(), encoding="utf-8")
    variables: dict[str, str] = {
        Variable.CONFIG_FILE: str(tmp_path / "config.json"),
        Variable.CASSANDRA_USERNAME: "reader",
        Variable.CASSANDRA_PASSWORD: "hunter2",
    }
    environment = Environment.read(variables, termination_log=tmp_path / "log")
    request = TrialRequest(start={}, until={}, written_after=0, written_until=0, sinks=())
    processes: dict[str, Callable[[], NoReturn]] = {
        "purge": partial(purge_command.run, variables, termination_log=tmp_path / "log"),
        "trial": TrialDriver(config(1), request, environment).run,
    }
    with pytest.raises(SystemExit):
        processes[kind]()
    left = Verdict.from_json((tmp_path / "log").read_text(encoding="utf-8"))
    assert left
    assert left.message == "ValueError: cannot log in with ***"


def _exit(code: int) -> NoReturn:
    raise SystemExit(code)
